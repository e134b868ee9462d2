"""What a peer asks for costs the others nothing: no event takes the loop more than 50 ms (SECURITY 1 to 18)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from legato.amqp import names
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, ValueBody, decode_message, encode_message
from legato.amqp.codec.values import Symbol, UInt, encode_compound, encode_string, encode_symbol
from legato.amqp.engine.outcomes import ACCEPTED, Rejected
from tests.integration.server.conftest import Connect
from tests.support.amqp_peer import AmqpPeer, data_of, text
from tests.support.measured_broker import MeasuredServer
from tests.support.raw import (
    DETACH,
    SOURCE,
    Raw,
    RawPeer,
    credit,
    frame,
    framed,
    opening,
    receiving,
    sending,
    sent,
    terminus,
)
from tests.unit.amqp.test_bombs import array, bomb, described

SASL_HEADER = b"AMQP\x03\x01\x00\x00"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeasuredServer]:
    server = MeasuredServer(tmp_path_factory.mktemp("measured") / "store")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def raw(broker: MeasuredServer) -> Iterator[Callable[[], RawPeer]]:
    """Connects peers that write what they like; afterwards no turn of the loop may have taken long."""
    peers: list[RawPeer] = []

    def connect() -> RawPeer:
        peers.append(RawPeer(broker.port))
        return peers[-1]

    yield connect
    for peer in peers:
        peer.close()
    broker.check()


def round_trip(peer: AmqpPeer) -> None:
    """Send a message and get it back."""
    address = f"good-{id(peer)}"
    assert peer.send(peer.sender(address), text(b"well")) == ACCEPTED
    receiver = peer.receiver(address, 1)
    transfer = peer.transfer()
    assert data_of(transfer) == b"well"
    receiver.settle(transfer.delivery, ACCEPTED)
    peer.flush()


def request(peer: AmqpPeer, **arguments: object) -> tuple[int, object]:
    """Ask the management address: the status of the answer, and what is in it."""
    body = arguments.pop("body", None)
    message = encode_message(
        header=Header(),
        properties=Properties(message_id="1"),
        application_properties=arguments,
        body=ValueBody(body),
    )
    return ask(peer, message)


def ask(peer: AmqpPeer, message: bytes) -> tuple[int, object]:
    if not hasattr(peer, "asking"):
        peer.asking = peer.sender("$management")  # type: ignore[attr-defined]
        peer.receiver("$management", 1000)
    assert peer.send(peer.asking, message) == ACCEPTED  # type: ignore[attr-defined]
    answer = decode_message(peer.transfer().data)
    assert isinstance(answer.body, ValueBody)
    return int(answer.application_properties["statusCode"]), json.loads(answer.body.value)


def test_a_status_link_with_endless_credit_gets_one_answer_a_flow(raw: Callable[[], RawPeer], connect: Connect) -> None:
    hostile = raw()
    hostile.send(opening(), receiving(0, "$status"), credit(0, (1 << 31) - 1))
    heard = hostile.hear_until(b'"role"')
    assert heard.count(b'"role"') == 1
    hostile.send(credit(0, 1 << 30))
    assert hostile.hear_until(b'"role"').count(b'"role"') == 1
    round_trip(connect())


def test_endless_credit_on_every_address_of_the_brokers_own_holds_nobody_up(
    raw: Callable[[], RawPeer], connect: Connect
) -> None:
    for address in ("$heartbeat", "$management", "$status", "somewhere"):
        hostile = raw()
        hostile.send(opening(), *[receiving(n, address) + credit(n, (1 << 32) - 1) for n in range(50)])
        round_trip(connect())


def test_a_bomb_before_the_login_ends_its_connection(raw: Callable[[], RawPeer], connect: Connect) -> None:
    for body in (b"\x00\x53\x41" + bomb(), b"\x00\x53\x41" + described(1000), bomb(1500), b"\x00\x53\x41\xd0"):
        hostile = raw()
        hostile.send(SASL_HEADER, framed(body, kind=1))
        hostile.socket.shutdown(1)
        hostile.hear_all()
    round_trip(connect())


def sections_with(value: bytes) -> Iterator[bytes]:
    """Messages with that value where a broker looks."""
    body = b"\x00\x53\x75\xa0\x01x"
    keyed = encode_compound(0xC1, [encode_string("_AMQ_DUPL_ID"), value])
    for section in range(0x70, 0x79):
        prefix = bytes((0, 0x53, section))
        yield prefix + value + body
        yield prefix + keyed + body
        yield prefix + encode_compound(0xC0, [b"\x40"] * 10 + [value, value, value]) + body
        yield prefix + encode_compound(0xC0, [value] * 13) + body


@pytest.mark.parametrize("value", [bomb(200), bomb(1000, 4000), described(5_000)], ids=["arrays", "legal", "nested"])
@pytest.mark.parametrize("address", ["bombed", "$management", None], ids=["queue", "management", "relay"])
def test_a_bomb_in_a_message_is_stored_or_rejected_and_holds_nobody_up(
    address: str | None, value: bytes, raw: Callable[[], RawPeer], connect: Connect
) -> None:
    hostile = raw()
    selecting = connect()
    selecting.receiver("bombed", 10)
    messages = [*sections_with(value)]
    hostile.send(opening(), sending(0, address))
    hostile.hear_until(b"\x00\x53\x13")
    hostile.send(*[sent(0, number, message) for number, message in enumerate(messages)])
    round_trip(connect())
    last = text(b"the last") if address == "bombed" else text(b"")
    hostile.send(sent(0, len(messages), last), frame(DETACH, [UInt(0), True]))
    round_trip(connect())


@pytest.mark.parametrize(
    "arguments",
    [
        {"operation": "query", "offset": (1 << 63) - 1},
        {"operation": "query", "offset": 1 << 62, "count": 1 << 62},
        {"operation": "query", "match": ".".join("#" * 500)},
        {"operation": "query", "match": ".".join("#*" * 60)},
        {"operation": "query", "body": "[" * 100_000},
        {"operation": "query", "body": '{"offset": ' + "9" * 5000 + "}"},
        {"operation": "query", "type": "queue", "body": '{"match": ' + "[" * 900 + "]" * 900 + "}"},
        {"operation": "move", "name": "q", "to": "r", "properties": "[" * 100_000},
        {"operation": "move", "name": "q", "to": "r", "properties": '{"a": ' + "9" * 400 + "}"},
        {"operation": "publish", "type": "stage", "name": "..", "batch": 1, "stages": "x"},
        {"operation": "publish", "type": "stage", "name": "n" * 300, "batch": 1, "stages": "x"},
        {"operation": "publish", "type": "stage", "name": "n", "batch": (1 << 63) - 1, "stages": "x"},
        {"operation": "publish", "type": "stage", "name": "n", "batch": 1, "stages": "x" * 300},
        {"operation": "publish", "type": "stage", "name": "n", "batch": 1, "stages": "../" * 30},
        {"operation": "publish", "type": "stage", "name": "n", "batch": 1, "stages": ",".join(["x"] * 50_000)},
        {"operation": "discard", "type": "stage", "name": "..", "batch": 1, "stages": ",".join(["y"] * 50_000)},
        {"operation": "discard", "type": "stage", "name": "\ud7ff\U0010ffff", "batch": 1, "stages": "\x00"},
        {"operation": "ticket", "type": "stage", "name": "n" * 300, "batch": 1, "stage": "s"},
        {"operation": "ticket", "type": "stage", "name": "n", "batch": 1, "stage": "s" * 300},
        {"operation": "open", "type": "assignment", "subscription": "s" * 5000, "address": "a" * 5000},
        {"operation": "create", "name": "\x00" * 3000},
    ],
    ids=lambda arguments: "-".join(f"{key}={value!s:.8}" for key, value in arguments.items()),
)
def test_a_request_is_answered_whatever_it_says(
    arguments: dict[str, object], broker: MeasuredServer, raw: Callable[[], RawPeer], connect: Connect
) -> None:
    peer = connect()
    errors = broker.log.read_text().count("Traceback")
    request(peer, **arguments)
    assert request(peer, operation="read", type="broker")[0] == 200
    assert broker.log.read_text().count("Traceback") == errors


def test_a_sink_and_a_stage_have_no_name_that_leads_out_of_their_directory(
    broker: MeasuredServer, connect: Connect, raw: Callable[[], RawPeer]
) -> None:
    from legato.bulk.stage_files import DIRECTORY, directory_of, path_of

    store = Path("/store")
    for name in ("..", ".", "...", "", "../..", "/etc", "a/../..", "a\x00b", "\\..\\", "~", "-rf", "%2E%2E"):
        assert directory_of(store, name).resolve().parent == store / DIRECTORY
        path = path_of(store, "sink", 7, name)
        assert path.resolve().parent == store / DIRECTORY / "sink"
        assert path.with_suffix(".tmp").parent == path.parent
    assert directory_of(store, "a.sink-1_x") == store / DIRECTORY / "a.sink-1_x"
    assert len({directory_of(store, name) for name in ("..", ".", "...", "a", "a.")}) == 5
    status, _ = request(connect(), operation="discard", type="stage", name="..", batch=7, stages="evil")
    assert status == 200
    assert not list(broker.store.glob("*.stage"))


def test_a_tag_that_is_no_number_is_refused_where_numbers_are_wanted(connect: Connect) -> None:
    peer = connect()
    sender = peer.sender("numbered", properties={"legato:producer-id": "p-1"})
    sender = peer.sender("numbered", properties={names.PRODUCER_ID: "p-1"})
    assert isinstance(peer.send(sender, text(b"a"), tag=b"\xff" * 32), Rejected)
    assert isinstance(peer.send(sender, text(b"a"), tag=(1 << 63).to_bytes(8, "big")), Rejected)
    assert peer.send(sender, text(b"a"), tag=(1).to_bytes(8, "big")) == ACCEPTED


def test_an_unexpected_error_costs_only_the_peer_that_caused_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from legato.server.messages.transfers import Transfers
    from legato.testing.local import broker as local_broker

    transfer = Transfers.transfer

    def failing(self: Transfers, peer: object, event: object, now_us: int) -> None:
        if b"poison" in event.data:  # type: ignore[attr-defined]
            raise RuntimeError("unexpected\nforged line \x1b[31m" + "x" * 100_000)
        transfer(self, peer, event, now_us)  # type: ignore[arg-type]

    with local_broker() as local:
        port = int(local.url.rsplit(":", 1)[1].split("?")[0])
        monkeypatch.setattr(Transfers, "transfer", failing)
        good, bad = AmqpPeer(port, container="good"), AmqpPeer(port, container="bad")
        sender = bad.sender("q")
        sender.send(text(b"before"), b"1", 1)
        sender.send(text(b"poison"), b"2", 2)
        bad.flush()
        from legato.amqp.engine.events import Closed

        assert bad.expect(Closed).condition == "amqp:internal-error"
        round_trip(good)
        receiver = good.receiver("q", 1)
        assert data_of(good.transfer()) == b"before", "what came before in the same read was done"
        receiver.close()
        good.receiver("$status", 1)
        body = decode_message(good.transfer().data).body
        assert isinstance(body, DataBody)
        assert json.loads(body.data)["internal_errors"] == 1


@pytest.mark.parametrize("count", [60_000, 256])
def test_attaches_of_a_hundred_bytes_take_little_memory(
    count: int, broker: MeasuredServer, raw: Callable[[], RawPeer], connect: Connect
) -> None:
    many = Raw(array(0x40, count))
    source = terminus(SOURCE, "q", None, None, None, None, None, None, many)
    round_trip(connect())
    before = broker.rss_anon_bytes()
    for attaches in (
        [receiving(number, "q", properties=many) for number in range(60)],
        [receiving(number, "q", source=source) for number in range(60)],
    ):
        hostile = raw()
        hostile.send(opening(), *attaches)
        hostile.hear_until(b"amqp:resource-limit-exceeded", b"r59")
        round_trip(connect())
    assert broker.rss_anon_bytes() - before < 16 << 20


def test_very_many_attaches_in_one_write_hold_nobody_up(raw: Callable[[], RawPeer], connect: Connect) -> None:
    hostile = raw()
    hostile.send(opening(), *[receiving(number, f"many-{number}") for number in range(2000)])
    round_trip(connect())
    hostile.hear_until(b"r1999")


@pytest.mark.parametrize("same", [True, False], ids=["one-queue", "many-queues"])
def test_very_many_links_that_leave_at_once_hold_nobody_up(
    same: bool, raw: Callable[[], RawPeer], connect: Connect
) -> None:
    hostile = raw()
    hostile.send(opening(), *[receiving(number, "left" if same else f"left-{number}") for number in range(3500)])
    hostile.hear_until(b"r3499")
    hostile.close()
    round_trip(connect())
    peer = connect()
    peer.receiver("left", 1)
    round_trip(peer)


def test_a_larger_frame_than_the_setting_allows_ends_its_connection(tmp_path: Path) -> None:
    from tests.support.server import server

    with server(tmp_path / "store", environment={"LEGATO_SERVER_MAX_FRAME_BYTES": "4096"}) as small:
        peer = AmqpPeer(small.port)
        assert peer.send(peer.sender("q"), text(b"x" * 20_000)) == ACCEPTED
        peer.drop()
        hostile = RawPeer(small.port)
        hostile.send(opening(), sent(0, 0, b"x" * 5000))
        assert b"amqp:connection:framing-error" in hostile.hear_all()
        hostile.close()


def test_symbols_where_texts_are_meant_do_not_end_a_broker(
    broker: MeasuredServer, raw: Callable[[], RawPeer], connect: Connect
) -> None:
    """A symbol is a text of another type: the store has one type of text, and a commit that failed would be the end."""
    symbol = encode_symbol("symbolic")
    body = b"\x00\x53\x75\xa0\x01x"
    named = b"\x00\x53\x73" + encode_compound(
        0xC0, [symbol, b"\x40", symbol, symbol, symbol, symbol, *[b"\x40"] * 4, symbol]
    )
    asking = b"\x00\x53\x74" + encode_compound(
        0xC1, [encode_symbol("operation"), encode_symbol("create"), encode_symbol("name"), encode_symbol("made")]
    )
    for attach in (
        sending(0, "q", properties={names.PRODUCER_ID: Symbol("symbolic")}),
        sending(0, None),
        sending(0, "$management"),
    ):
        for message in (named + body, asking + body, named + asking + body):
            hostile = raw()
            hostile.send(opening(), attach)
            hostile.hear_until(b"\x00\x53\x13")
            hostile.send(sent(0, 1, message))
            hostile.hear_until(b"\x00\x53\x15")
            round_trip(connect())
    assert broker.log.read_text().count("serving stops") == 0
