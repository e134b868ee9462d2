"""Taking up memory, connections and turns of the loop with work that is valid."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import selectors
import socket
import time
from collections.abc import Callable

from legato.amqp.codec.coordinator import encode_declare
from legato.amqp.codec.types import Symbol
from legato.amqp.codec.values import UByte, UInt
from legato.client import ConnectionFactory, TextMessage
from legato.failpoints import VARIABLE, DrillOrders, Stuck
from tests.attacks.ground import SASL_HEADER, Ground, holds
from tests.attacks.register import attack, scratch
from tests.integration.ha.test_heartbeats import QUICK
from tests.support.amqp_peer import Refused, text
from tests.support.raw import (
    ATTACH,
    COORDINATOR,
    DETACH,
    FLOW,
    SOURCE,
    TARGET,
    TRANSFER,
    RawPeer,
    beginning,
    credit,
    frame,
    framed,
    opening,
    receiving,
    selecting,
    sending,
    sent,
    terminus,
)
from tests.support.server import server

SPELL_S = 4.0
"""How long four attackers do valid work at full speed."""
HELD_MAX_BYTES = 200 << 20
HELD = "[limits.users.mallory]\nheld_bytes = 67108864\n"


def send_what_is_read(peer: RawPeer, data: bytes, for_s: float = 3.0) -> None:
    """Write as far as the broker reads, and no longer than that."""
    peer.socket.settimeout(for_s)
    with contextlib.suppress(OSError):
        peer.socket.sendall(data)


@attack(10, "messages that never end, on many sessions", settings=HELD, rss_growth_max_bytes=HELD_MAX_BYTES)
def partial_messages(ground: Ground) -> None:
    """Eight sessions, each with most of a message of 60 MB: 373 MiB were held for 280 MB."""
    hostile = ground.logged_in()
    sessions = 8
    hostile.send(opening(ground.container()), *[beginning(channel) for channel in range(1, sessions)])
    hostile.send(*[sending(0, "play.large", channel=channel) for channel in range(sessions)])
    hostile.hear_until(b"\x00\x53\x13")
    part = b"x" * 60_000
    for number in range(1000):
        for channel in range(sessions):
            first = [UInt(0), UInt(0), b"tag", UInt(0), False, True]
            fields = first if number == 0 else [UInt(0), None, None, None, None, True]
            head = b"\x00\x53\x75\xb0" + (60_000_000).to_bytes(4, "big") if number == 0 else b""
            hostile.socket.settimeout(2)
            try:
                hostile.send(frame(TRANSFER, fields, head + part, channel=channel))
            except OSError:
                return


@attack(10, "transactions that are never discharged", settings=HELD, rss_growth_max_bytes=HELD_MAX_BYTES)
def open_transactions(ground: Ground) -> None:
    """Transactions of 50 MB each, on several connections: 345 MiB for six of them."""
    message = text(b"x" * 900_000)
    for _ in range(4):
        with contextlib.suppress(Refused, OSError):
            peer = ground.peer()
            peer.socket.settimeout(5)
            coordinator, link = peer.coordinator(), peer.sender("play.transacted")
            for _ in range(2):
                txn_id = peer.declare(coordinator)
                for _ in range(55):
                    peer.send(link, message, txn_id=txn_id)


@attack(10, "a hundred thousand transactions", settings=HELD, rss_growth_max_bytes=HELD_MAX_BYTES)
def many_transactions(ground: Ground) -> None:
    """Each takes little; there is an end to them all the same, and they go with their connection."""
    hostile = ground.logged_in()
    target = terminus(COORDINATOR)
    hostile.send(opening(ground.container()), sending(0, None, target=target))
    hostile.hear_until(b"\x00\x53\x13")
    declare = encode_declare()
    for begin in range(0, 20_000, 1000):
        send_what_is_read(hostile, b"".join(sent(0, number, declare) for number in range(begin, begin + 1000)), 2)


@attack(12, "a primary whose loop stands still", own_ground=True)
def stuck_primary(ground: Ground) -> None:
    """The backup waited for the lock of a process that lives; now the primary ends itself."""
    directory = scratch(ground, "pair")
    orders = DrillOrders(directory / "orders")
    environment = QUICK | {"LEGATO_HA_WATCHDOG_S": "2.0", VARIABLE: str(directory / "orders")}
    with (
        server(directory / "store", environment=environment) as primary,
        server(directory / "store", environment=environment) as standby,
    ):
        standby.wait_for_log("heartbeats of epoch 1")
        url = f"amqp://127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        with ConnectionFactory(url).create_connection() as connection:
            session = connection.create_session()
            producer = session.create_producer(session.create_queue("q"))
            producer.send(TextMessage("before"))
            orders.stick(next(iter(Stuck)))
            try:
                standby.wait_for_role("active epoch=2")
            except AssertionError:
                holds(False, "the backup does not take over")
            producer.send(TextMessage("after"))


@attack(21, "1,500 connections that say nothing", rss_growth_max_bytes=HELD_MAX_BYTES)
def silent_connections(ground: Ground) -> None:
    """Silent ones, unfinished frames of SASL, and unfinished Opens; a login must find its way in beside them."""
    kept: list[socket.socket] = []
    beginnings = (b"", SASL_HEADER + framed(b"x" * 400, kind=1)[:200])
    try:
        for number in range(1500):
            with contextlib.suppress(OSError):
                sock = socket.create_connection(("127.0.0.1", ground.port), timeout=5)
                sock.sendall(beginnings[number % 2])
                kept.append(sock)
        time.sleep(1)
    finally:
        for sock in kept:
            sock.close()


@attack(21, "logins that are begun and given up", rss_growth_max_bytes=HELD_MAX_BYTES)
def churn(ground: Ground) -> None:
    """Connections that come and go as fast as they can."""
    end = time.monotonic() + SPELL_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", ground.port), timeout=5) as sock:
            sock.sendall(SASL_HEADER)


# -- fairness: four attackers at full speed


def attackers(ground: Ground, work: Callable[[RawPeer, float], None], count: int = 4) -> None:
    """Have processes work at full speed for a while, each with a connection of its own."""
    context = multiprocessing.get_context("fork")
    peers = [ground.logged_in() for _ in range(count)]
    processes = [context.Process(target=_work, args=(work, peer), daemon=True) for peer in peers]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SPELL_S + 30)
        process.kill()
    ground.leave()


def _work(work: Callable[[RawPeer, float], None], peer: RawPeer) -> None:
    # Attackers have machines of their own: they must not take this one from the good client.
    os.nice(10)
    with contextlib.suppress(OSError):
        peer.send(opening(f"attacker-{os.getpid()}"))
        work(peer, time.monotonic() + SPELL_S)


def exchange(peer: RawPeer, end: float, write: Callable[[int], bytes]) -> None:
    """Write and read at the same time, until the time is up."""
    peer.socket.setblocking(False)
    number, waiting = 0, b""
    with selectors.DefaultSelector() as selector:
        selector.register(peer.socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while time.monotonic() < end:
            for _, mask in selector.select(0.1):
                if mask & selectors.EVENT_READ and not peer.socket.recv(1 << 18):
                    return
                if mask & selectors.EVENT_WRITE:
                    if not waiting:
                        waiting = write(number)
                        number += 1
                    waiting = waiting[peer.socket.send(waiting) :]


@attack(22, "attach and detach at full speed", rss_growth_max_bytes=HELD_MAX_BYTES)
def attach_detach(ground: Ground) -> None:
    """4.8 s without a round trip for the good client."""
    attackers(
        ground,
        lambda peer, end: exchange(
            peer, end, lambda number: (receiving(1, "play.q") + frame(DETACH, [UInt(1), True])) * 50
        ),
    )


@attack(22, "frames that say nothing, and flows", rss_growth_max_bytes=HELD_MAX_BYTES)
def empty_frames(ground: Ground) -> None:
    """p50 of 105 to 144 ms for the good client."""
    flow = frame(FLOW, [UInt(0), UInt(1 << 20), UInt(0), UInt(1 << 20), None, None, None, None, None, None, True])
    attackers(ground, lambda peer, end: exchange(peer, end, lambda number: framed(b"") * 4000 + flow * 500))


@attack(22, "selectors of the largest size, each another one", rss_growth_max_bytes=HELD_MAX_BYTES)
def large_selectors(ground: Ground) -> None:
    """6 s without a round trip for 40 of them, and 1.5 GB for a full cache."""

    def write(number: int) -> bytes:
        words = " OR ".join(f"a{number}_{word} = {word}" for word in range(200))[:4000].rpartition(" OR ")[0]
        source = terminus(SOURCE, "play.q", None, None, None, None, None, None, selecting(words))
        return receiving(1, "", source=source) + frame(DETACH, [UInt(1), True])

    attackers(ground, lambda peer, end: exchange(peer, end, write))


@attack(22, "queues by attaching to them", rss_growth_max_bytes=HELD_MAX_BYTES)
def many_queues(ground: Ground) -> None:
    """4,000 of them took 1.9 s."""
    me = str(time.monotonic_ns())

    def write(number: int) -> bytes:
        return b"".join(
            receiving(1, f"play.{me}.{id(write)}.{number}.{n}") + frame(DETACH, [UInt(1), True]) for n in range(20)
        )

    attackers(ground, lambda peer, end: exchange(peer, end, write))


def subscribing(handle: int, name: str) -> bytes:
    """Attach a durable subscription."""
    source = terminus(SOURCE, "topic://play.news", UInt(2), Symbol("never"))
    fields = [name, UInt(handle), True, UByte(2), UByte(0), source, terminus(TARGET, "me")]
    return frame(ATTACH, fields)


@attack(22, "many durable subscriptions that get messages and leave", rss_growth_max_bytes=HELD_MAX_BYTES)
def leaving_subscriptions(ground: Ground) -> None:
    """4.3 s without a round trip when 10,000 left at once."""
    count = 2000
    hostile = ground.logged_in()
    hostile.send(
        opening(ground.container()),
        *[subscribing(number, f"s{number}") + credit(number, 10) for number in range(count)],
    )
    hostile.hear_until(f"s{count - 1}".encode(), b"\x00\x53\x18")
    sender = ground.peer()
    with contextlib.suppress(Refused):
        link = sender.sender("topic://play.news")
        for _ in range(30):
            sender.send(link, text(b"x"))
    hostile.socket.close()
    time.sleep(1)
