"""One conversation with and without bodies that pass the engine by: the same is told and written, to the byte."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato import limits
from legato.amqp.codec.types import Described, UInt, ULong
from legato.amqp.codec.values import decode_value, encode_value
from legato.amqp.engine import batch, bypass
from legato.amqp.engine import sender as senders
from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import Attached, Detached, Event, SessionBegan, SessionEnded
from legato.amqp.engine.link import Link, Receiver, Sender, Session
from legato.amqp.engine.outcomes import ACCEPTED, DELIVERY_FAILED, RELEASED, Rejected, Transactional
from legato.amqp.engine.settings import Settings
from tests.support.examples import examples
from tests.unit.amqp.test_batch import STATES, held, plain, taken_apart, unsettled
from tests.unit.amqp.test_hostile import HEADER, frame

pytestmark = pytest.mark.skipif(not batch.bypasses, reason="the module was not compiled, is forbidden, or of before")

TOKEN_BYTES = 32
LARGE_BYTES = 9_000
OUTCOMES = [ACCEPTED, ACCEPTED, RELEASED, DELIVERY_FAILED, Rejected("a:b", "no"), Transactional(b"t", ACCEPTED)]


class Peer:
    """What the other side may say: mostly what it should, at times anything."""

    def __init__(self, source: random.Random, frame_bytes_max: int) -> None:
        self.source = source
        self.frame_bytes_max = frame_bytes_max
        self.wild = source.choice([0, 0, 0, 0.02, 0.1])
        self.small_frame_bytes = source.choice([512, 1024, 2048 + source.randrange(900), 1 << 20, (1 << 32) - 1])
        self.next_ids: Counter[int] = Counter()
        self.received: Counter[int] = Counter()
        self.link_received: Counter[tuple[int, int]] = Counter()
        self.begun: dict[tuple[int, int], int] = {}
        """Deliveries of which more is to come, by channel and handle: their number."""
        self.attached = 0

    def beginning(self) -> bytes:
        """Two sessions with two links each way."""
        data = HEADER + frame(0x10, ["peer", None, UInt(self.small_frame_bytes)])
        for channel in (0, 1):
            window = self.source.choice([0, 2, 5, 1000])
            data += frame(0x11, [None, UInt(0), UInt(window), UInt(1000)], channel)
            for handle in range(4):
                data += self.attach(handle, channel)
        return data

    def attach(self, handle: int, channel: int) -> bytes:
        """A link, over which we send if its handle is even."""
        self.attached += 1
        is_sender = handle % 2 == 0
        source, target = Described(ULong(0x28), ["q"]), Described(ULong(0x29), ["q"])
        name = f"{channel}-{handle}-{self.attached}"
        return frame(
            0x12,
            [name, UInt(handle), not is_sender, None, None, source, target, None, None, UInt(0) if is_sender else None],
            channel,
        )

    def body(self) -> bytes:
        """Bytes of a message: at times some that look like frames, or like what stands for a body."""
        source = self.source
        size = source.choice(
            [0, 1, 31, 32, 33, 64, 100, 511, 512, 513, 2047, 2048, 2049, 3000, 4096, self.frame_bytes_max - 60]
        )
        if self.frame_bytes_max > 20_000 and source.random() < 0.1:
            size = source.choice([16_384, 65_536, self.frame_bytes_max])
        data = source.randbytes(min(size, self.frame_bytes_max))
        kind = source.random()
        if kind < 0.1:
            inner = frame(0x14, [UInt(0), UInt(0), b"t", UInt(0), False], payload=data[: size // 2])
            data = (data[: size // 4] + inner)[: self.frame_bytes_max]
        elif kind < 0.15:
            data = bytes(len(data))
        return data

    def transfer(self) -> bytes:
        """One frame of a message, or all of them."""
        source = self.source
        channel, handle = source.choice([0, 0, 0, 1]), source.choice([0, 0, 0, 0, 2])
        if source.random() < self.wild:
            channel, handle = source.choice([0, 1, 5]), source.choice([0, 1, 3, 9])
        key = (channel, handle)
        more = source.random() < 0.12
        aborted = not more and source.random() < (0.2 if key in self.begun else 0.02)
        state: Any = source.choice(STATES) if source.random() < 0.2 else None
        if source.random() < 0.02:
            state = Described(ULong(0x34), [b"t" * source.choice([32, 200])])
        goes_on = key in self.begun
        number = self.begun[key] if goes_on else self.next_ids[channel]
        tag = source.choice([number.to_bytes(8, "big"), number.to_bytes(8, "big"), b"t", b"x" * 32, b"", b"y" * 33])
        if source.random() > 0.02:
            tag = tag[:32]
        fields: list[Any] = [
            UInt(handle),
            None if goes_on and source.random() < 0.3 else UInt(number),
            None if goes_on and source.random() < 0.5 else tag,
            source.choice([UInt(0), None, UInt(300)]),
            source.choice([False, False, None, True]),
            more,
            source.choice([None, None, None]),
            state,
            source.choice([False, None, None, None, True]) if source.random() < 0.1 else None,
            aborted,
            source.choice([None, True, False]),
        ]
        if source.random() < self.wild:
            fields[source.randrange(len(fields))] = source.choice([None, True, UInt(7), "text", [], b"b", 1.5])
        while fields and fields[-1] in (None, False) and source.random() < 0.5:
            fields.pop()
        if goes_on and not more:
            del self.begun[key]
        elif more:
            self.begun[key] = number
        if not goes_on:
            self.next_ids[channel] += 1
        return self.framed(fields, channel, self.body())

    def framed(self, fields: list[Any], channel: int, body: bytes) -> bytes:
        """A transfer, written in one of the ways that there are."""
        source = self.source
        performative = encode_value(Described(ULong(0x14), fields))
        way = source.random()
        if way < 0.03 and performative[3:4] == b"\xc0":
            size, count = performative[4] + 3, performative[5]
            performative = (
                performative[:3] + b"\xd0" + size.to_bytes(4, "big") + count.to_bytes(4, "big") + performative[6:]
            )
        elif way < 0.06:
            performative = b"\x00\x80" + (0x14).to_bytes(8, "big") + performative[3:]
        elif way < 0.08:
            performative = b"\x00\xa3\x12amqp:transfer:list" + performative[3:]
        more_header = source.choice([1, 2, 5]) if source.random() < 0.04 else 0
        body = body[: max(0, self.frame_bytes_max - 8 - 4 * more_header - len(performative))]
        size = 8 + 4 * more_header + len(performative) + len(body)
        if source.random() < self.wild / 4:
            size = source.choice([0, 4, 7, 8, 9, 13, size - 1, size + 1, size + 2000, 1 << 31, (1 << 32) - 1])
        header = size.to_bytes(4, "big") + bytes((2 + more_header, 0)) + channel.to_bytes(2, "big")
        return header + bytes(4 * more_header) + performative + body

    def flow(self) -> bytes:
        """Room and credit."""
        source = self.source
        channel, handle = source.choice([0, 1]), source.choice([1, 3])
        window, credit = source.choice([0, 1, 3, 10, 1000]), source.choice([0, 1, 5, 1000])
        count = self.link_received[channel, handle]
        fields = [UInt(self.received[channel]), UInt(window), UInt(0), UInt(1000), UInt(handle), UInt(count)]
        return frame(0x13, [*fields, UInt(credit), None, source.random() < 0.05, source.random() < 0.1], channel)

    def disposition(self) -> bytes:
        """An outcome."""
        source = self.source
        first = source.randrange(30)
        state = source.choice(STATES)
        last = UInt(first + source.randrange(8))
        return frame(
            0x15, [source.random() < 0.8, UInt(first), last, source.random() < 0.6, state], source.choice([0, 1])
        )

    def rare(self) -> bytes:
        """What ends and begins links and sessions; nothing more is heard of what was begun on them."""
        source = self.source
        channel, handle = source.choice([0, 1, 1]), source.randrange(4)
        kind = source.randrange(6)
        if kind <= 2:
            self.begun.pop((channel, handle), None)
            return frame(0x16, [UInt(handle), source.random() < 0.8], channel)
        if kind <= 4:
            return self.attach(source.choice([0, 1, 2, 3, 6, 7]), channel)
        if source.random() < 0.5:
            return bytes.fromhex("0000000802000000")
        for key in [key for key in self.begun if key[0] == channel]:
            del self.begun[key]
        return frame(0x17, [], channel)

    def says(self) -> bytes:
        """Some frames."""
        source = self.source
        data = b""
        for _ in range(source.randrange(1, 12)):
            kind = source.random()
            if kind < 0.72:
                data += self.transfer()
            elif kind < 0.86:
                data += self.flow()
            elif kind < 0.96:
                data += self.disposition()
            elif kind < 0.97 or self.wild:
                data += self.rare()
        if source.random() < self.wild / 3 and data:
            changed = bytearray(data)
            changed[source.randrange(len(data))] = source.randrange(256)
            data = bytes(changed)
        return data

    def heard(self, data: bytes) -> None:
        """Count the transfers that came."""
        at = 8 if data.startswith(b"AMQP") else 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            assert size <= max(self.small_frame_bytes, 512)
            if size > 8:
                channel = int.from_bytes(data[at + 6 : at + 8], "big")
                value, _ = decode_value(data, at + 8)
                if value.descriptor == 0x14:
                    self.received[channel] += 1
                    if not (len(value.value) > 5 and value.value[5]):
                        self.link_received[channel, int(value.value[0])] += 1
            at += size
        assert at == len(data)


class Side:
    """A server, and what it is told to do."""

    def __init__(self, *, apart: bool, batched: bool, plan: dict[str, Any], limits_: dict[str, Any]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batch, "available", batched)
            patch.setattr(batch, "bypasses", apart)
            self.connection = Connection(
                server=True,
                settings=Settings(container_id="server", **limits_),
                rare_events_max=plan["rare_events_max"],
            )
        self.connection.remembers_ended_links = plan["remembers"]
        self.connection.open()
        self.plan = plan
        self.links: list[Link] = []
        self.sessions: list[Session] = []
        self.tag = 0
        self.log: list[Any] = []

    def receive(self, data: bytes) -> None:
        """Handle what came as a shell would."""
        events = self.connection.receive_data(data)
        self._handle(events)

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            self.log += map(plain, taken_apart(event))
        for event in events:
            if isinstance(event, SessionBegan):
                event.session.open()
                self.sessions.append(event.session)
            elif isinstance(event, Attached):
                self.links.append(event.link)
                event.link.accept()
                if isinstance(event.link, Receiver):
                    event.link.takes_runs = self.plan["takes_runs"]
                    event.link.reads_tags = self.plan["reads_tags"]
                    event.link.streams = self.plan["streams"]
                    event.link.add_credit(self.plan["credit"])
            elif isinstance(event, Detached):
                if event.closed or self.plan["remembers"]:
                    event.link.close()
                else:
                    event.link.suspend()
            elif isinstance(event, SessionEnded):
                event.session.close()

    def do(self, kind: str, number: int, source: random.Random) -> None:
        """One thing that a shell does."""
        of_kind: list[Any] = [
            link
            for link in self.links
            if isinstance(link, Sender if kind in ("send", "confirm", "begin", "push", "finish") else Receiver)
            and not link.closed
        ]
        if kind == "send" and of_kind:
            self._send(of_kind[number % len(of_kind)], source)
        elif kind == "confirm" and of_kind:
            link = of_kind[number % len(of_kind)]
            link.confirm_all(unsettled(link)[: number % 7])
        elif kind == "begin" and of_kind and not of_kind[number % len(of_kind)]._begun:
            of_kind[number % len(of_kind)].begin(b"12345678", "begun")
        elif kind in ("push", "finish"):
            for link in of_kind:
                if link._begun:
                    if kind == "push":
                        link.push(source.randbytes(number * 30))
                    elif number % 4:
                        link.finish()
                    else:
                        link.abort()
        elif kind == "credit" and of_kind:
            of_kind[number % len(of_kind)].add_credit(number)
        elif kind == "settle" and of_kind:
            link = of_kind[number % len(of_kind)]
            link._spread_runs()
            for handle in sorted(link._unsettled)[:number]:
                getattr(link, source.choice(["settle", "update"]))(handle, source.choice(OUTCOMES))
        elif kind == "close" and self.links:
            getattr(self.links[number % len(self.links)], source.choice(["close", "close", "detach"]))()
        elif kind == "end" and self.sessions:
            self.sessions[number % len(self.sessions)].close()
        elif kind == "over":
            self.connection.close()
        elif kind == "eof":
            self._handle(self.connection.receive_eof())

    def _send(self, link: Sender, source: random.Random) -> None:
        if link._begun:
            return
        sizes = [0, 1, 40, 511, 512, 600, 2047, 2048, 3000, 5000] + ([20_000, 70_000] if source.random() < 0.2 else [])
        least = source.choice([0, 0, 512, 2048])
        bodies = [source.randbytes(max(least, source.choice(sizes))) for _ in range(source.randrange(1, 7))]
        count, first = len(bodies), self.tag
        self.tag += count
        tags = b"".join((first + at).to_bytes(8, "big") for at in range(count))
        way = source.randrange(4)
        if way == 0:
            link.send_all(bodies, tags, [("sent", at) for at in range(count)])
        elif way == 1:
            txn_id = source.choice([None, b"t"])
            link.send(bodies[0], tags[: source.choice([8, 3])], "one", settled=source.random() < 0.3, txn_id=txn_id)
        else:
            content = memoryview(b"before" + b"".join(bodies))[6:] if way == 2 else bodies
            link.send_run(content, array("I", accumulate(map(len, bodies))), first, "sent")

    def state(self) -> list[Any]:
        """What is kept."""
        connection = self.connection
        return [
            [held(link) for link in self.links],
            [(session.closed, session.partial_bytes) for session in self.sessions],
            connection.engine_bytes,
            connection.has_more,
            connection.closed,
        ]


def conversation(seed: int, rounds: int = 14) -> None:
    """Two servers hear the same, and do the same."""
    source = random.Random(seed)
    frame_bytes_max = source.choice([512, 2048, 4096, 16_384, 70_000])
    peer = Peer(source, frame_bytes_max)
    settings_ = {
        "max_frame_bytes": frame_bytes_max,
        "max_message_bytes": source.choice([3_000, 100_000, 10 << 20]),
        "session_window_bytes": source.choice([20_000, 1 << 20]),
    }
    plan = {
        "takes_runs": source.random() < 0.7,
        "reads_tags": source.random() < 0.5,
        "streams": source.random() < 0.5,
        "credit": source.choice([3, 40, 1000, 1000]),
        "rare_events_max": source.choice([0, 0, 1, 3]),
        "remembers": source.random() < 0.5,
    }
    sides = [Side(apart=apart, batched=True, plan=plan, limits_=settings_) for apart in (True, False)]
    beside = sides[0].connection._bypass
    assert beside is not None
    mark = b"".join(beside.way.mark)
    waiting = peer.beginning()

    def same() -> None:
        logs = [side.log for side in sides]
        assert logs[0] == logs[1]
        assert sides[0].state() == sides[1].state()
        for side in sides:
            side.log = []
        check_held(sides, beside)

    for _ in range(rounds):
        size = source.choice([len(waiting), len(waiting), 1 << 20, 3000, 20_000])
        if source.random() < 0.1 and len(waiting) < 5000:
            size = 1
        while waiting:
            length = max(1, source.randrange(size + 1)) if size > 1 else source.randrange(1, 60)
            piece, waiting = waiting[:length], waiting[length:]
            for side in sides:
                side.receive(piece)
            same()
            if source.random() < 0.2:
                write(sides, peer, mark, beside)
        if source.random() < 0.8:
            write(sides, peer, mark, beside)
        for _ in range(source.randrange(5)):
            kind = source.choice(["send"] * 6 + ["confirm", "credit", "settle", "begin", "push", "finish"])
            if source.random() < 0.05:
                kind = source.choice(["close", "close", "close", "close", "end"])
            if source.random() < 0.003:
                kind = source.choice(["over", "eof"])
            number, inner = source.randrange(1000), source.randrange(1 << 30)
            for side in sides:
                side.do(kind, number, random.Random(inner))
            same()
        if source.random() < 0.8:
            write(sides, peer, mark, beside)
        waiting = peer.says()
    for side in sides:
        while side.connection.has_more:
            side.receive(b"")
        side.do("eof", 0, source)
    same()
    write(sides, peer, mark, beside)
    for side in sides:
        side.connection.free()
    assert not beside.received
    assert not beside._sent
    assert not beside.begun_bytes


def write(sides: list[Side], peer: Peer, mark: bytes, beside: bypass.Bypass) -> None:
    """Both write the same."""
    data = [side.connection.data_to_send() for side in sides]
    assert mark not in data[0]
    assert without_windows(data[0], beside.is_misled) == without_windows(data[1], beside.is_misled)
    peer.heard(data[0])


def without_windows(data: bytes, is_misled: bool) -> list[Any]:
    """What was written but for the windows in flows: in one that is written amid a read, what was not read counts."""
    found: list[Any] = []
    at = 8 if data.startswith(b"AMQP") else 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        one = data[at : at + size]
        if one[8:11] == b"\x00\x53\x13":
            fields = decode_value(one, 8)[0].value
            found.append([*fields[:1], *fields[2:]])
        elif not is_misled or one[8:11] != b"\x00\x53\x14":
            found.append(one)
        at += size
    return found


def check_held(sides: list[Side], beside: bypass.Bypass) -> None:
    """What is held beside the engine is counted as what it would hold."""
    apart, plainly = (side.connection for side in sides)
    if not apart.has_more:
        assert not beside.received
    count = 0
    for sent in beside._sent.values():
        count += sent.left
    by_session = sum(session.apart_bytes for session in sides[0].sessions)
    if not apart.closing:
        assert count == by_session
    extra = apart.held_bytes - beside.begun_bytes - plainly.held_bytes
    # Of links that have ended, the engine counts what it will not write.
    assert extra <= TOKEN_BYTES * (1 + count // 33)


@settings(max_examples=examples(400), deadline=None)
@given(st.integers(0, 1 << 40), st.booleans())
def test_a_conversation_is_the_same_whether_bodies_pass_the_engine_by(seed: int, even_small_ones: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LARGE_MESSAGE_BYTES", LARGE_BYTES)
        if even_small_ones:
            for module in (bypass, senders):
                patch.setattr(module, "BODY_MIN", 33)
        conversation(seed)
