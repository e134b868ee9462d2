"""Trace of a flow, merged from run records, waiting messages, dead letters, and the calls that these list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from legato.amqp.names import FLOW_BUNDLE, FLOW_TRACE_ID
from legato.client import Connection, ConnectionFactory, Message, Queue
from legato.client.failover.uri import short_wait
from legato.client.management import rows
from legato.core.dead_letters import EXCEPTION
from legato.errors import MessageFormatError
from legato.flows.model.envelope import Envelope
from legato.flows.model.wire import envelopes_of
from legato.flows.stages.records import RunRecord, decode_record, queue_of_records
from legato.selectors.literals import literal_of


@dataclass(frozen=True)
class Step:
    """A call, and what became of it; times in microseconds, 0 if they are not known.

    Attributes:
        trace_id, flow_id: whose.
        number: of the call in its flow.
        sender, call, stage: who called whom and how.
        sent_us: when, since 1970.
        in_queue_us, in_stage_us, database_us: until it was taken; from there to the commit; of that in the database.
        attempt: which.
        state: `done`, `failed`, `waiting`, `dead letter`, or `passed`: done, by what a later message remembers.
        then: what came of it, for people.
    """

    trace_id: str
    flow_id: str
    number: int
    sender: str
    call: str
    stage: str
    sent_us: int
    in_queue_us: int = 0
    in_stage_us: int = 0
    database_us: int = 0
    attempt: int = 1
    state: str = "done"
    then: str = ""

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def steps_of(url: str, trace_id: str, prefix: str) -> list[Step]:
    """All that is known of a flow, and of the flows that it began, in the order of their calls."""
    queues = list(rows(url, "queue"))
    with ConnectionFactory(url, **short_wait(url)).create_connection() as connection:
        connection.start()
        return steps_in(connection, queues, trace_id, prefix)


def steps_in(connection: Connection, queues: Iterable[dict[str, Any]], trace_id: str, prefix: str) -> list[Step]:
    """As `steps_of`, by a connection that was started.

    Args:
        queues: rows of all queues.
    """
    pattern = trace_id.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    selector = (
        f"{FLOW_TRACE_ID} = {literal_of(trace_id)} OR {FLOW_TRACE_ID} LIKE {literal_of(f'{pattern}|%')} ESCAPE '!' "
        f"OR {FLOW_BUNDLE} IS NOT NULL"
    )
    records_queue = queue_of_records(trace_id, prefix).name
    steps: list[Step] = []
    envelopes: list[Envelope] = []
    for row in queues:
        name = str(row["name"])
        of_records = name.startswith(f"{prefix}trace.")
        if (of_records and name != records_queue) or not (name.startswith(prefix) or row.get("dead_letters")):
            continue
        if not row["depth"]:
            continue
        for message in _browse(connection, name, selector):
            with suppress(MessageFormatError):
                if of_records:
                    steps.append(_recorded(decode_record(str(message.body))))
                    continue
                for envelope in envelopes_of(message):
                    if envelope.trace_id == trace_id or envelope.trace_id.startswith(f"{trace_id}|"):
                        envelopes.append(envelope)
                        steps.append(_waiting(envelope, message, dead=bool(row.get("dead_letters"))))
    known = {(step.flow_id, step.number, step.stage) for step in steps}
    for envelope in envelopes:
        for step in _passed(envelope):
            if (step.flow_id, step.number, step.stage) not in known:
                known.add((step.flow_id, step.number, step.stage))
                steps.append(step)
    return sorted(steps, key=lambda step: (step.trace_id, step.sent_us, step.number, step.attempt))


def _browse(connection: Connection, name: str, selector: str) -> Iterator[Message]:
    with connection.create_session() as session:
        yield from session.create_browser(Queue(name), selector)


def _recorded(record: RunRecord) -> Step:
    calls = ", ".join(f"{call} {to}" for call, to in record.calls)
    failed = f"attempt {record.attempt} failed: {record.failure}" + "; to the dead letters" * record.buried
    return Step(
        trace_id=record.trace_id,
        flow_id=record.flow_id,
        number=record.number,
        sender=record.sender,
        call=record.call,
        stage=record.stage,
        sent_us=record.sent_us,
        in_queue_us=record.taken_us - record.sent_us,
        in_stage_us=record.ended_us - record.taken_us,
        database_us=record.database_us,
        attempt=record.attempt,
        state="failed" if record.failure else "done",
        then=failed if record.failure else calls or "the flow ends here",
    )


def _waiting(envelope: Envelope, message: Message, *, dead: bool) -> Step:
    then = f"dead letter: {message.properties.get(EXCEPTION)}" if dead else "waits"
    return Step(
        trace_id=envelope.trace_id,
        flow_id=envelope.flow_id,
        number=envelope.number,
        sender=envelope.sender,
        call=str(envelope.call),
        stage=envelope.to,
        sent_us=envelope.sent_us,
        attempt=message.delivery_count,
        state="dead letter" if dead else "waiting",
        then=then,
    )


def _passed(envelope: Envelope) -> Iterator[Step]:
    """The calls before this one that it remembers."""
    sender = ""
    for hop in envelope.trail[:-1]:
        yield Step(
            trace_id=envelope.trace_id,
            flow_id=envelope.flow_id,
            number=hop.number,
            sender=sender,
            call=str(hop.call),
            stage=hop.to,
            sent_us=hop.sent_us,
            state="passed",
        )
        sender = hop.to
