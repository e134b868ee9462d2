"""Bodies that pass the engine by come out whole, each where it belongs, whatever becomes of those beside it."""

from __future__ import annotations

import random
from array import array
from itertools import accumulate, pairwise
from typing import Any

import pytest

from legato.amqp.codec.types import Described, UInt, ULong
from legato.amqp.codec.values import decode_value
from legato.amqp.engine import batch, bypass
from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import Attached, Closed, Event, SessionBegan, Transfer, TransferRun
from legato.amqp.engine.link import Receiver, Sender
from legato.amqp.engine.settings import Settings
from legato.amqp.engine.terminus import Terminus
from tests.unit.amqp.pair import Pair
from tests.unit.amqp.test_hostile import ATTACH_RECEIVER, ATTACH_SENDER, HEADER, OPEN, frame

pytestmark = pytest.mark.skipif(not batch.bypasses, reason="the module was not compiled, is forbidden, or of before")

SIZES = (0, 1, 31, 32, 33, 100, bypass.BODY_MIN - 1, bypass.BODY_MIN, 1_500, 3_000, 16_384, 40_000)
WINDOW = 3


def begin(window: int) -> bytes:
    """A Begin whose sender takes so many transfers."""
    return frame(0x11, [None, UInt(0), UInt(window), UInt(1000)])


def flow(window: int, received: int) -> bytes:
    """A flow of a peer that has received so many transfers, and takes so many more; with much credit for its link."""
    return frame(0x13, [UInt(received), UInt(window), UInt(0), UInt(9), UInt(1), UInt(received), UInt(1000)])


def transfer(number: int, body: bytes, *, link: int = 0, more: bool = False, txn_id: bytes | None = None) -> bytes:
    """One frame of a message."""
    state = None if txn_id is None else Described(ULong(0x34), [txn_id])
    fields = [UInt(link), UInt(number), number.to_bytes(8, "big"), UInt(0), False, more, None, state]
    return frame(0x14, fields, payload=body)


def messages(events: list[Event]) -> list[bytes]:
    """The messages that came."""
    found: list[bytes] = []
    for event in events:
        if isinstance(event, Transfer):
            found.append(event.data)
        elif isinstance(event, TransferRun):
            found += [event.data[first:last] for first, last in pairwise((0, *event.ends))]
    return found


def sent(data: bytes) -> list[tuple[int, bytes]]:
    """Of the transfers in what was written: the link's handle and the payload."""
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if size > 8:
            value, behind = decode_value(data, at + 8)
            if value.descriptor == 0x14:
                found.append((int(value.value[0]), data[behind : at + size]))
        at += size
    return found


class Server:
    """A server connection whose peer is told by hand what to send."""

    def __init__(self, *, window: int = 1000, max_message_bytes: int = 1 << 20, in_runs: bool = True) -> None:
        settings = Settings(container_id="server", max_message_bytes=max_message_bytes)
        self.connection = Connection(server=True, settings=settings)
        self.connection.open()
        links: dict[type, Any] = {}
        for event in self.connection.receive_data(HEADER + OPEN + begin(window) + ATTACH_SENDER + ATTACH_RECEIVER):
            if isinstance(event, SessionBegan):
                event.session.open()
            elif isinstance(event, Attached):
                event.link.accept()
                links[type(event.link)] = event.link
        self.receiver: Receiver = links[Receiver]
        self.sender: Sender = links[Sender]
        self.receiver.takes_runs, self.receiver.reads_tags = in_runs, False
        self.receiver.add_credit(10_000)
        self.connection.receive_data(flow(window, 0))
        self.connection.data_to_send()

    @property
    def outstanding(self) -> int:
        """What passes the engine by and has not left."""
        return self.sender.session.apart_bytes


def random_bodies(source: random.Random, count: int) -> list[bytes]:
    """Messages of which no two are alike."""
    return [source.randbytes(source.choice(SIZES)) for _ in range(count)]


@pytest.mark.parametrize("seed", range(8))
def test_random_messages_of_several_connections_come_as_they_were_sent(seed: int) -> None:
    """Each connection reads in pieces of its own, and what they lay in is written over."""
    source = random.Random(seed)
    servers = [Server(in_runs=number % 2 == 0) for number in range(4)]
    wanted = [random_bodies(source, 60) for _ in servers]
    streams = [b"".join(transfer(n, body) for n, body in enumerate(bodies)) for bodies in wanted]
    came: list[list[bytes]] = [[] for _ in servers]
    at = [0] * len(servers)
    while any(begun < len(stream) for begun, stream in zip(at, streams, strict=True)):
        number = source.randrange(len(servers))
        size = source.choice([1, 3, 50, 5_000, 64 << 10, 256 << 10])
        piece = streams[number][at[number] : at[number] + size]
        at[number] += len(piece)
        came[number] += messages(servers[number].connection.receive_data(piece))
    for server, bodies, found in zip(servers, wanted, came, strict=True):
        assert found == bodies
        assert server.connection._bypass is not None
        assert not server.connection._bypass.received
        server.connection.free()


@pytest.mark.parametrize("seed", range(8))
def test_random_messages_leave_as_they_were_given_however_slowly_the_peer_takes_them(seed: int) -> None:
    source = random.Random(seed)
    servers = [Server(window=WINDOW) for _ in range(3)]
    given: list[list[bytes]] = [[] for _ in servers]
    left: list[list[bytes]] = [[] for _ in servers]
    for _ in range(60):
        number = source.randrange(len(servers))
        server = servers[number]
        bodies = random_bodies(source, source.randrange(1, 6))
        tag = len(given[number])
        ends = array("I", accumulate(map(len, bodies)))
        way = source.randrange(4)
        if way == 0:
            server.sender.send_run(memoryview(b"before" + b"".join(bodies))[6:], ends, tag, None)
        elif way == 1:
            server.sender.send_run(bodies, ends, tag, None)
        elif way == 2:
            bodies = [body + bytes(bypass.ALONE_MIN) for body in bodies]
            server.sender.send_run(bodies, array("I", accumulate(map(len, bodies))), tag, None)
        else:
            tags = b"".join((tag + place).to_bytes(8, "big") for place in range(len(bodies)))
            server.sender.send_all(bodies, tags, bodies)
        given[number] += bodies
        left[number] += [body for _, body in sent(server.connection.data_to_send())]
        if source.randrange(3) == 0:
            server.connection.receive_data(flow(WINDOW, len(left[number])))
    for server, bodies, found in zip(servers, given, left, strict=True):
        while len(found) < len(bodies):
            before = len(found)
            server.connection.receive_data(flow(WINDOW, before))
            found += [body for _, body in sent(server.connection.data_to_send())]
            assert len(found) > before
        assert found == bodies
        assert server.outstanding == 0
        server.connection.free()


def test_what_waits_for_the_peer_is_counted_as_held() -> None:
    server = Server(window=WINDOW)
    body = random.Random(1).randbytes(10_000)
    server.sender.send_all([body] * 10, bytes(80), range(10))
    server.connection.data_to_send()
    assert server.outstanding == 7 * len(body)
    assert server.connection.held_bytes >= 7 * len(body)
    server.connection.free()


@pytest.mark.parametrize("on_their_way", [0, WINDOW])
def test_what_waits_does_not_keep_all_that_it_came_with(on_their_way: int) -> None:
    """Else a peer that takes a message of each run would have the broker keep runs, and be counted messages."""
    server = Server(window=on_their_way)
    assert server.connection._bypass is not None
    bodies = [random.Random(number).randbytes(1_000) for number in range(100)]
    given, ends = memoryview(b"".join(bodies)), array("I", range(1_000, 1_000 * (WINDOW + 2), 1_000))
    server.sender.send_run(given[: ends[-1]], ends, 0, None)
    left = sent(server.connection.data_to_send())
    assert server.outstanding == ends[-1] - 1_000 * on_their_way
    (waiting,) = server.connection._bypass._sent.values()
    assert memoryview(waiting.content.obj).nbytes <= 4 * server.outstanding
    server.connection.receive_data(flow(100, on_their_way))
    left += sent(server.connection.data_to_send())
    assert [body for _, body in left] == bodies[: WINDOW + 1]
    assert server.outstanding == 0
    server.connection.free()


@pytest.mark.parametrize("by_peer", [True, False])
def test_a_link_that_ends_takes_what_waits_for_its_peer_with_it(by_peer: bool) -> None:
    """The link beside it goes on: its messages are the right ones."""
    server = Server(window=WINDOW)
    source = random.Random(2)
    second = frame(0x12, ["s", UInt(2), True, None, None, Described(ULong(0x28), ["q"]), Described(ULong(0x29), [])])
    (attached,) = server.connection.receive_data(second)
    assert isinstance(attached, Attached)
    attached.link.accept()
    credit: list[object] = [UInt(0), UInt(WINDOW), UInt(0), UInt(9), UInt(2), UInt(0), UInt(1000)]
    server.connection.receive_data(frame(0x13, credit))
    ours, others = ([source.randbytes(5_000) for _ in range(6)] for _ in range(2))
    server.sender.send_all(ours, bytes(48), range(6))
    attached.link.send_all(others, bytes(48), range(6))  # type: ignore[attr-defined]
    left = sent(server.connection.data_to_send())
    assert [body for _, body in left] == ours[:WINDOW]
    if by_peer:
        server.connection.receive_data(frame(0x16, [UInt(1), True]))
        server.sender.close()
    else:
        server.sender.close()
        server.connection.receive_data(frame(0x16, [UInt(1), True]))
    left += sent(server.connection.data_to_send())
    assert server.outstanding == sum(map(len, others))
    for _ in range(4):
        left += sent(server.connection.data_to_send())
        taken: list[object] = [UInt(len(left)), UInt(WINDOW), UInt(0), UInt(9), UInt(2), UInt(0), UInt(1000)]
        server.connection.receive_data(frame(0x13, taken))
    assert [body for _, body in left] == [*ours[:WINDOW], *others]
    assert server.outstanding == 0
    server.connection.free()


@pytest.mark.parametrize("what", ["link", "session", "session that the peer ends first"])
def test_a_window_that_opens_in_the_read_that_ends_a_link_lets_its_messages_go(what: str) -> None:
    """The engine writes them yet, and so they are the messages: not what stands for them."""
    server = Server(window=WINDOW)
    session = server.sender.session
    bodies = [random.Random(7).randbytes(5_000) for _ in range(6)]
    server.sender.send_all(bodies, bytes(48), range(6))
    if what == "link":
        server.sender.close()
    elif what == "session":
        session.close()
    left = sent(server.connection.data_to_send())
    end = frame(0x16, [UInt(1), True]) if what == "link" else frame(0x17, [])
    server.connection.receive_data(flow(100, WINDOW) + end)
    session.close()
    left += sent(server.connection.data_to_send())
    assert [body for _, body in left] == bodies
    assert server.outstanding == 0
    server.connection.free()


@pytest.mark.parametrize("begun", [False, True])
def test_a_large_message_over_a_link_that_sends_ends_the_connection_and_shows_no_token(begun: bool) -> None:
    """The engine takes it for one that is to be sent: behind a message that is begun, too."""
    server = Server()
    assert server.connection._bypass is not None
    if begun:
        server.sender.begin(b"12345678")
        server.sender.push(b"begun")
    strays = transfer(0, bytes(5_000), link=1) + transfer(1, bytes(600), link=1)
    events = server.connection.receive_data(strays)
    assert [event.condition for event in events if isinstance(event, Closed)] == ["amqp:not-allowed"]
    server.sender.finish()
    written = server.connection.data_to_send()
    assert b"amqp:not-allowed" in written
    assert b"".join(server.connection._bypass.way.mark) not in written
    server.connection.free()


def test_the_end_of_a_message_of_several_frames_is_part_of_it() -> None:
    """However its frames, and those of its neighbours on another link, come apart."""
    source = random.Random(3)
    parts = [source.randbytes(5_000) for _ in range(3)]
    single = source.randbytes(6_000)
    second = frame(
        0x12,
        [
            "m",
            UInt(2),
            False,
            None,
            None,
            Described(ULong(0x28), []),
            Described(ULong(0x29), ["q"]),
            None,
            None,
            UInt(0),
        ],
    )
    frames = [
        transfer(0, parts[0], more=True),
        transfer(1, single, link=2),
        transfer(0, parts[1], more=True),
        transfer(0, parts[2]),
        transfer(2, single),
    ]
    stream = b"".join(frames)
    for cut in [*range(0, len(stream), 97), len(frames[0]), len(frames[0]) + len(frames[1])]:
        server = Server()
        (attached,) = server.connection.receive_data(second)
        assert isinstance(attached, Attached)
        attached.link.accept()
        attached.link.add_credit(10)  # type: ignore[attr-defined]
        events = server.connection.receive_data(stream[:cut]) + server.connection.receive_data(stream[cut:])
        assert sorted(messages(events)) == sorted([single, b"".join(parts), single])
        server.connection.free()


@pytest.mark.parametrize("before", [0, 2, 6])
def test_a_message_that_is_too_large_for_its_link_ends_it(before: int) -> None:
    """Others before it are taken, and none behind it."""
    server = Server(max_message_bytes=5_000)
    bodies = [random.Random(4).randbytes(4_000)] * before + [bytes(5_001), bytes(4_000)]
    events = server.connection.receive_data(b"".join(transfer(n, body) for n, body in enumerate(bodies)))
    assert messages(events) == bodies[:before]
    assert server.receiver.closed
    assert not [event for event in events if isinstance(event, Closed)]
    assert b"message-size-exceeded" in server.connection.data_to_send()
    server.connection.free()


def test_nothing_passes_by_that_does_not_fit_into_a_frame_of_the_peer() -> None:
    pair = Pair(client={"max_frame_bytes": 4096}).opened()
    receiver, sender = pair.incoming()
    bodies = [random.Random(5).randbytes(size) for size in (3_000, 4_096, 20_000, 3_584, 3_585)]
    for body in bodies:
        sender.send_run(body, array("I", [len(body)]), 1, None)
    events, _ = pair.exchange()
    assert messages(events) == bodies
    receiver.accept_all(sorted(receiver._unsettled))
    pair.exchange()
    pair.free()


def test_nothing_passes_by_before_the_peer_has_said_what_fits_into_a_frame_of_its() -> None:
    """What is sent without credit is queued until then."""
    pair = Pair(server={"max_frame_bytes": 512})
    pair.client.open()
    sender = pair.client.begin_session().sender("out", target=Terminus(address="q"))
    bodies = [random.Random(number).randbytes(5_000) for number in range(3)]
    sender.send_all(bodies, bytes(24), range(3))
    pair.server.open()
    for event in pair.server.receive_data(pair.client.data_to_send()):
        if isinstance(event, SessionBegan):
            event.session.open()
        elif isinstance(event, Attached):
            assert isinstance(event.link, Receiver)
            event.link.accept()
            event.link.add_credit(10)
    _, events = pair.exchange()
    assert messages(events) == bodies
    pair.free()


def test_a_token_of_another_connection_is_a_message_like_any() -> None:
    """What a token begins with nobody knows but the connection: who has seen one of another gains nothing by it."""
    other, server = Server(), Server()
    assert other.connection._bypass is not None
    token = b"".join(other.connection._bypass.way.mark) + bytes(16)
    assert messages(server.connection.receive_data(transfer(0, token))) == [token]
    other.connection.free()
    server.connection.free()


def test_what_a_body_lies_in_is_kept_until_it_is_read() -> None:
    """A peer that attaches much at once has its messages read in another call."""
    server = Server()
    server.connection._rare_events_max = 1
    body = random.Random(6).randbytes(7_000)
    attaches = [
        frame(0x12, [f"a{n}", UInt(n), True, None, None, Described(ULong(0x28), ["q"]), Described(ULong(0x29), [])])
        for n in (5, 6)
    ]
    events = server.connection.receive_data(attaches[0] + transfer(0, body) + attaches[1] + transfer(1, body[::-1]))
    assert server.connection.has_more
    while server.connection.has_more:
        events += server.connection.receive_data(b"")
    assert messages(events) == [body, body[::-1]]
    server.connection.free()


def test_a_peer_that_leaves_in_the_middle_of_a_frame_broke_the_connection() -> None:
    server = Server()
    data = transfer(0, bytes(10_000))
    assert server.connection.receive_data(data[:3_000]) == []
    assert server.connection.held_bytes == 3_000
    assert server.connection.receive_data(data[3_000:-1]) == []
    assert server.connection.held_bytes == len(data) - 1
    (closed,) = server.connection.receive_eof()
    assert isinstance(closed, Closed)
    assert not closed.clean
    server.connection.free()


def test_what_stands_for_a_body_that_is_not_there_is_not_written() -> None:
    """It cannot be; should it, the peer is not sent a token for a message."""
    server = Server(window=WINDOW)
    server.sender.send_all([bytes(5_000)] * 5, bytes(40), range(5))
    assert len(sent(server.connection.data_to_send())) == WINDOW
    assert server.connection._bypass is not None
    server.connection._bypass._sent.clear()
    server.connection.receive_data(flow(WINDOW, WINDOW))
    with pytest.raises(RuntimeError):
        server.connection.data_to_send()
    server.connection.free()


@pytest.mark.parametrize("txn_id", [None, b"txn"])
@pytest.mark.parametrize("count", [1, 5])
def test_what_stands_for_a_body_that_is_not_there_is_not_reported(count: int, txn_id: bytes | None) -> None:
    """It cannot be; should it, nobody is given a token for a message: in a run, by itself, or of a transaction."""
    server = Server()
    server.connection._rare_events_max = 1
    attaches = b"".join(
        frame(0x12, [f"a{n}", UInt(n), True, None, None, Described(ULong(0x28), ["q"]), Described(ULong(0x29), [])])
        for n in (5, 6)
    )
    data = b"".join(transfer(number, bytes(7_000), txn_id=txn_id) for number in range(count))
    server.connection.receive_data(attaches + data)
    assert server.connection.has_more
    assert server.connection._bypass is not None
    server.connection._bypass.received.clear()
    server.connection._rare_events_max = 0
    with pytest.raises(RuntimeError):
        server.connection.receive_data(b"")
    server.connection.free()
