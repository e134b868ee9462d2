"""Uploads of large messages: parts become durable as they arrive, then the stub."""

from __future__ import annotations

from legato import limits
from legato.core.commit import Commit
from legato.core.kernel import Kernel
from legato.core.transaction import Transaction

_EPOCH_SHIFT = 32


class Uploads:
    """Uploads of large messages.

    Attributes:
        has_larges: whether there may be large messages; who handles messages need not look for stubs if not.
    """

    __slots__ = ("_kernel", "_next", "_open", "_spoilt", "has_larges")

    def __init__(self, kernel: Kernel) -> None:
        self.has_larges = kernel.archive.has_larges()
        self._kernel = kernel
        self._next = 1
        self._open = 0
        self._spoilt: set[int] = set()
        """Uploads of which a part could not be stored."""

    def begin(self) -> int:
        """The number of a new large message. `end` must follow, whatever becomes of it."""
        self.has_larges = True
        self._open += 1
        number = self._kernel.epoch << _EPOCH_SHIFT | self._next
        self._next += 1
        return number

    def add_chunk(self, large: int, index: int, data: bytes) -> None:
        """A part of it came; parts are numbered from 0."""
        if large not in self._spoilt:
            commit = self._kernel.gathering
            commit.chunks.append((large, index, data))
            commit.body_bytes += len(data)

    @property
    def are_full(self) -> bool:
        """Whether so many parts wait for the next commit that who sends them should be slowed."""
        return len(self._kernel.gathering.chunks) >= limits.CHUNKS_IN_A_COMMIT

    def is_spoilt(self, large: int) -> bool:
        """Whether parts of it are lost for lack of room: it must be refused."""
        return large in self._spoilt

    def end(self, large: int, transaction: Transaction | None = None) -> None:
        """No more comes: what there is of it stays if a message refers to it, else it goes.

        Args:
            transaction: it was published in this one, so that its commit decides.
        """
        self._spoilt.discard(large)
        self._open -= 1
        if transaction is None:
            self._kernel.gathering.ended.append(large)
        else:
            transaction.larges.append(large)

    def review(self) -> None:
        """Find out whether there are none any more; call it from time to time, while none is being delivered."""
        kernel = self._kernel
        if not self._open and kernel.in_flight is None and not kernel.gathering.chunks:
            self.has_larges = kernel.archive.has_larges()

    def lose_chunks(self, commit: Commit) -> set[int]:
        """The chunks of a commit could not be stored; returns whose."""
        lost = {large for large, _, _ in commit.chunks}
        self._spoilt |= lost - {*commit.ended}
        return lost
