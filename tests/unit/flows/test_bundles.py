"""What travels together, and messages that no flow has sent."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato.amqp.names import FLOW_BUNDLE
from legato.client import BytesMessage, TextMessage
from legato.errors import MessageFormatError, TransactionRolledBackError
from legato.flows import Context, Flows, Policy
from legato.flows.database.bundles import BUNDLE_BYTES_MAX, bundle, pieces
from legato.flows.database.transactions import Database, Received
from legato.flows.model.envelope import Envelope, Outgoing, Reach, decode_bundle
from legato.flows.model.payloads import from_json, to_json
from legato.flows.model.stage_run import Ran, run_stage
from legato.flows.model.stash import MAGIC, read_stash
from legato.flows.model.wire import as_message, count_in, envelopes_of
from legato.flows.stages.records import decode_record
from tests.unit.flows.making import envelope_to

MADE_AT_MS = 1_700_000_000_000


def call(number: int, to: str = "Orders.place", data: Any = None, **fields: Any) -> Outgoing:
    envelope = msgspec.structs.replace(envelope_to(to, data), message_id=f"m{number}")
    return Outgoing(envelope, **fields)


def ids(outgoing: Outgoing) -> list[str]:
    if not outgoing.bundle:
        return [outgoing.envelope.message_id]
    return [envelope.message_id for envelope in decode_bundle(outgoing.bundle)]


def bundled(calls: Sequence[Outgoing], count_max: int = 100) -> list[tuple[str, list[str]]]:
    rows = bundle([(f"cause of {one.envelope.message_id}", one) for one in calls], count_max)
    return [(cause, ids(one)) for cause, one in rows]


def test_calls_of_the_same_stage_travel_together_in_their_order_and_no_more_than_may() -> None:
    calls = [call(1), call(2, "Prices.of"), call(3), call(4), call(5)]
    assert bundled(calls, 2) == [
        ("cause of m1", ["m1", "m3"]),
        ("cause of m4", ["m4", "m5"]),
        ("cause of m2", ["m2"]),
    ]


def test_what_has_a_time_of_its_own_or_another_kind_of_receiver_travels_by_itself() -> None:
    calls = [
        call(1),
        call(2, delay_ms=5),
        call(3, time_to_live_ms=5),
        call(4, reach=Reach.QUEUE),
        call(5, reach=Reach.ANSWERS),
        call(6),
    ]
    assert [together for _, together in bundled(calls)] == [["m2"], ["m3"], ["m4"], ["m5"], ["m1", "m6"]]


def test_a_bundle_has_so_many_bytes_and_no_more() -> None:
    half = "x" * (BUNDLE_BYTES_MAX // 2 - 10)
    assert [together for _, together in bundled([call(number, data=half) for number in range(5)])] == [
        ["m0", "m1"],
        ["m2", "m3"],
        ["m4"],
    ]


def test_a_bundle_is_one_message_and_all_of_it_comes_out() -> None:
    [(_, made)] = bundle([("c", call(number, data=f"tea {number}")) for number in range(50)], 50)
    message = as_message(made)
    assert isinstance(message, BytesMessage)
    assert count_in(message) == 50
    assert len(message.body) < 50 * 50  # They are much alike.
    envelopes = envelopes_of(message)
    assert envelopes == [call(number, data=f"tea {number}").envelope for number in range(50)]
    assert [count_in(as_message(piece)) for piece in pieces(envelopes, 20)] == [20, 20, 10]
    assert [envelopes_of(as_message(piece)) for piece in pieces(envelopes, 1)] == [[each] for each in envelopes]


def test_a_bundle_that_cannot_be_read_says_so() -> None:
    message = as_message(bundle([("c", call(1)), ("c", call(2))], 2)[0][1])
    message.clear_body()
    with pytest.raises(MessageFormatError, match="no bundle"):
        envelopes_of(message)


# -- messages that no flow has sent


@pytest.mark.parametrize("made", [TextMessage('{"item":"tea"}'), BytesMessage(b'{"item":"tea"}')])
def test_a_plain_message_begins_a_flow_with_the_same_ids_at_each_delivery(made: TextMessage | BytesMessage) -> None:
    made.message_id, made.timestamp, made.correlation_id = "ID:1", MADE_AT_MS, "order:17"
    [first], [second] = envelopes_of(made, "Orders.place"), envelopes_of(made, "Orders.place")
    assert first == second
    assert (first.to, first.trace_id, bytes(first.data)) == ("Orders.place", "order:17", b'{"item":"tea"}')
    made.message_id = "ID:2"
    [other] = envelopes_of(made, "Orders.place")
    assert other.message_id != first.message_id
    assert other.message_id[:12] == first.message_id[:12] == f"{MADE_AT_MS:012x}"


def test_only_an_endpoint_that_says_so_takes_plain_messages() -> None:
    message = TextMessage('"tea"')
    message.message_id = "ID:1"
    with pytest.raises(MessageFormatError, match="not a message of a flow"):
        envelopes_of(message)
    with pytest.raises(MessageFormatError, match="JSON in messages with an id"):
        envelopes_of(BytesMessage(b""), "Orders.place")


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(("name", "data"), [(b"unknown", DEEP), (b"to", b'"\xff"')], ids=["deep", "not UTF-8"])
def test_json_that_is_nested_too_deep_or_is_no_utf_8_is_refused_as_any_other(name: bytes, data: bytes) -> None:
    """A dead letter comes of a `MessageFormatError`; of another error, where a message is buried, a lost session."""
    fields = b'{"%b":%b}' % (name, data)
    message = BytesMessage(zlib.compress(b"[%b]" % fields))
    message.set_property(FLOW_BUNDLE, 2)
    with pytest.raises(MessageFormatError, match="not a message of a flow"):
        envelopes_of(message)
    with pytest.raises(MessageFormatError):
        from_json(msgspec.Raw(data), Any)
    with pytest.raises(MessageFormatError, match="stash cannot be read"):
        read_stash(MAGIC + b'{"envelope":%b}' % fields)


def test_what_is_nested_too_deep_is_not_sent_either() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(MessageFormatError, match="cannot be sent as JSON"):
        to_json(nested)
    with pytest.raises(MessageFormatError, match="no record of a run"):
        decode_record(f'{{"unknown":{DEEP.decode()}}}')


# -- with an inbox


class Broken:
    """Messaging that fails when it commits, at first."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.sent: list[Outgoing] = []
        self._open: list[Outgoing] = []

    def send(self, outgoing: Sequence[Outgoing], *, once: bool = False) -> None:
        self._open += outgoing

    def check(self) -> None:
        """It can always."""

    def commit(self) -> None:
        going, self._open = self._open, []
        if self.failures:
            self.failures -= 1
            raise TransactionRolledBackError("a failover")
        self.sent += going


def test_a_batch_whose_messages_were_not_committed_sends_the_same_bundle_when_it_comes_again(tmp_path: Path) -> None:
    """CONTRACT D13: the work is done once, whatever the batches are in which its messages come."""
    flows = Flows("amqp://localhost", database=f"sqlite:///{tmp_path}/test.db", policy=Policy(bundle_max=10))
    endpoint = flows.endpoint("Orders.place")
    worked: list[str] = []

    @endpoint.stage
    def first(context: Context[None], item: str) -> None:
        worked.append(item)
        context.next(item)

    @endpoint.last_stage
    def last(context: Context[None], item: str) -> None: ...

    stage = endpoint.stages[0]
    level, messaging = flows.level_of(stage), Broken(1)

    def run(received: Received, database: Database | None) -> Ran:
        return run_stage(stage, received.envelope, now_us=1, database=database)

    def perform(envelopes: Sequence[Envelope], delivery_count: int) -> None:
        level.perform(stage.id, [Received(envelope, delivery_count) for envelope in envelopes], run, messaging)

    came = [call(number, data=f"tea {number}").envelope for number in range(4)]
    with pytest.raises(TransactionRolledBackError):
        perform(came[:3], 1)
    perform(came, 2)
    flows.stop()
    assert worked == ["tea 0", "tea 1", "tea 2", "tea 3"]
    assert sorted(data for one in messaging.sent for data in datas(one)) == worked
    assert [one.count for one in messaging.sent] == [3, 1]
    with sqlite3.connect(tmp_path / "test.db") as database:
        assert database.execute("SELECT count(*) FROM legato_inbox").fetchone() == (4,)


def datas(outgoing: Outgoing) -> list[str]:
    return [msgspec.json.decode(each.data) for each in envelopes_of(as_message(outgoing))]
