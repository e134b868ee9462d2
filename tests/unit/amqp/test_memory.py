"""Deliveries, links and connections whose memory the engine reuses or never gives back (amqp.md C7)."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import pytest

from legato.amqp.engine.events import Attached, Detached, Disposition, SessionEnded, Transfer
from legato.amqp.engine.outcomes import ACCEPTED, DELIVERY_FAILED, RELEASED
from legato.amqp.engine.terminus import Terminus
from tests.unit.amqp import many_connections
from tests.unit.amqp.pair import Pair, of

pytestmark = pytest.mark.usefixtures("either_way")


def test_settling_twice_never_settles_the_delivery_that_took_its_place(pair: Pair) -> None:
    """The engine pools deliveries: the same pointer soon names another message."""
    sender, receiver = pair.outgoing()
    pointers = set()
    late: list[int] = []
    for number in range(20):
        handle = sender.send(b"m", b"t", number)
        _, events = pair.exchange()
        delivery = of(events, Transfer)[0].delivery
        pointers.add(receiver._unsettled[delivery])
        for old in late:
            receiver.settle(old, RELEASED)
            receiver.update(old, DELIVERY_FAILED)
        receiver.settle(delivery)
        late.append(delivery)
        events, _ = pair.exchange()
        assert [(event.context, event.outcome) for event in of(events, Disposition)] == [(number, ACCEPTED)]
        sender.confirm(handle, RELEASED)
    assert len(pointers) < 20
    assert not pair.client._deliveries
    assert not pair.server._deliveries


def test_settling_after_the_link_is_gone_does_nothing(pair: Pair) -> None:
    receiver, sender = pair.incoming()
    handles = [sender.send(b"m", b"t") for _ in range(5)]
    events, _ = pair.exchange()
    deliveries = [transfer.delivery for transfer in of(events, Transfer)]
    receiver.close()
    pair.exchange()
    sender.close()
    pair.exchange()
    for delivery, handle in zip(deliveries, handles, strict=True):
        receiver.settle(delivery)
        sender.confirm(handle, RELEASED)
        sender.send(b"m", b"t")
    assert pair.exchange() == ([], [])
    assert not pair.client._deliveries
    assert not pair.server._deliveries
    assert not pair.client.closed


def test_a_peers_late_disposition_after_our_close_is_dropped(pair: Pair) -> None:
    receiver, sender = pair.incoming()
    sender.send(b"m", b"t")
    events, _ = pair.exchange()
    sender.close()
    receiver.settle(of(events, Transfer)[0].delivery)
    _, events = pair.exchange()
    assert of(events, Disposition) == []
    assert not pair.server.closed


def test_deliveries_of_an_ended_session_are_forgotten(pair: Pair) -> None:
    sender, receiver = pair.outgoing()
    for _ in range(3):
        sender.send(b"m", b"t")
    _, events = pair.exchange()
    sender.session.close()
    pair.exchange()
    receiver.session.close()
    for transfer in of(events, Transfer):
        receiver.settle(transfer.delivery)
    pair.exchange()
    assert not pair.client._deliveries
    assert not pair.server._deliveries


def test_connections_give_their_memory_back(pytestconfig: pytest.Config) -> None:
    """1500 connections leave a quarter of a mebibyte; not freed they hold 75, and 11 if one reference is kept."""
    program = [sys.executable, "-m", many_connections.__name__, "1500"]
    grown = subprocess.run(program, cwd=pytestconfig.rootpath, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert int(grown) < 4 << 20


def test_a_freed_connection_is_not_kept_by_its_parts() -> None:
    pair = Pair().opened()
    sender, _ = pair.outgoing()
    sender.send(b"m", b"t", context := object())
    pair.free()
    assert not [holder for holder in gc.get_referrers(context) if isinstance(holder, tuple)]


def test_links_that_come_and_go_leave_nothing_behind(pair: Pair) -> None:
    session, remote = pair.session()
    for number in range(200):
        link = session.sender(f"s{number}", target=Terminus(address="q"))
        pair.exchange()
        remote.links[0].accept()
        pair.exchange()
        link.close()
        pair.exchange()
        remote.links[0].close()
        pair.exchange()
    assert session.links == remote.links == []
    assert pair.client._links == pair.server._links == {}


def test_an_attach_counts_by_what_is_kept_of_it_as_long_as_it_is(pair: Pair) -> None:
    """It counted as 8 KiB, and took 2 MiB: a peer with thousands of such links was in no account."""
    session, _ = pair.opened().session()
    before = pair.server.engine_bytes
    filters = {f"k{number}": number for number in range(2000)}
    attaches: list[tuple[str, dict[str, Any]]] = [
        ("elements", {"source": Terminus(address="q", filters=filters)}),
        ("properties", {"source": Terminus(address="q"), "properties": {1: [0] * 4000}}),
        ("text", {"source": Terminus(address="q" * 200_000)}),
    ]
    for name, attach in attaches:
        link = session.receiver(name, **attach)
        (attached,) = of(pair.exchange()[1], Attached)
        assert pair.server.engine_bytes - before > 500_000
        attached.link.accept()
        pair.exchange()
        link.close()
        (detached,) = of(pair.exchange()[1], Detached)
        detached.link.close()
        pair.exchange()
        assert pair.server.engine_bytes == before
    session.receiver("last", source=Terminus(address="q" * 200_000))
    pair.exchange()
    session.close()
    (ended,) = of(pair.exchange()[1], SessionEnded)
    ended.session.close()
    pair.exchange()
    assert pair.server.engine_bytes < before


def test_an_open_counts_by_what_is_kept_of_it() -> None:
    plain, large = Pair().opened(), Pair(client={"properties": {"k": [0] * 4000}}).opened()
    assert large.server.engine_bytes - plain.server.engine_bytes > 500_000
