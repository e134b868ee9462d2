"""Envelopes as messages: which queue or topic they go to, and the properties that others may look at."""

from __future__ import annotations

from legato.amqp.types import Int
from legato.client import DeliveryMode, Destination, Message, MessageProducer, Queue, Session, TextMessage, Topic
from legato.errors import MessageFormatError
from legato.flows.envelope import Envelope, Outgoing, decode, encode

PREFIX = "flows."
"""Before the id of a stage, in the name of its queue."""

TRACE_ID = "legato_trace_id"
FLOW_ID = "legato_flow_id"
MESSAGE_ID = "legato_message_id"
STAGE = "legato_stage"
SENDER = "legato_sender"
CALL = "legato_call"
CALL_NUMBER = "legato_call_number"
INTERACTIVE = "legato_interactive"

PRIORITY_DEFAULT = 4
PRIORITY_INTERACTIVE = 8


def queue_of(stage_id: str, prefix: str = PREFIX) -> Queue:
    """The queue that a stage takes its messages from."""
    return Queue(prefix + stage_id)


def topic_of(endpoint_id: str, prefix: str = PREFIX) -> Topic:
    """The topic that a subscription terminator hears."""
    return Topic(prefix + endpoint_id)


def message_of(envelope: Envelope) -> TextMessage:
    """The message that carries an envelope."""
    message = TextMessage(encode(envelope))
    message.correlation_id = envelope.flow_id
    message.type = envelope.to
    for name, value in (
        (TRACE_ID, envelope.trace_id),
        (FLOW_ID, envelope.flow_id),
        (MESSAGE_ID, envelope.message_id),
        (STAGE, envelope.to),
        (SENDER, envelope.sender),
        (CALL, str(envelope.call)),
        (CALL_NUMBER, Int(envelope.number)),
    ):
        message.set_property(name, value)
    if envelope.interactive:
        message.set_property(INTERACTIVE, True)
    return message


def envelope_of(message: Message) -> Envelope:
    """The envelope in a message.

    Raises:
        MessageFormatError: it carries none.
    """
    if not isinstance(message, TextMessage) or not message.body:
        raise MessageFormatError(f"A {type(message).__name__} is not a message of a flow.")
    return decode(message.body)


class Sender:
    """Sends envelopes in a session, to whatever stage they are for."""

    def __init__(self, session: Session, prefix: str = PREFIX) -> None:
        self._session = session
        self._prefix = prefix
        self._producers: dict[Destination, MessageProducer] = {}

    def send(self, outgoing: Outgoing, *, once: bool = False) -> None:
        """Send one.

        Args:
            once: whether somebody may have sent the same before: the broker then drops it if it remembers that.

        Raises:
            JMSError: the broker refused it.
        """
        envelope = outgoing.envelope
        to: Destination = (topic_of if outgoing.topic else queue_of)(envelope.to, self._prefix)
        producer = self._producers.get(to)
        if producer is None:
            producer = self._producers[to] = self._session.create_producer(to)
        producer.send(
            message_of(envelope),
            delivery_mode=DeliveryMode.PERSISTENT if envelope.persistent else DeliveryMode.NON_PERSISTENT,
            priority=PRIORITY_INTERACTIVE if envelope.interactive else PRIORITY_DEFAULT,
            time_to_live_ms=outgoing.time_to_live_ms,
            delivery_delay_ms=outgoing.delay_ms,
            duplicate_id=envelope.message_id if once else None,
        )
