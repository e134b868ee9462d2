"""Envelopes as messages: which queue or topic they go to, and the properties that others may look at."""

from __future__ import annotations

import logging
from collections import OrderedDict

from legato.amqp.types import Int
from legato.client import (
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
from legato.errors import MessageFormatError
from legato.flows.envelope import Envelope, Outgoing, Reach, decode, encode

logger = logging.getLogger(__name__)

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

JOIN = "legato_join"

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
    """Where an envelope goes."""
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
        raise MessageFormatError(
            f"A {type(message).__name__} without a flow's JSON came to a stage's queue: only flows may send there."
        )
    return decode(message.body)


class Sender:
    """Sends envelopes in a session, to whatever stage they are for."""

    def __init__(self, session: Session, prefix: str = PREFIX) -> None:
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
        envelope = outgoing.envelope
        try:
            producer = self._producer(destination_of(envelope.to, outgoing.reach, self._prefix))
        except InvalidDestinationError:
            if outgoing.reach is not Reach.ADDRESS:
                raise
            logger.info("Flow %s: nobody waits for its reply any more.", envelope.trace_id)
            return
        message = message_of(envelope)
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
