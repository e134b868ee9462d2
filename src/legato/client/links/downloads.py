"""Download of a large message: its body goes to a file as it arrives."""

from __future__ import annotations

from legato.amqp.engine.events import TransferPart
from legato.client.messages.large import LargeData, Spool, large_data
from legato.errors import JMSError, ProtocolError


class Download:
    """The large message arriving over a link, if any. Runs in the I/O thread."""

    def __init__(self) -> None:
        self._data: LargeData | None = None
        self._wanted = False
        self.problem: JMSError | ProtocolError | None = None
        """Why the message that has just come cannot be had."""

    def take(self, event: TransferPart, *, wanted: bool) -> bytes | None:
        """A part came; `wanted`, heeded with the first, is False for one that is here already.

        Returns:
            With the last part what is at hand of the message, empty if it was not wanted or `problem` says why not.
        """
        if event.first:
            self.forget()
            self._wanted = wanted
        if self._wanted:
            self._write(event)
        if not event.last:
            return None
        data, self._data = self._data, None
        return b"" if data is None or not self._wanted else data

    def _write(self, event: TransferPart) -> None:
        try:
            if self._data is None:
                self._data = large_data(event.data, Spool())
            else:
                self._data.body.append(event.data)
        except ProtocolError as error:
            self.problem = error
        except OSError as error:
            self.problem = JMSError(f"There is no room for a large message that came: {error}.", linked=error)
        if self.problem is not None:
            self._data = None
            self._wanted = False

    def forget(self) -> None:
        """Drop the received part."""
        self._data = None
        self._wanted = False
        self.problem = None
