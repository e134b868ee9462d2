"""The record of a consuming client, for every way of receiving."""

from legato.client import AcknowledgeMode, Message
from legato.core.dead_letters import DEAD_LETTER_COUNT
from legato.drill.client_totals import Counts, FlowProgress
from legato.drill.load import Client, Work
from legato.drill.messages import MutilatedError, check, identity_of, is_to_die, source_of
from legato.drill.records import Consuming, Identity, RecordWriter
from legato.failpoints import DrillOrders, Point

FIRST_WAIT_S = 0.25
NEXT_WAIT_S = 0.02
ROLLBACK_PAUSE_S = 0.5
SPARED_FROM_DELIVERY = 4
"""From this delivery on a client takes care that a message is not delivered as often as it may be: no fault of the
broker's would have killed it then.
"""
MESSAGES_AT_ONCE = 20

MODES = {
    Work.AUTO: AcknowledgeMode.AUTO,
    Work.LISTENER: AcknowledgeMode.AUTO,
    Work.DUPS_OK: AcknowledgeMode.DUPS_OK,
    Work.CLIENT: AcknowledgeMode.CLIENT,
    Work.INDIVIDUAL: AcknowledgeMode.INDIVIDUAL,
    Work.FORWARD: AcknowledgeMode.SESSION_TRANSACTED,
    Work.CANCEL: AcknowledgeMode.SESSION_TRANSACTED,
    Work.INTERRUPT: AcknowledgeMode.SESSION_TRANSACTED,
    Work.INTERRUPT_CLIENT: AcknowledgeMode.CLIENT,
    Work.PICKY: AcknowledgeMode.SESSION_TRANSACTED,
}
TOLD = (Work.CLIENT, Work.INDIVIDUAL, Work.FORWARD, Work.CANCEL, Work.INTERRUPT, Work.INTERRUPT_CLIENT, Work.PICKY)
"""Works that hear whether their acknowledgements succeeded."""
TRANSACTED = (Work.FORWARD, Work.CANCEL, Work.INTERRUPT, Work.PICKY)
TAKE_ALONG = (Work.AUTO, Work.DUPS_OK)
"""Works whose messages are acknowledged as `receive()` returns them (Jakarta Messaging 6.2.10)."""


def head_of(client: Client) -> Consuming:
    """The head of a consumer's record."""
    return Consuming(
        client.receives_from,
        client.sent_to or client.flow,
        told=client.work in TOLD,
        takes_along=client.work in TAKE_ALONG,
        exactly_once=client.work in TRANSACTED or client.collects,
    )


class ClientHistory:
    """Record of a consumer: its messages, and the outcomes of its calls.

    Args:
        end_to_end: for who collects what forwarders sent: a second record, of what they had made it from.
        drill_orders: holds the process where the drill wants it.
    """

    def __init__(
        self,
        client: Client,
        record: RecordWriter,
        flows: FlowProgress,
        counts: Counts,
        *,
        end_to_end: RecordWriter | None = None,
        drill_orders: DrillOrders | None = None,
    ) -> None:
        self._client = client
        self._record = record
        self._flows = flows
        self._counts = counts
        self._end_to_end = end_to_end
        self._drill_orders = drill_orders
        self._sources: dict[Identity, Identity] = {}

    def see(self, message: Message) -> Identity:
        """A message was presented."""
        identity = identity_of(message)
        # A dead letter that was reissued is a new message, and says by this property that it is not seen first.
        flagged = message.redelivered or DEAD_LETTER_COUNT in message.properties
        self._record.seen(identity, flagged)
        check(message, self._client.trait, self._client.selector)
        if DEAD_LETTER_COUNT in message.properties and not is_to_die(self._client.flow, identity):
            raise MutilatedError(f"{message.message_id} was a dead letter, and no consumer had refused it.")
        if self._end_to_end is not None:
            source = self._sources[identity] = source_of(message)
            self._end_to_end.seen(source, message.redelivered)
        self._counts.add("seen")
        self.heard()
        return identity

    def spares(self, message: Message) -> bool:
        """Whether the client is to be done with the message now: without rolling back by chance, and soon."""
        return message.delivery_count >= SPARED_FROM_DELIVERY

    def heard(self) -> None:
        """Something came: there may be more."""
        self._flows.heard(self._client.receives_from)

    def trying(self, messages: list[Identity]) -> None:
        """They are about to be acknowledged."""
        self._record.trying(messages)
        if self._end_to_end is not None:
            self._end_to_end.trying(self._sources_of(messages))

    def done(self, messages: list[Identity], *, surely: bool = True) -> None:
        """They are acknowledged; not `surely`: perhaps."""
        self._record.done(messages, surely=surely)
        if self._end_to_end is not None:
            self._end_to_end.done(self._sources_of(messages), surely=surely)
            for identity in messages:
                del self._sources[identity]
        self.heard()

    def undone(self, messages: list[Identity]) -> None:
        """They are not acknowledged, and come again."""
        self._record.undone(messages)
        self._counts.add("rolled_back")

    def hit(self, point: Point) -> None:
        """The client is at a point of the drill's."""
        if self._drill_orders is not None:
            self._drill_orders.hit(point)

    @property
    def complete(self) -> bool:
        """Whether no more will come, once all producers have ended."""
        return self._flows.complete(self._client.receives_from, self._client.sent_to or self._client.flow)

    def _sources_of(self, messages: list[Identity]) -> list[Identity]:
        return [self._sources[identity] for identity in messages]
