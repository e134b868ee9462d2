"""Upload of a large message from a file, at the socket's pace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from legato.client.messages.large import Region

if TYPE_CHECKING:
    from legato.amqp.engine.link import Sender
    from legato.client.failover.wire import Wire
    from legato.client.links.session_state import Send

PIECE_BYTES = 128 << 10
WINDOW_BYTES = 256 << 10
"""What the broker has not taken yet: with more than that nothing is read."""
PIECES_IN_ONE_GO = 8
"""Then others of the connection have a turn."""


class Upload:
    """One send of a large message. Runs in the I/O thread.

    Args:
        region: what follows the send's `data`.
    """

    def __init__(self, link: Sender, send: Send, region: Region, txn_id: bytes | None) -> None:
        self.send = send
        self._link = link
        self._region = region
        self._at = 0
        link.begin(send.number.to_bytes(8, "big"), send, txn_id=txn_id)
        link.push(send.data)

    @property
    def can_go_on(self) -> bool:
        """Whether the broker's window is open."""
        return self._link.session.outgoing_bytes < WINDOW_BYTES

    def go_on(self, wire: Wire) -> bool:
        """Send what the socket takes now; returns whether that was the end, or nobody wants more.

        Raises:
            OSError, ValueError: the file cannot be read, or became shorter; the message does not come.
        """
        for _ in range(PIECES_IN_ONE_GO):
            if self._at == self._region.size:
                self._link.finish()
                return True
            if wire.wants_write or not self.can_go_on:
                return False
            if not self._link.push(self._read()):
                return True
            wire.flush()
        return False

    def abort(self) -> None:
        """It does not come after all."""
        self._link.abort()

    def _read(self) -> bytes:
        try:
            piece = self._region.read(self._at, PIECE_BYTES)
            if not piece:
                raise ValueError(f"it ends after {self._at} of {self._region.size} bytes")
        except BaseException:
            self._link.abort()
            raise
        self._at += len(piece)
        return piece
