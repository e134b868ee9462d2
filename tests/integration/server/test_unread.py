"""Who does not read what it is sent: it counts as long as it is held, and goes soon after its connection was ended."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import cast

import pytest

from legato.amqp.codec.types import UInt
from legato.amqp.engine import batch
from legato.amqp.engine.events import Transfer
from legato.amqp.engine.link import Receiver
from legato.amqp.engine.outcomes import ACCEPTED
from legato.amqp.names import MANAGEMENT_ADDRESS
from legato.server.config.bounds import OriginBounds
from legato.server.config.configuration import Config
from legato.server.connections import client_connection
from legato.server.connections.client_connection import WRITE_HIGH_BYTES, Peer
from legato.server.links.membership import Membership
from legato.server.process.service import Service
from tests.integration.server.test_opening import SolePeer
from tests.integration.server.test_questions import pose, question
from tests.support.amqp_peer import WAIT_S, AmqpPeer, data_of, text
from tests.support.broker_in_process import BrokerInProcess, broker_in_process
from tests.support.raw import FLOW, frame

MIB = 1 << 20
CLOSE_EXISTING = 1
WRITE_LOW_BYTES = WRITE_HIGH_BYTES // 4
"""What waits for a socket is more, as long as its peer counts as paused."""
LINGER_S = 0.3
"""Long enough for the Close of who reads."""


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerInProcess]:
    monkeypatch.setattr(client_connection, "LINGER_S", LINGER_S)
    with broker_in_process() as running:
        yield running


def the_peer(service: Service, container: str) -> Peer:
    return next(cast(Peer, peer) for peer in service.peers if peer.container == container)


def unread(broker: BrokerInProcess) -> AmqpPeer:
    """A consumer that reads nothing of the 12 MiB that it asked for."""
    sender = AmqpPeer(broker.port, container="sender")
    link = sender.sender("orders")
    for _ in range(12):
        assert sender.send(link, text(b"x" * (MIB - 1000))) == ACCEPTED
    sender.close()
    consumer = AmqpPeer(broker.port, container="consumer")
    consumer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    consumer.receiver("orders", 1000)
    broker.until(lambda service: the_peer(service, "consumer").paused)
    return consumer


def held(service: Service) -> tuple[int, bool]:
    """Connections that count, and whether anything of them does."""
    total = service.accounts.total
    return total.connections, total.held_bytes >= WRITE_LOW_BYTES // 2


def test_who_is_cut_off_counts_until_it_is_gone_and_is_gone_soon(broker: BrokerInProcess) -> None:
    """A socket that is closed waits for who does not read, without end."""
    consumer = unread(broker)
    found: list[tuple[int, bool]] = []

    def expel(service: Service) -> bool:
        if not (peer := the_peer(service, "consumer")).paused:
            return False
        service.expel(peer, "it is not wanted")
        found.append(held(service))
        return True

    broker.until(expel)
    assert found == [(1, True)]
    broker.until(lambda service: not service.peers)
    assert broker.ask(held) == (0, False)
    assert broker.ask(lambda service: service.accounts.memory_bytes) == 0
    consumer.drop()


def test_who_gives_way_to_another_connection_of_its_container_makes_room_at_once() -> None:
    """A client that comes back after its network was lost is not refused because of what was sent to it before."""
    config = Config()
    config.limits.origin = OriginBounds(connections=1)
    with broker_in_process(config) as broker:
        first = unread(broker)
        again = SolePeer(broker.port, "consumer", policy=CLOSE_EXISTING)
        assert broker.ask(lambda service: service.accounts.total.connections) == 1
        again.drop()
        first.drop()


def test_the_memory_mark_cuts_what_its_cutting_off_did_not_give_back(broker: BrokerInProcess) -> None:
    """Whoever was cut off still is who holds most."""
    consumer = unread(broker)

    found: list[tuple[str, bool]] = []

    def cut_off(service: Service) -> bool:
        if not (peer := the_peer(service, "consumer")).paused:
            return False
        service.expel(peer, "it holds most")
        for holder, held_bytes in service.memory.holders():
            found.append((holder.container, held_bytes >= WRITE_LOW_BYTES // 2))
        service.memory.cut_off(peer)
        return True

    broker.until(cut_off)
    assert found == [("consumer", True)]
    broker.until(lambda service: not service.peers)
    consumer.drop()


@pytest.fixture
def tell_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question has an answer of 400 KB."""

    def tell(_: Membership, addresses: Iterable[str], done: Callable[[dict[str, str]], None]) -> Iterator[None]:
        yield
        done({"padding": "x" * 400_000})

    monkeypatch.setattr(Membership, "whereabouts", tell)


@pytest.mark.usefixtures("tell_much")
def test_answers_wait_for_who_does_not_read_and_nothing_more_is_read_from_it(broker: BrokerInProcess) -> None:
    """They were written all the same, 100 of 400 KB each."""
    peer = AmqpPeer(broker.port, container="manager")
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    answers = peer.receiver(MANAGEMENT_ADDRESS, 1000)
    link = peer.sender(MANAGEMENT_ADDRESS)
    for number in range(100):
        link.send(question(padding=""), number.to_bytes(4, "big"), None)
    peer.flush()
    found: list[tuple[int, bool]] = []

    def waits(service: Service) -> bool:
        manager = the_peer(service, "manager")
        if not manager.paused or manager.unread_bytes < 4 * MIB:
            return False
        assert manager._transport is not None
        found.append((manager._transport.get_write_buffer_size(), manager._transport.is_reading()))
        return True

    broker.until(waits)
    [(buffered_bytes, is_reading)] = found
    assert buffered_bytes < 2 * WRITE_HIGH_BYTES
    assert not is_reading
    for _ in range(100):
        peer.expect(Transfer, lambda event: event.link is answers)
    pose(peer, link, 1, question())
    peer.expect(Transfer, lambda event: event.link is answers)
    assert broker.ask(lambda service: the_peer(service, "manager").unread_bytes) == 0
    peer.drop()


@pytest.mark.parametrize("mode", [None, "copy"], ids=["consumer", "browser"])
def test_who_closes_the_window_of_its_session_is_given_little_until_it_opens_it(
    broker: BrokerInProcess, mode: str | None
) -> None:
    """All that there was credit for waited in memory: nothing of it was in the socket, which took more."""
    count = 100
    sender = AmqpPeer(broker.port, container="sender")
    link = sender.sender("orders")
    for number in range(count):
        assert sender.send(link, text(b"%4d" % number + b"x" * 60_000)) == ACCEPTED
    sender.close()
    peer = AmqpPeer(broker.port, container="consumer")
    # Its engine knows of the credit, and what it says of that is replaced: no window, and then credit.
    peer.receiver("orders", 0, mode=mode).add_credit(1 << 20)
    assert peer.amqp.data_to_send()
    peer.socket.sendall(frame(FLOW, [UInt(0), UInt(0), UInt(0), UInt(1 << 20), UInt(0), UInt(0), UInt(1 << 20)]))
    broker.until(lambda service: the_peer(service, "consumer").amqp.held_bytes > 60_000)
    for _ in range(2 * count):  # turns of its loop
        assert broker.ask(lambda service: the_peer(service, "consumer").amqp.held_bytes) < 2 * MIB
    # AMQP 2.5.6: nothing may be sent into a closed window.
    peer.socket.setblocking(False)
    with suppress(BlockingIOError):
        while came := peer.socket.recv(1 << 18):
            peer.events += peer.amqp.receive_data(came)
    peer.socket.settimeout(WAIT_S)
    assert not [event for event in peer.events if isinstance(event, Transfer)]
    peer.socket.sendall(frame(FLOW, [UInt(0), UInt(1 << 20), UInt(0), UInt(1 << 20)]))
    assert [int(data_of(peer.transfer())[:4]) for _ in range(count)] == [*range(count)]
    peer.drop()


@pytest.mark.usefixtures("tell_much")
def test_what_a_closed_window_keeps_back_counts(broker: BrokerInProcess) -> None:
    """Nothing of it is in the socket."""
    peer = AmqpPeer(broker.port, container="manager")
    peer.receiver(MANAGEMENT_ADDRESS, 1000)
    link = peer.sender(MANAGEMENT_ADDRESS)
    peer.socket.sendall(frame(FLOW, [UInt(0), UInt(0), UInt(0), UInt(1 << 20)]))
    pose(peer, link, 20, question(padding=""))
    broker.until(lambda service: service.accounts.total.held_bytes > 6 * MIB)
    peer.drop()


@pytest.mark.skipif(not batch.bypasses, reason="the module was not compiled, is forbidden, or of before")
def test_who_would_be_sent_a_body_that_is_not_there_is_cut_off_alone(
    broker: BrokerInProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot be: here the test lets it go."""
    sender = AmqpPeer(broker.port, container="sender")
    for address in ("orders", "others"):
        link = sender.sender(address)
        for _ in range(5):
            assert sender.send(link, text(b"x" * 60_000)) == ACCEPTED
    other = AmqpPeer(broker.port, container="other")
    other.receiver("others", 0)
    peer = AmqpPeer(broker.port, container="consumer")
    peer.receiver("orders", 0).add_credit(5)
    assert peer.amqp.data_to_send()
    peer.socket.sendall(frame(FLOW, [UInt(0), UInt(0), UInt(0), UInt(1 << 20), UInt(0), UInt(0), UInt(5)]))
    broker.until(lambda service: the_peer(service, "consumer").amqp.held_bytes > 200_000)

    def let_go(service: Service) -> None:
        engine = the_peer(service, "consumer").amqp
        assert engine._bypass is not None
        engine._bypass._sent.clear()

    broker.ask(let_go)
    peer.socket.sendall(frame(FLOW, [UInt(0), UInt(1 << 20), UInt(0), UInt(1 << 20)]))
    with suppress(ConnectionError):
        while peer.socket.recv(1 << 18):
            pass
    assert "is cut off after an internal error" in caplog.text
    (receiver,) = other.session.links
    assert isinstance(receiver, Receiver)
    receiver.add_credit(5)
    assert [len(data_of(other.transfer())) for _ in range(5)] == [60_000] * 5
    sender.drop()
    other.drop()
    peer.drop()
