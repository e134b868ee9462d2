"""Bytes that are not what AMQP allows end one connection, and nothing else."""

from __future__ import annotations

import pytest
from cproton import lib
from hypothesis import example, given, settings
from hypothesis import strategies as st

from legato.amqp.codec.types import Described, Symbol, UInt, ULong
from legato.amqp.codec.values import encode_value
from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import Attached, Closed, Event, SessionBegan
from legato.amqp.engine.link import Receiver
from legato.amqp.engine.settings import Settings
from legato.amqp.engine.terminus import Terminus
from tests.support.examples import examples
from tests.unit.amqp.pair import Pair, of

pytestmark = pytest.mark.usefixtures("either_way")

HEADER = b"AMQP\x00\x01\x00\x00"


def frame(code: int, fields: list[object], channel: int = 0, payload: bytes = b"") -> bytes:
    """A frame of AMQP."""
    body = encode_value(Described(ULong(code), fields)) + payload
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


OPEN = frame(0x10, ["peer"])
BEGIN = frame(0x11, [None, UInt(0), UInt(1000), UInt(1000)])
ATTACH_SENDER = frame(
    0x12,
    ["l", UInt(0), False, None, None, Described(ULong(0x28), []), Described(ULong(0x29), ["q"]), None, None, UInt(0)],
)
ATTACH_RECEIVER = frame(
    0x12, ["r", UInt(1), True, None, None, Described(ULong(0x28), ["q"]), Described(ULong(0x29), [])]
)
FLOW = frame(0x13, [UInt(0), UInt(9), UInt(0), UInt(9), UInt(1), UInt(0), UInt(10)])
TRANSFER = frame(0x14, [UInt(0), UInt(0), b"t", UInt(0), False], payload=b"\x00\x53\x75\xa0\x01x")


def serve(connection: Connection, data: bytes) -> list[Event]:
    """Do what a server does with each event, as long as there are any."""
    events = connection.receive_data(data)
    for event in events:
        if isinstance(event, SessionBegan):
            event.session.open()
        elif isinstance(event, Attached):
            event.link.accept()
            if isinstance(event.link, Receiver):
                event.link.add_credit(5)
            else:
                event.link.send(b"m", b"t")  # type: ignore[attr-defined]
    connection.data_to_send()
    return events


def established() -> Connection:
    """A server with a session and a link in either direction."""
    connection = Connection(server=True, settings=Settings(container_id="server", max_message_bytes=10_000))
    connection.open()
    serve(connection, HEADER + OPEN + BEGIN + ATTACH_SENDER + ATTACH_RECEIVER + FLOW)
    assert not connection.closed
    return connection


def survives(data: bytes) -> list[Event]:
    """Feed `data`, whatever it is; the connection must come to an end in a known way."""
    connection = established()
    events = serve(connection, data)
    events += serve(connection, b"")
    connection.tick(1)
    connection.data_to_send()
    events += connection.receive_eof()
    assert of(events, Closed) == events[-1:]
    assert connection.closed
    connection.free()
    return events


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x03\x01\x00\x00", b"\x00" * 64, b"AMQP\x00\x00\x09\x01", b"\xff" * 9]
)
def test_a_peer_that_does_not_speak_amqp_is_closed(data: bytes) -> None:
    connection = Connection(server=True, settings=Settings(container_id="server"))
    (closed,) = connection.receive_data(data)
    assert isinstance(closed, Closed)
    assert not closed.clean
    connection.data_to_send()
    assert connection.receive_data(HEADER) == []
    connection.free()


def test_an_error_is_told_to_the_peer(pair: Pair) -> None:
    pair.server.receive_data(frame(0x14, [UInt(9), UInt(0), b"t"], channel=7))
    events, _ = pair.exchange()
    (closed,) = of(events, Closed)
    assert closed.condition == "amqp:not-allowed"


@settings(max_examples=examples(150), deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_end_in_closed(data: bytes) -> None:
    survives(data)


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0x10, 0x18), st.binary(max_size=80), st.integers(0, 2))
@example(0x12, b"\x45", 0)
@example(0x14, b"\xc0\x02\x01\x43", 0)
def test_random_performatives_end_in_closed(code: int, rest: bytes, channel: int) -> None:
    body = b"\x00\x53" + bytes((code,)) + rest
    survives((len(body) + 8).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body)


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_valid_frames_with_a_byte_changed_end_in_closed(data: st.DataObject) -> None:
    frames = [
        TRANSFER,
        FLOW,
        frame(0x15, [True, UInt(0), UInt(0), True, Described(ULong(0x34), [b"t", Described(ULong(0x24), [])])]),
        frame(0x15, [True, UInt(0), None, False, Described(ULong(0x25), [Described(ULong(0x1D), [Symbol("a"), "b"])])]),
        frame(0x12, ["z", UInt(2), True, None, None, Described(ULong(0x28), ["q"]), Described(ULong(0x29), [])]),
        frame(0x16, [UInt(0), True]),
    ]
    stream = bytearray(b"".join(data.draw(st.permutations(frames))))
    for _ in range(data.draw(st.integers(0, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    survives(bytes(stream))


def test_a_transfer_to_a_link_that_sends_ends_the_connection() -> None:
    events = survives(frame(0x14, [UInt(1), UInt(0), b"t", UInt(0), False], payload=b"x"))
    assert [event.condition for event in of(events, Closed)] == ["amqp:not-allowed"]


@pytest.mark.parametrize(
    "data",
    [
        frame(0x12, ["x", UInt(5), False, None, None, None, Described(ULong(0x29), [b"?"])]).replace(
            b"\xa0\x01?", b"\xa1\x01\xff"
        ),
        frame(0x12, ["@", UInt(5), False]).replace(b"\xa1\x01@", b"\xa1\x01\xff"),
        frame(0x16, [UInt(0), True, Described(ULong(0x1D), [Symbol("a:b"), "@"])]).replace(
            b"\xa1\x01@", b"\xa1\x01\xff"
        ),
        frame(0x17, [Described(ULong(0x1D), [Symbol("a:b"), "@"])]).replace(b"\xa1\x01@", b"\xa1\x01\xff"),
        frame(
            0x12,
            ["x", UInt(5), False, None, None, None, Described(ULong(0x29), ["q"])] + [None] * 6 + [{Symbol("k"): "@"}],
        ).replace(b"\xa1\x01@", b"\xa1\x01\xff"),
    ],
    ids=["address", "name", "link condition", "session condition", "property"],
)
def test_text_that_is_not_utf8_is_a_decode_error(data: bytes) -> None:
    (closed,) = survives(data)[-1:]
    assert isinstance(closed, Closed)
    assert (closed.condition, closed.clean) == ("amqp:decode-error", False)


def test_a_container_id_that_is_not_utf8_is_a_decode_error() -> None:
    connection = Connection(server=True, settings=Settings(container_id="server"))
    (closed,) = connection.receive_data(HEADER + OPEN.replace(b"peer", b"\xffeer"))
    assert isinstance(closed, Closed)
    assert closed.condition == "amqp:decode-error"
    assert b"amqp:decode-error" in connection.data_to_send()
    connection.free()


def test_a_transactional_state_without_its_id_is_a_decode_error() -> None:
    events = survives(frame(0x15, [True, UInt(0), None, True, Described(ULong(0x34), [])]))
    assert of(events, Closed)[0].condition == "amqp:decode-error"


def test_nesting_without_end_is_a_decode_error() -> None:
    value: object = "x"
    for _ in range(100):
        value = [value]
    fields = (
        ["x", UInt(5), False, None, None, None, Described(ULong(0x29), ["q"])] + [None] * 6 + [{Symbol("k"): value}]
    )
    events = survives(frame(0x12, fields))
    assert of(events, Closed)[0].condition == "amqp:decode-error"


def test_other_connections_do_not_notice(pair: Pair) -> None:
    sender, _ = pair.outgoing()
    survives(b"\xff" * 100)
    sender.send(b"m", b"t")
    assert len(pair.exchange()[1]) == 1


def test_a_frame_larger_than_agreed_ends_the_connection() -> None:
    pair = Pair(server={"max_frame_bytes": 1024}).opened()
    lib.pn_transport_set_max_frame(pair.client._transport, 1 << 20)
    pair.server.receive_data((5000).to_bytes(4, "big") + b"\x02\x00\x00\x00" + bytes(4992))
    assert pair.server.closed
    pair.free()


def test_a_stream_may_be_cut_anywhere(pair: Pair) -> None:
    session, _ = pair.session()
    sender = session.sender("s", target=Terminus(address="q"))
    events: list[Event] = []
    for byte in pair.client.data_to_send():
        events += pair.server.receive_data(bytes((byte,)))
    assert [type(event) for event in events] == [Attached]
    assert not sender.closed


def test_a_second_open_ends_the_connection() -> None:
    assert of(survives(OPEN), Closed)[0].condition == "amqp:not-allowed"


def test_an_attach_without_a_name_ends_its_session() -> None:
    """AMQP 2.7.3: the name is mandatory; it was answered with a frame that has none either."""
    connection = established()
    nameless = frame(0x12, [None, UInt(7), False, None, None, None, Described(ULong(0x29), ["q"])])
    assert connection.receive_data(nameless) == []
    assert b"amqp:decode-error" in connection.data_to_send()
    assert not connection.closed
    connection.free()


def test_an_open_without_a_container_id_is_refused() -> None:
    """AMQP 2.7.1."""
    connection = Connection(server=True, settings=Settings(container_id="server"))
    events = connection.receive_data(HEADER + frame(0x10, [None]))
    assert [(event.condition, event.clean) for event in of(events, Closed)] == [("amqp:decode-error", False)]
    assert b"amqp:decode-error" in connection.data_to_send()
    connection.free()
