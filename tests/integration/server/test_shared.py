"""Shared subscriptions on the wire: several links, one subscription (Jakarta Messaging 8.3.2, 8.3.4; amqp.md A3)."""

import pytest

from legato.amqp.engine.events import Transfer
from legato.amqp.engine.terminus import Terminus
from tests.integration.server.conftest import Connect
from tests.integration.server.test_topics import publish
from tests.integration.server.wire import attach, close, durable, got, leave, nothing_more, selecting, topic
from tests.support.amqp_peer import AmqpPeer, Refused, data_of


def shared_out(peer: AmqpPeer, count: int) -> list[bytes]:
    return sorted(data_of(peer.expect(Transfer)) for _ in range(count))


def test_each_message_goes_to_one_of_the_consumers(connect: Connect) -> None:
    peer = connect("client")
    first = attach(peer, topic("s1", "shared"), 10, name="sub|volatile1")
    second = attach(peer, topic("s1", "shared"), 10, name="sub|volatile2")
    publish(peer, "s1", *(b"%d" % i for i in range(6)))
    assert shared_out(peer, 6) == [b"%d" % i for i in range(6)]
    assert first.unsettled == second.unsettled == 3


def test_without_a_client_id_it_is_everybodys(connect: Connect) -> None:
    """Two clients whose links have the same name."""
    ann, bob = connect(), connect()
    first, second = (
        attach(who, topic("s2", "shared", "global"), 10, name="sub|global-volatile1") for who in (ann, bob)
    )
    publish(ann, "s2", b"1", b"2")
    assert sorted(got(ann, first, 1) + got(bob, second, 1)) == [b"1", b"2"]


def test_with_a_client_id_it_is_the_clients(connect: Connect) -> None:
    ann, bob = connect("ann"), connect("bob")
    first, second = (attach(who, topic("s3", "shared"), 10, name="sub|volatile1") for who in (ann, bob))
    publish(ann, "s3", b"1")
    assert got(ann, first, 1) == got(bob, second, 1) == [b"1"]


def test_one_that_is_not_durable_ends_with_its_last_consumer(connect: Connect) -> None:
    peer = connect("client")
    first = attach(peer, topic("s4", "shared"), 0, name="sub|volatile1")
    second = attach(peer, topic("s4", "shared"), 0, name="sub|volatile2")
    close(peer, first)
    publish(peer, "s4", b"kept for the second")
    second.add_credit(1)
    assert got(peer, second, 1) == [b"kept for the second"]
    close(peer, second)
    publish(peer, "s4", b"missed")
    assert nothing_more(peer, attach(peer, topic("s4", "shared"), 5, name="sub|volatile1"))


def test_a_durable_one_stays_without_consumers(connect: Connect) -> None:
    peer = connect("client")
    leave(peer, attach(peer, durable("s5", "shared"), name="sub"))
    publish(peer, "s5", b"1", b"2")
    first = attach(peer, durable("s5", "shared"), 1, name="sub")
    second = attach(peer, durable("s5", "shared"), 1, name="sub|2")
    assert sorted(got(peer, first, 1) + got(peer, second, 1)) == [b"1", b"2"]


def test_closing_one_of_several_links_does_not_end_it(connect: Connect) -> None:
    peer = connect("client")
    first = attach(peer, durable("s6", "shared"), name="sub")
    second = attach(peer, durable("s6", "shared"), 5, name="sub|2")
    close(peer, first)
    publish(peer, "s6", b"1")
    assert got(peer, second, 1) == [b"1"]


def test_a_global_durable_one_is_unsubscribed_by_anybody(connect: Connect) -> None:
    ann, bob = connect(), connect()
    leave(ann, attach(ann, durable("s7", "shared", "global"), name="sub7|global"))
    close(bob, attach(bob, Terminus(kind="none"), name="sub7|global"))
    with pytest.raises(Refused, match="not-found"):
        attach(ann, Terminus(kind="none"), name="sub7|global")


def test_shared_and_unshared_durable_ones_share_their_names(connect: Connect) -> None:
    peer = connect("client")
    attach(peer, durable("s8"), name="both")
    with pytest.raises(Refused, match="resource-locked"):
        attach(peer, durable("s8", "shared"), name="both|1")


def test_durable_and_volatile_ones_do_not(connect: Connect) -> None:
    peer = connect("client")
    first = attach(peer, durable("s9", "shared"), 5, name="sub9")
    second = attach(peer, topic("s9", "shared"), 5, name="sub9|volatile1")
    publish(peer, "s9", b"1")
    assert got(peer, first, 1) == got(peer, second, 1) == [b"1"]


@pytest.mark.parametrize("other", [topic("s10", "shared", filters=selecting("a = 1")), topic("s10 other", "shared")])
def test_who_joins_must_want_the_same(connect: Connect, other: Terminus) -> None:
    """Jakarta Messaging 8.3.2: an active one with another topic or selector is refused."""
    peer = connect("client")
    attach(peer, topic("s10", "shared"), name="strict|volatile1")
    with pytest.raises(Refused, match="resource-locked"):
        attach(peer, other, name="strict|volatile2")
