"""Failing messages of a stage: attempts so far, and the time limit of retries. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

FAILING_MAX = 1_000
"""Messages of a stage that are remembered; beyond, the one that failed longest ago is forgotten."""


@dataclass
class Failing:
    """A message that failed in this process and was not retried yet.

    Attributes:
        uncounted: attempts that the broker did not count.
        attempt: the last one, from 1, with those that the broker did not count.
        since_s: when it failed first for what is no message's fault; None if it did not.
        text: its last exception.
    """

    uncounted: int = 0
    attempt: int = 0
    since_s: float | None = None
    text: str = ""


@dataclass(frozen=True)
class Verdict:
    """The consequences of a failed attempt for its message and its stage.

    Attributes:
        attempt: which one it was, from 1.
        first: whether it is the first one of this message that this process saw fail.
        counts: whether the broker is to count it.
        last: whether the message goes to the dead letters.
        opened: whether the stage begins to pause because of it.
        pause_s: how long the stage pauses now, in seconds; 0 if it does not.
        gives_up_s: in how many seconds the message goes to the dead letters if it still fails; None if attempts decide.
    """

    attempt: int
    first: bool = True
    counts: bool = True
    last: bool = False
    opened: bool = False
    pause_s: float = 0.0
    gives_up_s: float | None = None

    def __str__(self) -> str:
        """The next step, as the end of a sentence."""
        if self.last:
            return "it goes to the dead letters"
        if not self.pause_s:
            return "it is tried again"
        if self.gives_up_s is None:
            return f"the stage pauses, next try in {self.pause_s:.1f} s"
        return (
            f"the stage pauses, next try in {self.pause_s:.1f} s; not counted, "
            f"the message goes to the dead letters in {self.gives_up_s:.0f} s if it still fails"
        )


class Attempts:
    """The failing messages of one stage."""

    def __init__(self) -> None:
        self._failing: OrderedDict[str, Failing] = OrderedDict()

    def failed(self, message: str, delivery_count: int, text: str) -> tuple[Failing, bool]:
        """An attempt failed; returns what is known of its message, and whether it is the first one known.

        Args:
            delivery_count: which delivery it was, from 1, as the broker counts.
            text: its exception.
        """
        known = self._failing.pop(message, None)
        failing = self._failing[message] = known or Failing()
        while len(self._failing) > FAILING_MAX:
            self._failing.popitem(last=False)
        failing.attempt = delivery_count + failing.uncounted
        failing.text = text
        return failing, known is None

    def forget(self, message: str) -> None:
        """The message is worked on, or among the dead letters."""
        if self._failing:
            self._failing.pop(message, None)

    def of(self, message: str) -> Failing | None:
        """Attempts of a message."""
        return self._failing.get(message) if self._failing else None

    def latest(self, count: int) -> list[tuple[str, Failing]]:
        """Latest failures, the latest first, by their messages."""
        return list(self._failing.items())[: -count - 1 : -1]
