"""Small reads: bytes of peers that wait for the end of the small commit in flight, and are handled together then.

What a peer sends meanwhile is stored by the next commit at the earliest. Handled piece by piece it costs a pass through
all of the broker for each piece, and takes the interpreter from the thread that commits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from legato import limits


class Reader(Protocol):
    """Who is sent something."""

    def take(self, data: bytes) -> None:
        """Handle what was kept."""


class SmallReads:
    """The small reads that wait, by peer.

    Args:
        call_later: has something called after so many seconds.
    """

    def __init__(self, call_later: Callable[[float, Callable[[], None]], object]) -> None:
        self._call_later = call_later
        self._in_flight = False
        self._kept: dict[Reader, bytes] = {}
        self._planned = False

    def begin(self) -> None:
        """A small commit is in flight."""
        self._in_flight = True

    def end(self) -> None:
        """It has ended: what was kept is handled."""
        self._in_flight = False
        self._release()

    def due(self, reader: Reader, data: bytes) -> bytes:
        """What of all that came from a peer is to be handled now: nothing, or `data` and what was kept before it."""
        before = self._kept.get(reader)
        if before is not None:
            data = before + data
        if self._in_flight and len(data) < limits.SMALL_READ_BYTES:
            self._kept[reader] = data
            if not self._planned:
                self._planned = True
                self._call_later(limits.SMALL_READ_WAIT_S, self._wait_no_longer)
            return b""
        if before is not None:
            del self._kept[reader]
        return data

    def give_up(self, reader: Reader) -> bytes:
        """What was kept of a peer, which is kept no longer."""
        return self._kept.pop(reader, b"")

    def _wait_no_longer(self) -> None:
        """The disk may be slow, and what was kept need not be for it."""
        self._planned = False
        self._release()

    def _release(self) -> None:
        kept = self._kept
        for reader in list(kept):
            # Of one that another one's bytes have ended nothing is kept any more.
            if (data := kept.pop(reader, None)) is not None:
                reader.take(data)
