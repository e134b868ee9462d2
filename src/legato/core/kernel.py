"""The kernel that all parts of the broker share: time, archive, the commit being gathered, effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from legato import limits
from legato.core.commit import Commit
from legato.core.effects import Deliver, Effect, ScanAgain
from legato.core.facts import AnyFact
from legato.core.outcome import Change
from legato.core.records import Archive, Bodies, Meta
from legato.core.steady import SteadyClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from legato.core.consumers import Consumer
    from legato.core.message import Message


class Kernel:
    """The kernel of one epoch's broker.

    Attributes:
        archive: committed state, read when a queue, producer or outcome is first asked for, or a window loaded.
        bodies: what reads messages' bytes for us.
        detailed: whether the ledger is to show each delivery.
        effects: those gathered since the shell took them.
        epoch: its number.
        gathering: the commit that new facts join.
        in_flight: the commit that the store is making durable, if there is one.
        now_us: the time as it was said last.
        steady: the clock that retention goes by.
        turn_ms: a clock that tells how long the shell's turn has taken.
    """

    __slots__ = (
        "_scanning",
        "archive",
        "bodies",
        "detailed",
        "effects",
        "epoch",
        "gathering",
        "in_flight",
        "now_us",
        "steady",
        "turn_ms",
    )

    def __init__(
        self, archive: Archive, meta: Meta, *, bodies: Bodies, turn_ms: Callable[[], int], detailed: bool
    ) -> None:
        self.archive = archive
        self.bodies = bodies
        self.detailed = detailed
        self.effects: list[Effect] = []
        self.epoch = meta.epoch
        self.gathering = Commit()
        self.in_flight: Commit | None = None
        self.now_us = 0
        self.steady = SteadyClock(meta.steady_us)
        self.turn_ms = turn_ms
        self._scanning = False
        """Whether the shell was asked to go on and did not yet."""

    def group_of(self, message: Message) -> str:
        """The message's group; empty if it has none, or its queue no groups."""
        queue = message.queue
        return self.bodies.group(queue.body(message, self.archive))[0] if queue.grouped else ""

    def record(self, fact: AnyFact) -> None:
        """The fact is part of the next commit."""
        self.gathering.facts.append(fact)

    def change(self, change: Change) -> None:
        """Add a change, applied when the next commit is durable, or undone when it is refused."""
        self.gathering.changes.append(change)

    def emit(self, effect: Effect) -> None:
        """The shell does this, now: it depends on no fact that is not durable."""
        self.effects.append(effect)

    def withdraw(self, consumer: Consumer) -> None:
        """What the consumer was to be given is not delivered: one that is gone must not cost the next its messages.

        It may be pending still: one turn of the loop can apply several commands before the shell performs effects.
        """
        if self.effects:
            self.effects[:] = [
                effect for effect in self.effects if not (isinstance(effect, Deliver) and effect.consumer is consumer)
            ]

    def take_effects(self) -> list[Effect]:
        """The effects gathered since the last call."""
        effects, self.effects = self.effects, []
        return effects

    @property
    def commits(self) -> Sequence[Commit]:
        """Commits that are not durable yet, the older one first."""
        return (self.gathering,) if self.in_flight is None else (self.in_flight, self.gathering)

    # -- what takes long is done in slices -----------------------------------------------------------------------

    def begin_slice(self) -> Callable[[], bool]:
        """Begin a slice of the turn; returns a function that tells whether it is over."""
        turn_ms = self.turn_ms
        end_ms = turn_ms() + limits.SCAN_MS
        return lambda: turn_ms() >= end_ms

    def scan_again(self) -> None:
        """Ask the shell to go on in another turn."""
        if not self._scanning:
            self._scanning = True
            self.effects.append(ScanAgain())

    def scan_began(self) -> None:
        """The shell goes on."""
        self._scanning = False
