"""Filters on the wire: by every name that clients give them, echoed only if applied (amqp.md A3)."""

from typing import Any

import pytest

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import Properties
from legato.amqp.codec.types import Described, Symbol
from legato.amqp.engine.outcomes import RELEASED
from legato.amqp.engine.terminus import Terminus
from tests.integration.server.conftest import Connect
from tests.integration.server.wire import (
    SELECTOR,
    attach,
    close,
    got,
    message,
    nothing_more,
    selecting,
    topic,
    without_local,
)
from tests.support.amqp_peer import AmqpPeer, Refused


def queue(name: str, **fields: Any) -> Terminus:
    return Terminus(address=name, kind="source", capabilities=["queue"], **fields)


def fill(peer: AmqpPeer, name: str, count: int) -> None:
    sender = peer.sender(name)
    for number in range(count):
        peer.send(sender, message(b"%d" % number, number=number))


@pytest.mark.parametrize(
    ("key", "descriptor"),
    [
        ("jms-selector", SELECTOR),
        ("selector", Symbol("apache.org:selector-filter:string")),
        ("apache.org:selector-filter:string", SELECTOR),
        ("f1", Symbol("apache.org:jms-selector-filter:string")),
    ],
)
def test_a_selector_may_have_any_key_and_descriptor(peer: AmqpPeer, key: str, descriptor: Any) -> None:
    name = f"any {key}"
    fill(peer, name, 4)
    link = attach(peer, queue(name, filters={key: Described(descriptor, "number >= 2")}), 10)
    assert link.remote_source.filters == {key: Described(descriptor, "number >= 2")}
    assert got(peer, link, 2) == [b"2", b"3"]
    assert nothing_more(peer, link)


def test_all_of_several_selectors_hold(peer: AmqpPeer) -> None:
    fill(peer, "several", 5)
    filters = {
        "f1": Described(SELECTOR, "number > 1"),
        "f2": Described(SELECTOR, "number < 3"),
    }
    assert got(peer, attach(peer, queue("several", filters=filters), 5), 1) == [b"2"]


def test_an_unknown_filter_is_not_echoed(peer: AmqpPeer) -> None:
    filters = {"strange": Described(Symbol("example:strange"), "x")} | selecting("number = 1")
    link = attach(peer, queue("strange", filters=filters), 5)
    assert list(link.remote_source.filters) == ["jms-selector"]


def test_no_local_is_not_echoed_by_a_queue(peer: AmqpPeer) -> None:
    link = attach(peer, queue("local", filters=without_local() | selecting("number = 1")))
    assert list(link.remote_source.filters) == ["jms-selector"]


@pytest.mark.parametrize("make", [queue, topic])
def test_a_selector_that_cannot_be_understood_is_refused(peer: AmqpPeer, make: Any) -> None:
    with pytest.raises(Refused, match="invalid-field"):
        attach(peer, make("bad", filters=selecting("number =")))
    with pytest.raises(Refused, match="invalid-field"):
        attach(peer, make("bad", filters={"jms-selector": Described(SELECTOR, 7)}))


def test_header_fields_can_be_selected_by(peer: AmqpPeer) -> None:
    sender = peer.sender("fields")
    peer.send(sender, message(b"low", header=Header(durable=True, priority=1), properties=Properties(subject="a")))
    peer.send(sender, message(b"high", header=Header(durable=True, priority=8), properties=Properties(subject="b")))
    for selector in ("JMSPriority > 4", "JMSType = 'b'"):
        link = attach(peer, queue("fields", filters=selecting(selector)), 5)
        transfer = peer.transfer()
        assert b"high" in transfer.data
        link.settle(transfer.delivery, RELEASED)
        close(peer, link)


def test_what_nobody_selects_waits_for_who_does(connect: Connect, peer: AmqpPeer) -> None:
    fill(peer, "shared out", 6)
    even = attach(peer, queue("shared out", filters=selecting("number = 0 OR number = 2 OR number = 4")), 10)
    assert got(peer, even, 3) == [b"0", b"2", b"4"]
    other = connect()
    assert got(other, attach(other, queue("shared out"), 10), 3) == [b"1", b"3", b"5"]


def test_a_selector_finds_messages_behind_many_others_and_a_drain_is_answered_after_it(peer: AmqpPeer) -> None:
    """amqp.md A5: a drain waits until all that can be delivered was."""
    sender = peer.sender("many")
    for _ in range(3000):
        sender.send(message(b"other", number=0), b"x", None, settled=True)
        if sender.credit == 0:
            peer.flush()
            while sender.credit == 0:
                peer.events += peer.amqp.receive_data(peer.socket.recv(1 << 16))
    peer.send(sender, message(b"wanted", number=1))
    link = attach(peer, queue("many", filters=selecting("number = 1")))
    link.drain(10)
    assert got(peer, link, 1) == [b"wanted"]
    assert nothing_more(peer, link)


def test_a_browser_with_a_selector_sees_what_matches(peer: AmqpPeer) -> None:
    fill(peer, "browsed", 4)
    source = queue("browsed", filters=selecting("number < 2"), distribution_mode="copy")
    link = attach(peer, source, 10)
    assert got(peer, link, 2) == [b"0", b"1"]
    assert nothing_more(peer, link)
