"""Priority, expiry, delay and groups as they are seen on the wire (amqp.md A9), and what dead letters say."""

import time

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import Properties, decode_message
from legato.amqp.codec.types import Timestamp
from legato.amqp.engine.events import Disposition
from legato.amqp.engine.outcomes import DELIVERY_FAILED, Modified, Rejected
from legato.amqp.engine.terminus import Terminus
from tests.integration.server.conftest import Connect
from tests.integration.server.wire import attach, attach_sender, got, message, nothing_more, topic
from tests.support.amqp_peer import AmqpPeer, data_of, text

CONFIGURATION = """
[[address]]
match = "expiring.#"
expiry_queue = "expired"
[[address]]
match = "twice"
maximum_deliveries = 2
[[address]]
match = "slow"
redelivery_delay_s = 0.3
[[address]]
match = "jobs"
policy = "activemq"
redelivery_delay_s = 0.01
[[address]]
match = "alone"
exclusive = true
"""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_higher_priorities_come_first_over_the_whole_backlog(peer: AmqpPeer) -> None:
    """CONTRACT C9."""
    sender = peer.sender("priorities")
    for priority in (4, 0, 9, 4, 6, 9):
        peer.send(sender, message(b"%d" % priority, header=Header(durable=True, priority=priority)))
    link = peer.receiver("priorities", 10)
    assert got(peer, link, 6) == [b"9", b"9", b"6", b"4", b"4", b"0"]


def test_a_priority_above_nine_is_nine(peer: AmqpPeer) -> None:
    sender = peer.sender("careless")
    for priority in (9, 200, 9):
        peer.send(sender, message(b"%d" % priority, header=Header(durable=True, priority=priority)))
    assert got(peer, peer.receiver("careless", 10), 3) == [b"9", b"200", b"9"]


def test_a_message_that_expired_is_not_delivered_but_moved(peer: AmqpPeer) -> None:
    """CONTRACT A23, C9: by time to live, and by absolute expiry, which wins."""
    sender = peer.sender("expiring.1")
    peer.send(sender, message(b"ttl", header=Header(durable=True, ttl_ms=1)))
    past = Properties(absolute_expiry_ms=now_ms() - 1)
    peer.send(sender, message(b"absolute", header=Header(durable=True, ttl_ms=1_000_000), properties=past))
    future = Properties(absolute_expiry_ms=now_ms() + 1_000_000)
    peer.send(sender, message(b"alive", header=Header(durable=True, ttl_ms=1), properties=future))
    expired = peer.receiver("expired", 5)
    bodies = []
    for _ in range(2):
        transfer = peer.transfer()
        moved = decode_message(transfer.data)
        assert moved.header.ttl_ms is None
        assert moved.properties.absolute_expiry_ms is None
        bodies.append(data_of(transfer))
        expired.settle(transfer.delivery)
    assert sorted(bodies) == [b"absolute", b"ttl"]
    link = peer.receiver("expiring.1", 5)
    assert got(peer, link, 1) == [b"alive"]
    assert nothing_more(peer, link)


def test_a_delayed_message_comes_in_its_time(peer: AmqpPeer) -> None:
    """Jakarta Messaging 7.9; by either annotation."""
    sender = peer.sender("delayed")
    link = peer.receiver("delayed", 5)
    due_ms = now_ms() + 300
    peer.send(sender, message(b"second", annotations={"x-opt-delivery-time": due_ms}))
    peer.send(sender, message(b"third", annotations={"x-opt-delivery-time": Timestamp(due_ms + 300)}))
    peer.send(sender, message(b"first"))
    were_all_early = now_ms() < due_ms
    bodies = got(peer, link, 3)
    assert now_ms() >= due_ms + 299
    assert sorted(bodies) == [b"first", b"second", b"third"]
    # On a busy machine the first may have been sent when the others were due.
    assert bodies == [b"first", b"second", b"third"] or not were_all_early


def test_a_delay_holds_for_subscribers_too(peer: AmqpPeer) -> None:
    link = attach(peer, topic("delayed topic"), 5)
    sender = attach_sender(peer, Terminus(address="delayed topic", kind="target", capabilities=["topic"]))
    began_ms = now_ms()
    peer.send(sender, message(b"later", annotations={"x-opt-delivery-delay": 200}))
    peer.send(sender, message(b"now"))
    were_all_early = now_ms() < began_ms + 200
    bodies = got(peer, link, 2)
    assert now_ms() >= began_ms + 199
    assert sorted(bodies) == [b"later", b"now"]
    assert bodies == [b"now", b"later"] or not were_all_early


def test_a_group_stays_with_its_consumer(connect: Connect, peer: AmqpPeer) -> None:
    other = connect()
    first, second = peer.receiver("groups", 20), other.receiver("groups", 20)
    sender = peer.sender("groups")
    for number in range(12):
        peer.send(sender, message(b"%d" % number, properties=Properties(group_id="ab"[number % 2])))
    assert sorted([got(peer, first, 6), got(other, second, 6)]) == [
        [b"%d" % number for number in range(start, 12, 2)] for start in range(2)
    ]


def test_only_the_first_of_exclusive_consumers_receives(connect: Connect, peer: AmqpPeer) -> None:
    other = connect()
    first, second = peer.receiver("alone", 5), other.receiver("alone", 5)
    sender = peer.sender("alone")
    for body in (b"1", b"2"):
        peer.send(sender, text(body))
    assert got(peer, first, 2) == [b"1", b"2"]
    assert nothing_more(other, second)


def test_consumers_of_higher_priority_come_first(connect: Connect, peer: AmqpPeer) -> None:
    other = connect()
    low, high = peer.receiver("ranks", 5, {"priority": -1}), other.receiver("ranks", 2, {"priority": 5})
    producer = connect()
    link = producer.sender("ranks")
    for body in (b"1", b"2", b"3"):
        producer.send(link, text(body))
    assert got(other, high, 2) == [b"1", b"2"]
    assert got(peer, low, 1) == [b"3"]


def test_a_dead_letter_says_why_it_is_one(peer: AmqpPeer) -> None:
    """CONTRACT D2, D15: cause, exception, where it was, and how often it was delivered."""
    peer.send(peer.sender("twice"), text(b"poison", "ID:poison"))
    link = peer.receiver("twice", 1)
    for text_given in ("ValueError: first", "ValueError: second"):
        transfer = peer.transfer()
        link.settle(transfer.delivery, Modified(delivery_failed=True, text=text_given))
        link.add_credit(1)
        peer.flush()
    peer.receiver("DLQ.twice", 1)
    dead = decode_message(peer.transfer().data)
    assert dead.properties.message_id == "ID:poison"
    said = {key: value for key, value in dead.application_properties.items() if key.startswith("JMS_LEGATO_")}
    assert "ValueError: second" in said.values()
    assert "twice" in said.values()


def test_a_rejected_message_is_dead_at_once_with_the_receivers_words(peer: AmqpPeer) -> None:
    """CONTRACT D21."""
    peer.send(peer.sender("refused"), text(b"x"))
    link = peer.receiver("refused", 1)
    link.settle(peer.transfer().delivery, Rejected("app:refused", "cannot ever work"))
    peer.receiver("DLQ.refused", 1)
    assert "cannot ever work" in decode_message(peer.transfer().data).application_properties.values()


def test_one_delivery_and_six_more(peer: AmqpPeer) -> None:
    """CONTRACT D15: ActiveMQ's default."""
    peer.send(peer.sender("jobs"), text(b"x"))
    link = peer.receiver("jobs", 1)
    counts = []
    for _ in range(7):
        transfer = peer.transfer()
        counts.append(decode_message(transfer.data).header.delivery_count)
        link.settle(transfer.delivery, DELIVERY_FAILED)
        link.add_credit(1)
        peer.flush()
    assert counts == list(range(7))
    assert got(peer, peer.receiver("DLQ.jobs", 1), 1) == [b"x"]


def test_a_redelivery_waits_and_others_pass_it(peer: AmqpPeer) -> None:
    """CONTRACT D18: non-blocking."""
    sender = peer.sender("slow")
    peer.send(sender, text(b"failing"))
    link = peer.receiver("slow", 1)
    failing = peer.transfer().delivery
    peer.send(sender, text(b"passing"))
    began = time.monotonic()
    link.settle(failing, DELIVERY_FAILED)
    link.add_credit(2)
    peer.flush()
    assert got(peer, link, 2) == [b"passing", b"failing"]
    assert time.monotonic() - began >= 0.2


def test_an_unsettled_rejection_is_confirmed(peer: AmqpPeer) -> None:
    """AMQP 2.6.12: a receiver that settles second."""
    peer.send(peer.sender("second"), text(b"x"))
    link = peer.receiver("second", 1)
    link.update(peer.transfer().delivery, DELIVERY_FAILED)
    peer.flush()
    answer = peer.expect(Disposition, lambda event: event.link is link)
    assert answer.settled
    assert answer.outcome == DELIVERY_FAILED


def test_a_receiver_that_settles_nothing_gets_messages_settled_and_once(connect: Connect, peer: AmqpPeer) -> None:
    """AMQP 2.8.2: the sender's settle mode `settled`, as its receiver asks for."""
    sender = peer.sender("settled")
    for body in (b"1", b"2"):
        peer.send(sender, text(body))
    other = connect()
    link = attach(other, Terminus(address="settled", kind="source"), 5, snd_settle_mode=1)
    transfers = [other.transfer() for _ in range(2)]
    assert [(data_of(transfer), transfer.settled) for transfer in transfers] == [(b"1", True), (b"2", True)]
    assert nothing_more(other, link)
    other.drop()
    assert nothing_more(peer, peer.receiver("settled", 5))
