"""What the engine tolerates, ignores, or takes for the end of a connection (AMQP 2.3, 2.7)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from legato.amqp.codec.types import Described, Symbol, UInt
from legato.amqp.codec.values import decode_value, encode_value
from legato.amqp.engine import batch, frames
from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import Attached, Closed, Event, SessionBegan, Transfer
from legato.amqp.engine.frames import Broken, Echo, Errant, Frames
from legato.amqp.engine.link import Receiver
from legato.amqp.engine.settings import Settings
from tests.support.examples import examples
from tests.unit.amqp.pair import of
from tests.unit.amqp.test_hostile import (
    ATTACH_RECEIVER,
    ATTACH_SENDER,
    BEGIN,
    FLOW,
    HEADER,
    OPEN,
    TRANSFER,
    established,
    frame,
    serve,
)

FRAME_BYTES_MAX = 1 << 16
EMPTY = b"\x00\x00\x00\x08\x02\x00\x00\x00"
DISPOSITION = frame(0x15, [True, UInt(0), UInt(0), True])
DETACH = frame(0x16, [UInt(0), True])
END = frame(0x17, [])
UNATTACHED = "amqp:session:unattached-handle"


def flow(*, handle: int | None = None, echo: bool = False, **fields: None) -> bytes:
    """A flow, of a link or of the session."""
    windows = [fields.get(name, UInt(9)) for name in ("incoming_window", "next_outgoing_id", "outgoing_window")]
    link = [None] * 3 if handle is None else [UInt(handle), UInt(0), UInt(10)]
    return frame(0x13, [UInt(0), *windows, *link, None, None, echo])


def symbolic(data: bytes, name: str) -> bytes:
    """The same frame with a symbol for its descriptor."""
    value, _ = decode_value(data, 8)
    body = encode_value(Described(Symbol(name), value.value))
    return (len(body) + 8).to_bytes(4, "big") + data[4:8] + body


def performatives(data: bytes) -> list[tuple[int, list[object]]]:
    """Code and fields of each frame."""
    found, at = [], 0
    if data.startswith(b"AMQP"):
        at = 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if size > 8:
            value, _ = decode_value(data, at + 8)
            found.append((int(value.descriptor), value.value))
        at += size
    return found


USUAL = [OPEN, BEGIN, ATTACH_SENDER, ATTACH_RECEIVER, FLOW, TRANSFER, TRANSFER, EMPTY, DISPOSITION, DETACH, EMPTY, END]


@given(st.lists(st.integers(0, sum(map(len, USUAL))), max_size=8))
def test_frames_that_are_in_order_are_passed_on_byte_by_byte(places: list[int]) -> None:
    """However they are cut on their way."""
    data = b"".join(USUAL)
    frames = Frames(FRAME_BYTES_MAX)
    borders = [0, *sorted(places), len(data)]
    passed = b""
    for begin, end in pairwise(borders):
        for piece in frames.cut(data[begin:end]):
            assert isinstance(piece, bytes)
            passed += piece
    assert passed == data
    assert list(frames.begun) == [0]


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=3))
def test_what_is_no_frame_is_left_to_the_engine(data: bytes, places: list[int]) -> None:
    frames = Frames(FRAME_BYTES_MAX)
    borders = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    for begin, end in pairwise(borders):
        frames.cut(data[begin:end])


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (frame(0x10, [None]), Broken),
        (frame(0x10, []), Broken),
        (frame(0x10, ["c", None, UInt(511)]), Broken),
        (symbolic(frame(0x10, [None]), "amqp:open:list"), Broken),
        (frame(0x11, [None, None, UInt(1), UInt(1)]), Broken),
        (OPEN + BEGIN + frame(0x12, ["n", None, False]), Errant),
        (OPEN + BEGIN + frame(0x12, ["n", UInt(0), None]), Errant),
        (OPEN + BEGIN + flow(incoming_window=None), Errant),
        (OPEN + BEGIN + flow(next_outgoing_id=None), Errant),
        (OPEN + BEGIN + frame(0x16, []), Errant),
        (OPEN + BEGIN + flow(handle=3), Errant),
        (OPEN + BEGIN + ATTACH_SENDER + DETACH + flow(handle=0), Errant),
        (OPEN + BEGIN + ATTACH_SENDER + DETACH + DETACH, Errant),
        (OPEN + BEGIN + ATTACH_SENDER + flow(handle=0, echo=True), Echo),
    ],
)
def test_what_the_engine_would_tolerate_is_found(data: bytes, found: type) -> None:
    """AMQP 2.7.1-2.7.7: mandatory fields, the least frame size; 2.7.4, 2.8.17: handles, echo."""
    pieces = Frames(FRAME_BYTES_MAX).cut(data)
    assert [type(piece) for piece in pieces if not isinstance(piece, bytes)] == [found]


def test_the_least_frame_size_may_be_asked_for() -> None:
    data = frame(0x10, ["c", None, UInt(512)])
    assert Frames(FRAME_BYTES_MAX).cut(data) == [data]


_UINTS = [b"\x43", b"\x52\x00", b"\x52\x05", b"\x70\x00\x00\x00\x00", b"\x70\x00\x00\x00\x05"]
_FLAGS = [b"\x40", b"\x41", b"\x42", b"\x56\x00", b"\x56\x01", b"\x56\x02"]
_OTHERS = [b"\x44", b"\xa3\x01a", b"\x60\x00\x01", b"\xc0\x01\x00", b"\x00\x43\x43"]
_NUMBERS = st.sampled_from([*_UINTS, b"\x40"])


@example([b"\x43", b"\x43", b"\x43", b"\x56\x02", b"\x52\x05"], b"", 0, 0)
@given(
    st.one_of(
        st.lists(st.sampled_from([*_UINTS, *_FLAGS, *_OTHERS]), max_size=12),
        st.tuples(*[_NUMBERS] * 8, *[st.sampled_from(_FLAGS)] * 2),
    ),
    st.sampled_from([b"", b"", b"", b"\x40", b"x"]),
    st.sampled_from([0, 0, 0, 0, -1, 1, 5]),
    st.sampled_from([0, 0, 0, 0, -1, 1]),
)
def test_a_flow_is_understood_alike_whether_it_is_written_as_usual_or_not(
    fields: tuple[bytes, ...] | list[bytes], behind: bytes, more: int, longer: int
) -> None:
    """What nearly all flows look like is read without a decoder; that must not change what is found."""
    body = b"".join(fields)
    count, size = max(0, len(fields) + more), max(0, len(body) + 1 + longer)
    flow_frame = b"\x02\x00\x00\x00\x00\x53\x13\xc0%c%c%b%b" % (size, count, body, behind)
    data = OPEN + BEGIN + ATTACH_SENDER + (len(flow_frame) + 4).to_bytes(4, "big") + flow_frame
    found = []
    ways = [(frames._usual_flow, batch.inspects), (frames._usual_flow, False), (lambda data, at, end: None, False)]
    for read, inspects in ways:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(frames, "_usual_flow", read)
            patch.setattr(batch, "inspects", inspects)
            found.append([piece for piece in Frames(FRAME_BYTES_MAX).cut(data) if not isinstance(piece, bytes)])
    assert found[0] == found[1] == found[2]


FLOW_FIELDS = st.one_of(
    st.sampled_from([None, True, False, UInt(0), UInt(1), UInt(7), UInt(300)]), st.integers(0, (1 << 32) - 1).map(UInt)
)


@st.composite
def flows_and_others(draw: st.DrawFn) -> list[bytes]:
    """What a peer sends in two sessions, most of it flows, some of that not as it should be; as its pieces arrive."""
    data = BEGIN + ATTACH_SENDER + ATTACH_RECEIVER + frame(0x11, [None, UInt(0), UInt(9), UInt(9)], 1)
    for _ in range(draw(st.integers(1, 20))):
        kind, channel = draw(st.integers(0, 9)), draw(st.sampled_from([0, 0, 0, 0, 1, 2]))
        if kind < 4:
            windows, handle = [UInt(0), *[UInt(9)] * 3], draw(st.sampled_from([None, UInt(0), UInt(1), UInt(2)]))
            echo = draw(st.sampled_from([None, False, False, True]))
            written: list[object] = [*windows, handle, UInt(0), UInt(10), None, None, echo]
            data += frame(0x13, written[: draw(st.sampled_from([10, 10, 10, 7, 4]))], channel)
        elif kind < 7:
            fields: list[object] = [*draw(st.lists(FLOW_FIELDS, max_size=12))]
            flow_of = bytearray(frame(0x13, fields, channel))
            for _ in range(draw(st.integers(0, 2))):
                at = draw(st.integers(4, len(flow_of) - 1))
                flow_of[at] = draw(st.sampled_from([0, 1, 2, 0x40, 0x41, 0x43, 0x52, 0x56, 0x70, 0x80, 0xC0, 0xFF]))
            data += flow_of
        else:
            attach = [str(draw(st.integers(0, 3))), UInt(draw(st.integers(0, 3))), draw(st.booleans())]
            others = [EMPTY, TRANSFER, DISPOSITION, DETACH, frame(0x12, attach, channel), frame(0x17, [], channel)]
            data += draw(st.sampled_from([*others, frame(0x11, [None, UInt(0), UInt(9), UInt(9)], channel)]))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    return [data[begin:end] for begin, end in pairwise((0, *cuts, len(data)))]


@pytest.mark.skipif(not batch.steps_over_flows, reason="the module was not compiled, or earlier, or is forbidden")
@settings(max_examples=examples(300), deadline=None)
@given(flows_and_others())
def test_the_compiled_module_finds_what_is_found_without_it(pieces: list[bytes]) -> None:
    def found(*, compiled: bool) -> list[object]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batch, "inspects", compiled)
            looking = Frames(FRAME_BYTES_MAX)
            cut: list[object] = [looking.cut(piece) for piece in pieces]
            return [*cut, looking.begun, looking._links, looking._numbers, looking._held, looking._skip]

    assert found(compiled=True) == found(compiled=False)


@pytest.mark.skipif(not batch.steps_over_flows, reason="the module was not compiled, or earlier, or is forbidden")
def test_flows_of_known_links_are_stepped_over_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    looking = Frames(FRAME_BYTES_MAX)
    looking.cut(BEGIN + ATTACH_SENDER + ATTACH_RECEIVER)
    looked: list[int] = []
    monkeypatch.setattr(Frames, "_look", lambda _self, _data, at, _end, _channel: looked.append(at))
    data = (flow(handle=0) + flow(handle=1) + flow() + TRANSFER) * 5
    assert looking.cut(data + flow(handle=2)) == [data + flow(handle=2)]
    assert looked == [len(data) + 8]


def test_a_usual_flow_needs_no_decoder() -> None:
    """Else what is read in another way than the others is never read in that way."""
    for handle, echo in ((None, False), (0, False), (7, True), (300, False)):
        data = flow(handle=handle, echo=echo)
        assert frames._usual_flow(data, 8, len(data)) == (handle, echo)


def opened() -> Connection:
    connection = Connection(server=True, settings=Settings(container_id="server"))
    connection.open()
    return connection


@pytest.mark.parametrize("data", [frame(0x10, ["c", None, UInt(100)]), OPEN + frame(0x11, [None, None, None, None])])
def test_a_connection_that_breaks_the_rules_is_closed_with_the_reason(data: bytes) -> None:
    connection = Connection(server=True, settings=Settings(container_id="server"))
    events = serve(connection, HEADER + data)
    (closed,) = of(events, Closed)
    assert closed.condition in ("amqp:invalid-field", "amqp:decode-error")
    assert not closed.clean
    assert connection.closed
    connection.free()


@pytest.mark.parametrize("data", [flow(handle=7), frame(0x16, [UInt(7), True])])
def test_an_unknown_handle_ends_its_session_and_not_the_connection(data: bytes) -> None:
    """AMQP 2.7.4: "the recipient MUST respond by ending the session with an unattached-handle session error"."""
    connection = established()
    assert connection.receive_data(data) == []
    ended = [fields for code, fields in performatives(connection.data_to_send()) if code == 0x17]
    assert len(ended) == 1
    assert ended[0][0].value[0] == UNATTACHED  # type: ignore[attr-defined]
    assert not connection.closed
    # What the peer sends until it hears of that is of no use, and does no harm.
    assert of(connection.receive_data(data + TRANSFER + FLOW), Closed) == []
    connection.free()


def test_a_session_is_ended_that_was_begun_in_the_same_breath() -> None:
    connection = opened()
    events = connection.receive_data(HEADER + OPEN + BEGIN + flow(handle=1))
    assert [type(event) for event in of(events, SessionBegan)] == [SessionBegan]
    assert [code for code, _ in performatives(connection.data_to_send())] == [0x10, 0x11, 0x17]
    connection.free()


def test_a_flow_that_asks_for_the_sessions_state_is_answered() -> None:
    """AMQP 2.7.4, echo."""
    connection = established()
    connection.receive_data(flow(echo=True))
    (answer,) = performatives(connection.data_to_send())
    code, fields = answer
    assert code == 0x13
    assert len(fields) <= 4 or fields[4] is None
    assert not (len(fields) > 9 and fields[9])
    assert connection.data_to_send() == b""
    connection.free()


def test_a_flow_that_asks_for_the_state_of_a_link_that_sends_to_us_is_answered() -> None:
    connection = established()
    connection.receive_data(flow(handle=0, echo=True))
    (answer,) = performatives(connection.data_to_send())
    code, fields = answer
    assert (code, fields[4], fields[6]) == (0x13, 0, 5)
    connection.free()


def test_a_flow_that_asks_for_nothing_is_not_answered() -> None:
    connection = established()
    connection.receive_data(flow() + flow(handle=0))
    assert connection.data_to_send() == b""
    connection.free()


def test_many_flows_that_ask_are_answered_once() -> None:
    connection = established()
    connection.receive_data(flow(echo=True) * 1000)
    assert len(performatives(connection.data_to_send())) == 1
    connection.free()


def test_messages_come_through_however_they_are_cut() -> None:
    connection = opened()
    sent = b"".join(
        frame(0x14, [UInt(0), UInt(number), b"t", UInt(0), False], payload=b"\x00\x53\x75\xa0\x01x")
        for number in range(3)
    )
    data = HEADER + OPEN + BEGIN + ATTACH_SENDER + sent
    events: list[Event] = []
    for at in range(0, len(data), 7):
        for event in connection.receive_data(data[at : at + 7]):
            events.append(event)
            if isinstance(event, SessionBegan):
                event.session.open()
            elif isinstance(event, Attached):
                assert isinstance(event.link, Receiver)
                event.link.accept()
                event.link.add_credit(5)
        connection.data_to_send()
    assert len(of(events, Transfer)) == 3
    connection.free()
