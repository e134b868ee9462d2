"""Servers of a log, as `chained_log` needs them: messages under consecutive numbers, appended under a condition.

`chained_log` makes a `ReplicatedLog` of it: envelopes, parts, appends in doubt and claims are not the engine's concern.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from legato.replication.log import ReplicaHealth


class Message(NamedTuple):
    """A message of the log's servers."""

    sequence: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the servers keep.

    Args:
        first: the sequence of the first message kept; that of the next one if there is none.
        last: the sequence of the last message there ever was; 0 if there was none.
        settled: whoever said so led the log just then, so that nothing acknowledged is missing in it. A server that was
            deposed while it was stopped or cut off answers, too, until it hears of that.
    """

    first: int
    last: int
    settled: bool = True

    def kept(self) -> tuple[int, int]:
        """The first message that is kept, 0 if none is, and the last."""
        return (self.first if self.first <= self.last else 0), self.last


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """The state of the servers; fields as of `LogHealth`."""

    replicas: Sequence[ReplicaHealth]
    bounds: Bounds
    kept_bytes: int
    trouble: Sequence[str]
    stops: Sequence[str] = ()


class AppendRefused(Exception):
    """The servers said that the condition does not hold. It was not stored by this attempt, maybe by one before."""


class Watch(Protocol):
    """Messages as they come. For one thread."""

    def take(self, timeout_s: float) -> Sequence[Message]:
        """Those that have come, in order; none when the time is over. A gap is for who takes them to see."""

    def close(self) -> None:
        """Watch no longer."""


class Engine(Protocol):
    """Servers that keep a log. Every call blocks and may be made in any thread.

    When no server answers within `timeout_s`, a call raises `LogUnavailableError`.
    """

    @property
    def message_bytes_max(self) -> int:
        """The size of the largest message."""

    def append(self, data: bytes, after: int, timeout_s: float) -> int:
        """Store a message behind the one with the number `after`, if that is the last; return its number.

        One attempt: `LogUnavailableError` leaves in doubt whether it is stored, or will be.

        Raises:
            AppendRefused: `after` is not the last.
        """

    def bounds(self, timeout_s: float) -> Bounds:
        """What the leader keeps."""

    def get(self, sequence: int, timeout_s: float) -> bytes | None:
        """A message, as the leader has it; None if it does not have it."""

    def read(self, first: int, last: int, limit_bytes: int, timeout_s: float) -> Sequence[Message]:
        """Messages of the leader from `first` on, in order, at most to `last`; those that it lacks are left out.

        Args:
            first: the sequence of the first.
            last: the sequence of the last.
            limit_bytes: stop at about this size, but not before one message.
            timeout_s: how long to wait.
        """

    def watch(self, first: int) -> Watch:
        """The messages from `first` on, and those to come."""

    def trim(self, first: int, timeout_s: float) -> None:
        """Forget the messages before `first`."""

    def vouch(self, timeout_s: float) -> None:
        """See that the servers have each message on disk before they acknowledge it.

        Raises:
            LogUnsafeError: they do not, or it cannot be proved.
        """

    def health(self, timeout_s: float) -> EngineHealth:
        """How the servers are."""

    def move_leader(self, away_from: str, timeout_s: float) -> str:
        """Let another server lead, if `away_from` does; return who leads then."""

    def close(self) -> None:
        """Leave the servers."""
