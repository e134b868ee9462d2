"""Little that comes while a commit is out: it waits for its end, and the next commit takes all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from legato import limits
from legato.amqp.engine.connection import Connection
from legato.amqp.engine.settings import Settings
from legato.core.facts import MessageStored
from legato.server.connections.client_connection import Peer
from legato.server.connections.small_reads import SmallReads
from legato.server.process.service import Service
from tests.support.stopwatch import Watch
from tests.unit.server.test_service_time import serving

EMPTY_FRAME = b"\0\0\0\x08\2\0\0\0"


class Reader:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def take(self, data: bytes) -> None:
        """See `small_reads.Reader`."""
        self.taken.append(data)


class Reads:
    """Small reads of which the time is in the test's hand."""

    def __init__(self) -> None:
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.reads = SmallReads(lambda after_s, call: self.later.append((after_s, call)))


def test_while_nothing_is_out_nothing_is_kept() -> None:
    assert Reads().reads.due(Reader(), b"1") == b"1"


def test_what_comes_while_a_commit_is_out_is_handled_at_its_end_as_one() -> None:
    reads, one, other = Reads().reads, Reader(), Reader()
    reads.begin()
    assert [reads.due(reader, data) for reader, data in ((one, b"1"), (other, b"2"), (one, b"3"))] == [b""] * 3
    reads.end()
    assert (one.taken, other.taken) == ([b"13"], [b"2"])
    assert reads.due(one, b"4") == b"4"


def test_what_becomes_much_is_handled_at_once() -> None:
    reads, reader = Reads().reads, Reader()
    reads.begin()
    half = bytes(limits.SMALL_READ_BYTES // 2)
    assert reads.due(reader, half) == b""
    assert reads.due(reader, half) == half + half
    reads.end()
    assert not reader.taken


def test_what_waits_for_long_is_handled_while_the_commit_is_out() -> None:
    """The disk may be slow, and what came may be heartbeats, credit, questions."""
    given, reader = Reads(), Reader()
    given.reads.begin()
    for data in (b"1", b"2"):
        assert given.reads.due(reader, data) == b""
    ((after_s, call),) = given.later
    assert after_s == limits.SMALL_READ_WAIT_S
    call()
    assert reader.taken == [b"12"]
    assert given.reads.due(reader, b"3") == b""
    assert len(given.later) == 2


class Sender:
    """Publishes what it is given, as a peer does."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def take(self, data: bytes) -> None:
        """See `small_reads.Reader`."""
        self.publish(data)

    def publish(self, body: bytes) -> None:
        """It sends a message."""
        broker = self._service.broker
        broker.publisher.publish(broker.directory.queue("q"), body, "", None)
        self._service.advance()


def test_the_next_commit_takes_all_that_came_while_one_was_out() -> None:
    async def story() -> list[int]:
        service = serving(Watch())
        commits, kernel = service._commits, service.broker.kernel
        sender = Sender(service)
        sender.publish(b"0")
        assert kernel.in_flight is not None
        for data in (b"1", b"2"):
            assert service.small_reads.due(Sender(service), data) == b""
        await commits.idle.wait()
        service.abort()
        stored = [len([f for f in each.facts if isinstance(f, MessageStored)]) for _, each in service._store.log(0, 10)]
        return [count for count in stored if count]

    assert asyncio.run(story()) == [1, 2]


@pytest.mark.parametrize("ends", [False, True])
def test_a_peer_is_heard_at_the_end_of_the_commit_or_before_it_ends_itself(ends: bool) -> None:
    async def story() -> list[str]:
        service = serving(Watch())
        peer, client = Peer(service), Connection(server=False, settings=Settings(container_id="there"))
        client.open()
        peer.opened = True
        containers = []
        service.small_reads.begin()
        peer.data_received(client.data_to_send())
        containers.append(peer.container)
        if ends:
            peer.eof_received()
        else:
            service.small_reads.end()
        containers.append(peer.container)
        service.abort()
        return containers

    assert asyncio.run(story()) == ["", "there"]


def test_a_peer_that_was_heard_while_a_commit_was_out_is_not_silent() -> None:
    """A broker that was stopped for a while looks at the time as soon as it reads what came meanwhile."""

    async def story() -> bool:
        clock = Watch()
        service = serving(clock)
        service.config.server.idle_timeout_ms = 1_000
        peer, client = Peer(service), Connection(server=False, settings=Settings(container_id="there"))
        client.open()
        peer.data_received(client.data_to_send())
        service.peers.add(peer)
        assert peer.opened
        peer.amqp.tick(clock.monotonic_ms())
        clock.ms += 10_000
        service.small_reads.begin()
        peer.data_received(EMPTY_FRAME)
        peer.due_ms = 0
        service._ticking._keep_alive()
        ended = peer.ended
        service.abort()
        return ended

    assert not asyncio.run(story())
