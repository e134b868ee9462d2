"""The engine gets no frame that it would keep too much of (SECURITY finding 9)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato import limits
from legato.amqp.codec.types import Array, ULong
from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import Attached, Closed, Event, SessionBegan
from legato.amqp.engine.gate import EMPTY_ELEMENTS_MAX, Gate, Look
from legato.amqp.engine.settings import Settings
from legato.client.links.receiver_end import HELD_MAX
from tests.support.raw import (
    DISPOSITION,
    OPEN,
    TRANSFER,
    Raw,
    credit,
    encoded,
    frame,
    framed,
    opening,
    receiving,
    selecting,
    sending,
    sent,
    terminus,
)
from tests.unit.amqp.test_bombs import array, bomb, described
from tests.unit.amqp.test_codec import values

pytestmark = pytest.mark.usefixtures("either_way")

GOOD = (
    opening()[8:]
    + receiving(0, "q")
    + sending(1, "r")
    + credit(0, 10)
    + sent(1, 0, b"\x00\x53\x75\xa0\x01x")
    + framed(b"")
    + receiving(2, "q", source=terminus(0x28, "q", None, None, None, None, None, None, selecting("a = 1")))
)


def both() -> tuple[Gate, Gate]:
    """One that looks by the compiled module, one by Python."""
    compiled, plain = Gate(1 << 18), Gate(1 << 18)
    plain._inspector = None
    return compiled, plain


def look_at(gate: Gate, data: bytes, pieces: list[int]) -> list[tuple[int, Look]]:
    """What is said of data that comes in pieces of these sizes."""
    said, held, at = [], b"", 0
    for size in [*pieces, len(data)]:
        held, at = held + data[at : at + size], at + size
        end, look = gate.admit(held, 0, 1 << 30)
        said.append((end, look))
        if look.error is not None:
            break
        held = held[end:]
    return said


def test_good_frames_pass_however_they_come() -> None:
    for size in (1, 3, 7, 50, 5000):
        for gate in both():
            pieces = [size] * (len(GOOD) // size)
            said = look_at(gate, GOOD, pieces)
            assert all(look in (Look.FINE, Look.UNFINISHED) for _, look in said)
            assert sum(end for end, _ in said) == len(GOOD)


@given(values, st.integers(0, 2**32))
def test_what_can_be_encoded_passes(value: object, seed: int) -> None:
    data = frame(OPEN, ["me", None, value, value])
    random = Random(seed)
    for gate in both():
        said = look_at(gate, data, [random.randrange(1, 20) for _ in range(10)])
        assert sum(end for end, _ in said) == len(data)


@given(st.integers(0, 2**32))
def test_both_ways_of_looking_say_the_same_of_anything(seed: int) -> None:
    random = Random(seed)
    data = bytearray(GOOD)
    for _ in range(random.randrange(1, 6)):
        data[random.randrange(len(data))] = random.choice([0, 1, 0x40, 0x45, 0x80, 0xC0, 0xD0, 0xE0, 0xF0, 0xFF])
    pieces = [random.randrange(1, 200) for _ in range(8)]
    compiled, plain = both()
    said, plainly = look_at(compiled, bytes(data), pieces), look_at(plain, bytes(data), pieces)
    if said[-1][1] is Look.MALFORMED:
        # In the fields of a plain transfer Python leaves that to the engine, which keeps nothing of it.
        assert plainly[: len(said) - 1] == said[:-1]
    else:
        assert said == plainly
        assert compiled._skip == plain._skip


HUGE = Raw(array(0x40, 60_000))
BOMBS = {
    "link properties": receiving(0, "q", properties=HUGE),
    "filter": receiving(0, "q", source=terminus(0x28, "q", None, None, None, None, None, None, HUGE)),
    "node properties": sending(0, None, target=terminus(0x29, None, None, None, None, True, HUGE)),
    "capabilities": sending(0, "q", target=terminus(0x29, "q", None, None, None, None, None, HUGE)),
    "unsettled": receiving(0, "q", source=terminus(0x28, "q", None, None, None, None, None, None, None, None, HUGE)),
    "open": frame(OPEN, ["me", None, None, None, None, None, None, None, None, HUGE]),
    "state of a transfer": sent(0, 0, b"", state=Raw(b"\x00\x53\x34" + HUGE)),
    "state of a disposition": frame(DISPOSITION, [True, 0, 0, True, Raw(b"\x00\x53\x25" + bomb(3))]),
    "nested": receiving(0, "q", properties=Raw(bomb(2000, 200))),
    "list": receiving(0, "q", properties=Raw(encoded([None] * (limits.FRAME_ELEMENTS_MAX + 1)))),
    "deep": receiving(0, "q", properties=Raw(described(300))),
}


@pytest.mark.parametrize("hostile", BOMBS.values(), ids=BOMBS)
def test_a_frame_with_too_many_elements_ends_its_connection_before_the_engine_sees_it(hostile: bytes) -> None:
    for gate in both():
        assert look_at(gate, hostile, [])[0][1].error is not None
    connection = Connection(server=True, settings=Settings(container_id="server"), rare_events_max=64)
    data = opening() if not hostile.startswith(frame(OPEN, [])[:4]) else b"AMQP\x00\x01\x00\x00"
    events: list[Event] = connection.receive_data(data + hostile)
    while connection.has_more:
        events += connection.receive_data(b"")
    closed = [event for event in events if isinstance(event, Closed)]
    assert closed[0].condition in ("amqp:resource-limit-exceeded", "amqp:decode-error")
    assert not [event for event in events if isinstance(event, Attached)]
    connection.free()


def test_what_a_client_claims_when_it_comes_back_passes() -> None:
    held = {"legato:held": Array([ULong((1 << 40) + number) for number in range(HELD_MAX)])}
    data = receiving(0, "q", properties=held)
    for gate in both():
        assert look_at(gate, data, []) == [(len(data), Look.FINE)]


def test_elements_without_bytes_are_legal_up_to_a_bound() -> None:
    for count, fine in ((EMPTY_ELEMENTS_MAX, True), (EMPTY_ELEMENTS_MAX + 1, False)):
        for gate in both():
            look = look_at(gate, receiving(0, "q", properties=Raw(array(0x41, count))), [])
            assert (look[0][1] is Look.FINE) is fine


def test_many_attaches_come_out_in_slices_and_in_order() -> None:
    connection = Connection(server=True, settings=Settings(container_id="server"), rare_events_max=16)
    data = opening() + b"".join(receiving(number, f"q{number}") for number in range(300))
    calls, attached = [connection.receive_data(data)], []
    while connection.has_more:
        calls.append(connection.receive_data(b""))
    for events in calls:
        assert len(events) <= 16
        for event in events:
            if isinstance(event, SessionBegan):
                event.session.open()
            elif isinstance(event, Attached):
                attached.append(event.link.name)
    assert attached == [f"r{number}" for number in range(300)]
    connection.free()


def test_a_transfer_is_looked_at_without_its_message() -> None:
    data = frame(TRANSFER, [0, 0, b"t"], b"\xf0\xff\xff\xff\xff" * 100)
    for gate in both():
        assert look_at(gate, data, [30] * 10)[-1][1] is not Look.TOO_MUCH
