"""Run records for `legato flows trace`: a small message for each run, sent with the run's commit."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from legato.amqp.names import FLOW_TRACE_ID
from legato.client import DeliveryMode, Queue, Session, TextMessage
from legato.errors import MessageFormatError
from legato.flows.model.envelope import UNREADABLE, Envelope
from legato.flows.model.wire import PREFIX

if TYPE_CHECKING:
    from sqlalchemy import Engine

QUEUES = 16
"""Records are spread over so many queues by their trace id, so that who looks for one looks through few."""
SUFFIX = "trace."


class RunRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One run of a stage.

    Attributes:
        message_id, flow_id, trace_id, call, number, sender: of the envelope that it worked on.
        stage: which.
        attempt: which it was, from 1.
        sent_us, taken_us, ended_us: when the message was sent, taken, and worked on up to the messaging commit;
            microseconds since 1970.
        database_us: of that, what its statements in the database took.
        calls: kind and receiver of what it sent.
        failure: the exception; empty if it succeeded.
        buried: whether the message went to the dead letters.
        host: where it ran.
    """

    message_id: str
    flow_id: str
    trace_id: str
    call: str
    number: int
    sender: str
    stage: str
    attempt: int = 1
    sent_us: int
    taken_us: int
    ended_us: int = 0
    database_us: int = 0
    calls: tuple[tuple[str, str], ...] = ()
    failure: str = ""
    buried: bool = False
    host: str = ""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(RunRecord)


def record_of(envelope: Envelope, stage: str, taken_us: int, attempt: int, **more: Any) -> RunRecord:
    """The record of a run.

    Args:
        more: other fields of `RunRecord`.
    """
    return RunRecord(
        message_id=envelope.message_id,
        flow_id=envelope.flow_id,
        trace_id=envelope.trace_id,
        call=str(envelope.call),
        number=envelope.number,
        sender=envelope.sender,
        stage=stage,
        attempt=attempt,
        sent_us=envelope.sent_us,
        taken_us=taken_us,
        **more,
    )


def queue_of_records(trace_id: str, prefix: str = PREFIX) -> Queue:
    """The queue of a flow's records; flows that a stage began, whose ids continue its flow's, are in the same."""
    first = trace_id.partition("|")[0]
    return Queue(f"{prefix}{SUFFIX}{hashlib.blake2b(first.encode(), digest_size=1).digest()[0] % QUEUES:x}")


def decode_record(text: str) -> RunRecord:
    """A record from a message's body.

    Raises:
        MessageFormatError: it is none.
    """
    try:
        return _decoder.decode(text)
    except UNREADABLE as error:
        raise MessageFormatError(f"This is no record of a run: {error}.") from error


class Recorder:
    """Sends records in a session; they live for a while, and not through the death of all brokers.

    Args:
        retention_s: how long, in seconds.
    """

    def __init__(self, session: Session, prefix: str, retention_s: float) -> None:
        self._producer = session.create_producer(None)
        self._producer.delivery_mode = DeliveryMode.NON_PERSISTENT
        self._producer.time_to_live_ms = round(retention_s * 1000)
        self._prefix = prefix

    def send(self, records: Sequence[RunRecord], now_us: int) -> None:
        """Send records of runs that end now."""
        for record in records:
            message = TextMessage(_encoder.encode(msgspec.structs.replace(record, ended_us=now_us)).decode())
            message.set_property(FLOW_TRACE_ID, record.trace_id)
            self._producer.send(message, destination=queue_of_records(record.trace_id, self._prefix))


class DatabaseTime:
    """How long each thread's statements take in a database."""

    def __init__(self, engine: Engine) -> None:
        from time import perf_counter

        from sqlalchemy import event

        self._of = threading.local()

        def before(*_: object) -> None:
            self._of.begun_s = perf_counter()

        def after(*_: object) -> None:
            self._of.spent_s = self.spent_s + perf_counter() - self._of.begun_s

        event.listen(engine, "before_cursor_execute", before)
        event.listen(engine, "after_cursor_execute", after)

    @property
    def spent_s(self) -> float:
        """Seconds that this thread has spent so far."""
        return float(getattr(self._of, "spent_s", 0.0))
