"""Messages that carry envelopes: their queue or topic, and their properties."""

from __future__ import annotations

import logging
from collections import OrderedDict

import msgspec

from legato.amqp.codec.types import Int
from legato.amqp.names import (
    FLOW_BUNDLE,
    FLOW_CALL,
    FLOW_CALL_NUMBER,
    FLOW_ID,
    FLOW_STAGE,
    FLOW_TRACE_ID,
    LINK_REDIRECT,
)
from legato.client import (
    BytesMessage,
    DeliveryMode,
    Destination,
    InvalidDestinationError,
    Message,
    MessageProducer,
    Queue,
    Session,
    TemporaryQueue,
    TextMessage,
    Topic,
)
from legato.errors import JMSError, MessageFormatError
from legato.flows.model.calls import first_envelope, plain_id
from legato.flows.model.envelope import (
    Call,
    Envelope,
    Outgoing,
    Reach,
    decode,
    decode_bundle,
    encode,
)
from legato.quoting import quoted

logger = logging.getLogger(__name__)

PREFIX = "flows."
"""Before the id of a stage, in the name of its queue."""

# Properties of a message beside those of `legato.amqp.names`, which the broker reads.
MESSAGE_ID = "legato_message_id"
SENDER = "legato_sender"
INTERACTIVE = "legato_interactive"
JOIN = "legato_join"

OUTSIDE = "another program"
"""Who sent what no flow has sent."""

ANSWERS_SUFFIX = ".answers"
JOINED_SUFFIX = ".joined"
PRODUCERS_MAX = 100
"""Of a session; the one that was not used for longest is closed: futures' addresses come and go."""
PRIORITY_DEFAULT = 4
PRIORITY_INTERACTIVE = 8


def queue_of(stage_id: str, prefix: str = PREFIX) -> Queue:
    """The queue that a stage takes its messages from."""
    return Queue(prefix + stage_id)


def topic_of(endpoint_id: str, prefix: str = PREFIX) -> Topic:
    """The topic that a subscription terminator hears."""
    return Topic(prefix + endpoint_id)


def answers_queue_of(stage_id: str, prefix: str = PREFIX) -> Queue:
    """The queue of answers to the joins of a stage."""
    return Queue(prefix + stage_id + ANSWERS_SUFFIX)


def joined_queue_of(stage_id: str, prefix: str = PREFIX) -> Queue:
    """The queue in which the joins of a stage wait."""
    return Queue(prefix + stage_id + JOINED_SUFFIX)


def destination_of(to: str, reach: Reach, prefix: str = PREFIX) -> Destination:
    """Destination of an envelope."""
    match reach:
        case Reach.STAGE:
            return queue_of(to, prefix)
        case Reach.TOPIC:
            return topic_of(to, prefix)
        case Reach.ANSWERS:
            return answers_queue_of(to, prefix)
        case Reach.JOINED:
            return joined_queue_of(to, prefix)
        case Reach.ADDRESS:
            return TemporaryQueue(to)
        case Reach.QUEUE:
            return Queue(to)


def message_of(envelope: Envelope) -> TextMessage:
    """The message that carries an envelope."""
    message = TextMessage(encode(envelope))
    message.correlation_id = envelope.flow_id
    message.type = envelope.to
    for name, value in (
        (FLOW_TRACE_ID, envelope.trace_id),
        (FLOW_ID, envelope.flow_id),
        (MESSAGE_ID, envelope.message_id),
        (FLOW_STAGE, envelope.to),
        (SENDER, envelope.sender),
        (FLOW_CALL, str(envelope.call)),
        (FLOW_CALL_NUMBER, Int(envelope.number)),
    ):
        message.set_property(name, value)
    if envelope.interactive:
        message.set_property(INTERACTIVE, True)
    return message


def bundle_message_of(outgoing: Outgoing) -> BytesMessage:
    """The message that carries several envelopes; each is known by what is in it."""
    first = outgoing.envelope
    message = BytesMessage(outgoing.bundle)
    message.content_encoding = "deflate"
    message.type = first.to
    message.set_property(FLOW_BUNDLE, Int(outgoing.count))
    message.set_property(MESSAGE_ID, first.message_id)
    message.set_property(FLOW_STAGE, first.to)
    message.set_property(SENDER, first.sender)
    if first.interactive:
        message.set_property(INTERACTIVE, True)
    return message


def plain_message_of(envelope: Envelope) -> TextMessage:
    """The message that other programs get: the data alone, and what the flow is about as its correlation id."""
    message = TextMessage(bytes(envelope.data).decode())
    message.correlation_id = envelope.trace_id
    return message


def is_plain(message: Message) -> bool:
    """Whether no flow has sent it."""
    return MESSAGE_ID not in message.properties


def count_in(message: Message) -> int:
    """How many envelopes a message carries, as it says."""
    if FLOW_BUNDLE not in message.properties:
        return 1
    count = message.properties[FLOW_BUNDLE]
    return count if isinstance(count, int) and count > 0 else 1


def is_apart(message: Message) -> bool:
    """Whether it is to be worked on without others."""
    return FLOW_BUNDLE in message.properties and message.properties[FLOW_BUNDLE] == 1


def envelopes_of(message: Message, plain_to: str = "") -> list[Envelope]:
    """All envelopes in a message.

    Args:
        plain_to: the stage that also takes messages that no flow has sent: each begins a flow there.

    Raises:
        MessageFormatError: it carries none.
    """
    if plain_to and is_plain(message):
        return [beginning_of(message, plain_to)]
    if FLOW_BUNDLE in message.properties and isinstance(message, BytesMessage):
        return decode_bundle(message.body)
    return [envelope_of(message)]


def beginning_of(message: Message, to: str) -> Envelope:
    """Envelope of a plain message, as if its sender had begun a flow with its JSON.

    Its ids are derived from the message's, so that it is the same at each delivery.

    Raises:
        MessageFormatError: it has no text, or it has no message id.
    """
    body = message.body if isinstance(message, TextMessage | BytesMessage) else None
    if not body or not message.message_id:
        raise MessageFormatError(f"A {type(message).__name__} came to {to}, which takes JSON in messages with an id.")
    message_id = plain_id(message.message_id, message.timestamp)
    return first_envelope(
        message_id=message_id,
        flow_id=message_id,
        trace_id=str(message.correlation_id or message.message_id),
        sender=OUTSIDE,
        to=to,
        data=msgspec.Raw(body.encode() if isinstance(body, str) else body),
        now_us=message.timestamp * 1000,
        call=Call.SEND,
        persistent=message.delivery_mode is DeliveryMode.PERSISTENT,
    )


def envelope_of(message: Message) -> Envelope:
    """The envelope in a message.

    Raises:
        MessageFormatError: it carries none.
    """
    if not isinstance(message, TextMessage) or not message.body:
        raise MessageFormatError(
            f"A {type(message).__name__} without a flow's JSON came to a stage's queue: only flows may send there."
        )
    return decode(message.body)


def as_message(outgoing: Outgoing) -> TextMessage | BytesMessage:
    """The message of whatever is to be sent."""
    if outgoing.bundle:
        return bundle_message_of(outgoing)
    if outgoing.reach is Reach.QUEUE:
        return plain_message_of(outgoing.envelope)
    message = message_of(outgoing.envelope)
    if outgoing.apart:
        message.set_property(FLOW_BUNDLE, Int(1))
    return message


class Sender:
    """Sends envelopes in a session, to whatever stage they are for.

    Args:
        apart: gets the replies to futures that the session's transaction cannot have, as another group of brokers has
            their address; without it that is an error.
    """

    def __init__(self, session: Session, prefix: str = PREFIX, apart: list[Outgoing] | None = None) -> None:
        self._apart = apart
        self._session = session
        self._prefix = prefix
        self._producers: OrderedDict[Destination, MessageProducer] = OrderedDict()

    def send(self, outgoing: Outgoing, *, once: bool = False) -> None:
        """Send one; an answer to a future whose process is gone goes nowhere.

        Args:
            once: whether somebody may have sent the same before: the broker then drops it if it remembers that.

        Raises:
            JMSError: the broker refused it.
        """
        to = destination_of(outgoing.envelope.to, outgoing.reach, self._prefix)
        try:
            try:
                self._send(outgoing, to, once)
            except InvalidDestinationError:
                if not self._forget(to):
                    raise
                # It was deleted since. It may be there again, or be made by this; but not if that fails, too.
                self._send(outgoing, to, once)
        except InvalidDestinationError:
            self._forget(to)
            if outgoing.reach is not Reach.ADDRESS:
                raise
            logger.info("Flow %s: nobody waits for its reply any more.", quoted(outgoing.envelope.trace_id))
        except JMSError as error:
            if self._apart is None or outgoing.reach is not Reach.ADDRESS or error.code != LINK_REDIRECT:
                raise
            self._apart.append(outgoing)

    def _forget(self, to: Destination) -> bool:
        """Close the producer of a destination that was deleted; whether there was one."""
        producer = self._producers.pop(to, None)
        if producer is not None:
            producer.close()
        return producer is not None

    def _send(self, outgoing: Outgoing, to: Destination, once: bool) -> None:
        envelope = outgoing.envelope
        producer = self._producer(to)
        message = as_message(outgoing)
        if outgoing.reach is Reach.ANSWERS:
            # One at a time works on the answers to a join.
            message.set_property("JMSXGroupID", envelope.join)
        if outgoing.reach is Reach.JOINED:
            message.set_property(JOIN, envelope.join)
        producer.send(
            message,
            delivery_mode=DeliveryMode.PERSISTENT if envelope.persistent else DeliveryMode.NON_PERSISTENT,
            priority=PRIORITY_INTERACTIVE if envelope.interactive else PRIORITY_DEFAULT,
            time_to_live_ms=outgoing.time_to_live_ms,
            delivery_delay_ms=outgoing.delay_ms,
            duplicate_id=envelope.message_id if once else None,
        )

    def _producer(self, to: Destination) -> MessageProducer:
        producer = self._producers.get(to)
        if producer is None:
            producer = self._producers[to] = self._session.create_producer(to)
            if len(self._producers) > PRODUCERS_MAX:
                self._producers.popitem(last=False)[1].close()
        else:
            self._producers.move_to_end(to)
        return producer
