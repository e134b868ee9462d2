"""Link of a browser: requests copies of messages until the broker has no more. Runs in the I/O thread."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from legato.amqp.engine.events import Attached, Detached, Disposition, Flow, Transfer, TransferAborted, TransferPart
from legato.client.links.downloads import Download
from legato.client.links.redirection import redirection
from legato.client.mapping.conditions import error_of
from legato.client.mapping.source import Source
from legato.errors import InvalidSelectorError, JMSError

if TYPE_CHECKING:
    from legato.amqp.engine.link import Receiver
    from legato.client.links.ports import ChannelPort

_SETTLED = 1


class BrowserEnd:
    """A browser's link; it requests messages in batches until the broker has no more."""

    def __init__(self, channel: ChannelPort, name: str, source: Source, prefetch: int) -> None:
        self.channel = channel
        self.name = name
        self.source = source
        self.prefetch = prefetch
        self.inbox: deque[bytes] = deque()
        self.link: Receiver | None = None
        self.attached = False
        self.finished = False
        """The broker has sent all."""
        self.error: JMSError | None = None
        self._download = Download()

    def attach(self) -> None:
        """Attach; a browser belongs to one wire, its snapshot does not outlive a failover."""
        session = self.channel.session
        if session is None:
            self._fail(JMSError("The connection to the broker was lost; browse again once it is back."))
            return
        self.link = session.receiver(
            self.name,
            source=self.source.terminus(),
            snd_settle_mode=_SETTLED,
        )
        self.link.context = self
        self.link.streams = True

    def connection_lost(self) -> None:
        """The wire is gone."""
        self.link = None
        if not self.finished:
            self._fail(JMSError("The connection to the broker was lost while browsing; browse again."))

    def on_attached(self, event: Attached) -> None:
        """The broker answered; a refusal is followed by `Detached`."""
        remote = event.link.remote_source
        if remote.kind == "none":
            return
        try:
            self.source.check_answer(remote)
        except JMSError as error:
            self._fail(error)
        else:
            self.attached = True
            self.more()

    def more(self) -> None:
        """Ask for the next lump."""
        if self.link is not None and self.attached and not self.finished:
            self.link.drain(self.prefetch)

    def ask(self) -> None:
        """Ask for the next lump, if the last one has come and was taken."""
        if not self.inbox and self.link is not None and self.link.credit == 0:
            self.more()

    def on_transfer(self, event: Transfer) -> None:
        """A copy of a message came."""
        self.inbox.append(event.data)
        if not event.settled:
            event.link.settle(event.delivery)
        self.channel.touch()

    def on_part(self, event: TransferPart) -> None:
        """Part of a copy of a large message came; one that there is no room for ends the look."""
        data = self._download.take(event, wanted=True)
        if data is None:
            return
        if self._download.problem is not None:
            self._fail(JMSError(f"The queue cannot be browsed: {self._download.problem}"))
        else:
            self.on_transfer(Transfer(event.link, event.delivery, event.tag, data, event.settled, event.txn_id))

    def on_aborted(self, event: TransferAborted) -> None:
        """A large message went while it was being shown."""
        self._download.forget()
        # Who waits has asked already, and perhaps nothing else comes of that.
        self.ask()

    def on_flow(self, event: Flow) -> None:
        """The broker gave credit back: it has no more messages."""
        self.finished = True
        self.channel.touch()

    def on_disposition(self, event: Disposition) -> None:
        """Copies are settled; nothing is said about them."""

    def on_detached(self, event: Detached) -> None:
        """The broker closed the link, or confirms that we did."""
        link, self.link = self.link, None
        if link is not None and not link.closed:
            link.close()
            kind = InvalidSelectorError if self.source.selector and event.condition == "amqp:invalid-field" else None
            what = f"The queue {self.source.destination} cannot be browsed"
            self._fail(redirection(event, what) or error_of(event.condition, event.description, what, kind))

    def close(self) -> None:
        """Detach."""
        self.finished = True
        if self.link is not None:
            self.link.close()
        self.channel.forget_browser(self)
        self.channel.touch()

    def _fail(self, error: JMSError) -> None:
        self.error = error
        self.finished = True
        self.channel.touch()
