"""Redelivery policies and dead letters (CONTRACT D15-D19)."""

import json

from legato.core.consumers import Consumer
from legato.core.facts import MessageDeadLettered, MessageReturned
from legato.core.settings import AddressSettings
from legato.core.transaction import Disposal, Transaction
from tests.support.bodies import TextBodies
from tests.support.scenario import Scenario


def fail(s: Scenario, consumer: Consumer, text: str = "") -> None:
    [message] = s.in_hand(consumer)[:1]
    assert s.broker.settlement.modify(consumer, message, failed=True, undeliverable_here=False, text=text)
    s.run()


def credit(s: Scenario, consumer: Consumer, credit: int = 1) -> list[bytes]:
    s.broker.receivers.flow(consumer, credit, False, s.now_us)
    s.run()
    return s.received(consumer)


def test_one_delivery_and_six_redeliveries_then_the_dead_letters() -> None:
    """CONTRACT D15: ActiveMQ's 1 + 6."""
    s = Scenario()
    s.settings["q"] = AddressSettings(maximum_deliveries=7, redelivery_delay_s=1, redelivery_blocking="consumer")
    s.publish("q", b"poison")
    consumer = s.consumer("q", 1)
    attempts = 0
    while s.broker.directory.queue("q").depth:
        attempts += len(s.received(consumer))
        fail(s, consumer)
        s.broker.receivers.flow(consumer, 1, False, s.now_us)
        s.wait(1.1)
    assert attempts == 7
    assert s.broker.directory.queue("DLQ.q").depth == 1


def test_a_blocking_policy_keeps_the_order_and_holds_up_its_consumer_only() -> None:
    """CONTRACT D15, D16: the stutter, of one consumer."""
    s = Scenario()
    s.settings["q"] = AddressSettings(redelivery_delay_s=5, redelivery_blocking="consumer")
    s.publish("q", b"1")
    one = s.consumer("q", 1)
    fail(s, one)
    s.received(one)
    s.publish("q", b"2", b"3")
    assert credit(s, one, 3) == []
    two = s.consumer("q", 1)
    assert s.received(two) == [b"2"]
    s.wait(5.1)
    assert s.received(one) == [b"1", b"3"]


def test_what_waits_for_its_consumer_comes_again_when_its_count_is_durable_and_not_before() -> None:
    """CONTRACT D15, promise 4: also if the delay is over before the commit, or the consumer goes meanwhile."""
    s = Scenario()
    s.settings["q"] = AddressSettings(redelivery_delay_s=5, redelivery_blocking="consumer")
    s.publish("q", b"1")
    one, two = s.consumer("q", 1), s.consumer("q", 1)
    [message] = s.in_hand(one)
    assert s.broker.settlement.modify(one, message, failed=True, undeliverable_here=False)
    s.broker.receivers.detach(one, clean=True)
    s.broker.dispatcher.dispatch_returned(s.now_us)
    assert s.in_hand(two) == []
    s.run()
    assert [message.count for message in s.in_hand(two)] == [1]
    [message] = s.in_hand(two)
    assert s.broker.settlement.modify(two, message, failed=True, undeliverable_here=False)
    s.broker.receivers.flow(two, 1, False, s.now_us)
    s.broker.tick(s.now_us + 6_000_000)
    assert s.in_hand(two) == []
    s.full = True
    s.run()
    assert [message.count for message in s.in_hand(two)] == [2]


def test_a_policy_may_block_the_whole_queue() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(redelivery_delay_s=5, redelivery_blocking="queue")
    s.publish("q", b"1", b"2")
    one = s.consumer("q", 1)
    fail(s, one)
    two = s.consumer("q", 5)
    assert s.received(two) == []
    s.wait(5.2)
    assert s.received(two) == [b"1", b"2"]


def test_a_policy_may_block_a_message_group_only() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(redelivery_delay_s=5, redelivery_blocking="group")
    s.publish("q", b"group=a;1", b"group=a;2", b"group=b;3")
    consumer = s.consumer("q", 1)
    assert s.received(consumer) == [b"group=a;1"]
    fail(s, consumer)
    assert credit(s, consumer, 5) == [b"group=b;3"]
    s.wait(5.2)
    assert s.received(consumer) == [b"group=a;1", b"group=a;2"]


def test_what_comes_when_a_group_may_go_on_does_not_overtake_what_waited_for_that() -> None:
    """Seed 70001566: the time was over, and the tick that looks for that was to come."""
    s = Scenario()
    s.settings["q"] = AddressSettings(redelivery_delay_s=5, redelivery_blocking="group")
    s.publish("q", b"group=a;1", b"group=a;2")
    consumer = s.consumer("q", 1)
    assert s.received(consumer) == [b"group=a;1"]
    fail(s, consumer)
    assert credit(s, consumer, 5) == []
    s.now_us += 6_000_000
    s.publish("q", b"group=a;3")
    s.wait(0.2)
    assert s.received(consumer) == [b"group=a;1", b"group=a;2", b"group=a;3"]


def test_a_policy_that_does_not_block_delivers_others_during_the_wait() -> None:
    """CONTRACT D18, D19: redelivery by the broker."""
    s = Scenario()
    s.settings["q"] = AddressSettings(redelivery_delay_s=5)
    s.publish("q", b"1", b"2")
    consumer = s.consumer("q", 1)
    fail(s, consumer)
    s.received(consumer)
    assert credit(s, consumer, 5) == [b"2"]
    s.accept(consumer, *s.in_hand(consumer))
    s.wait(3)
    other = s.crash()
    again = other.consumer("q", 5)
    other.wait(2.3)
    assert other.received(again) == [b"1"]
    assert other.in_hand(again)[0].count == 1, "the count came along, over the wait and the takeover"


def test_delays_grow_up_to_their_bound_and_are_spread() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(
        redelivery_delay_s=1, redelivery_multiplier=2, redelivery_delay_max_s=3, maximum_deliveries=0
    )
    queue = s.broker.directory.queue("q")
    s.publish("q", b"1")
    consumer = s.consumer("q", 1)
    [message] = s.in_hand(consumer)
    delays = []
    for count in (1, 2, 3, 500):
        message.count = count
        delays.append(s.broker.redelivery._delay_us(message))
    assert delays == [1_000_000, 2_000_000, 3_000_000, 3_000_000]
    queue.settings = AddressSettings(redelivery_delay_s=1, redelivery_jitter=0.5)
    message.count = 1
    s.broker.redelivery._chance = lambda: 0.0
    assert s.broker.redelivery._delay_us(message) == 500_000
    s.broker.redelivery._chance = lambda: 1.0
    assert s.broker.redelivery._delay_us(message) == 1_500_000


def test_a_dead_letter_says_why_and_where_from() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(maximum_deliveries=2)
    s.publish("q", b"bad")
    consumer = s.consumer("q", 1, name="worker")
    fail(s, consumer, "ValueError: first")
    s.received(consumer)
    credit(s, consumer)
    fail(s, consumer, "ValueError: second")
    [letter] = s.received(s.consumer("DLQ.q", 1))
    said = TextBodies()._properties(letter)
    assert said["JMS_LEGATO_CAUSE"] == "maximum deliveries"
    assert said["JMS_LEGATO_EXCEPTION"] == "ValueError: second"
    assert said["JMS_LEGATO_ORIGINAL_DESTINATION"] == "q"
    assert said["JMS_LEGATO_DELIVERIES"] == 2
    assert said["JMS_LEGATO_DEAD_LETTER_COUNT"] == 1
    history = json.loads(str(said["JMS_LEGATO_HISTORY"]))
    assert [attempt["cause"] for attempt in history][:1] == ["modified"]
    assert [fact.cause for fact in s.facts if isinstance(fact, MessageDeadLettered)] == ["maximum deliveries"]


def test_a_dead_letter_that_is_sent_again_and_dies_again_counts_both() -> None:
    s = Scenario()
    s.publish("q", b"bad")
    consumer = s.consumer("q", 2)
    s.broker.settlement.reject(consumer, s.in_hand(consumer)[0], "no")
    s.run()
    s.broker.administration.move(s.broker.directory.queue("DLQ.q"), s.broker.directory.queue("q"), "moved")
    s.run()
    assert s.finished == {"moved": 1}
    [again] = s.in_hand(consumer)
    assert again.count == 0
    s.broker.settlement.reject(consumer, again, "no")
    s.run()
    [letter] = s.received(s.consumer("DLQ.q", 1))
    assert TextBodies().read(letter, "JMS_LEGATO_DEAD_LETTER_COUNT") == 2


def test_a_dead_letter_queue_keeps_what_is_rejected_there() -> None:
    s = Scenario()
    s.publish("DLQ.q", b"1")
    consumer = s.consumer("DLQ.q", 1)
    s.broker.settlement.reject(consumer, s.in_hand(consumer)[0], "no")
    s.run()
    assert s.broker.directory.queue("DLQ.q").depth == 1
    assert s.broker.directory.find_queue("DLQ.DLQ.q") is None


def test_a_rolled_back_transaction_counts_and_may_kill() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(maximum_deliveries=1)
    s.publish("q", b"1")
    consumer = s.consumer("q", 1)
    txn = s.broker.transactions.declare("me")
    transaction = s.broker.transactions.find(txn, "me")
    assert transaction is not None
    s.broker.transactions.acknowledge(transaction, consumer, s.in_hand(consumer)[0])
    s.broker.transactions.discharge(txn, "me", fail=True, token="end")
    s.run()
    assert s.broker.directory.queue("DLQ.q").depth == 1
    assert s.broker.directory.queue("q").depth == 0


def test_a_subscription_has_dead_letters_of_its_own() -> None:
    s = Scenario()
    topic = s.broker.directory.topic("t")
    queue = s.broker.subscriptions.subscribe(topic, "subscription://me/one", container="me", durable=True, shared=False)
    consumer = s.consumer(queue, 1)
    s.publish(topic, b"1")
    s.broker.settlement.reject(consumer, s.in_hand(consumer)[0], "no")
    s.run()
    assert s.broker.directory.queue("DLQ.t.one").depth == 1


def test_a_delayed_redelivery_in_a_subscription_comes_back_to_it_alone() -> None:
    s = Scenario()
    s.settings["t"] = AddressSettings(redelivery_delay_s=1)
    topic = s.broker.directory.topic("t")
    one, two = (
        s.consumer(s.broker.subscriptions.subscribe(topic, name, container="me", durable=True, shared=False), 1)
        for name in ("one", "two")
    )
    s.publish(topic, b"1")
    fail(s, one)
    s.received(one)
    s.accept(two, *s.in_hand(two))
    s.received(two)
    credit(s, one), credit(s, two)
    s.wait(1.3)
    assert (s.received(one), s.received(two)) == ([b"1"], [])


def test_what_was_never_presented_returns_uncounted_when_a_consumer_closes() -> None:
    s = Scenario()
    s.publish("q", b"1", b"2", b"3")
    consumer = s.consumer("q", 3, exact=True)
    s.broker.presentations.present(consumer, s.in_hand(consumer)[0])
    s.broker.receivers.detach(consumer, clean=True)
    s.run()
    assert [fact.seq for fact in s.facts if isinstance(fact, MessageReturned)] == [1]
    again = s.consumer("q", 3)
    assert s.received(again) == [b"1", b"2", b"3"]
    assert [message.count for message in s.in_hand(again)] == [1, 0, 0]


def test_what_a_commit_without_room_gives_back_is_delivered_again_once() -> None:
    """Its consumer's own already, it is not on disk for others, nor for the same one a second time."""
    s = Scenario()
    s.settings["q"] = AddressSettings(redelivery_delay_s=1, redelivery_blocking="consumer")
    s.publish("q", b"1")
    consumer = s.consumer("q", 5)
    other = s.consumer("q", 0, priority=5, name="other")
    assert s.received(consumer) == [b"1"]
    txn = s.broker.transactions.declare("me")
    transaction = s.broker.transactions.find(txn, "me")
    assert transaction is not None
    s.broker.transactions.acknowledge(transaction, consumer, s.in_hand(consumer)[0])
    s.broker.transactions.publish(transaction, s.broker.directory.queue("r"), b"2", "2")
    s.broker.transactions.discharge(txn, "me", fail=False, token="end")
    s.full = True
    s.run()
    assert list(s.discharge_refused) == ["end"]
    s.broker.receivers.detach(other, clean=True)  # the queue reads from disk what nobody has
    s.run()
    s.wait(1.1)
    assert s.received(consumer) == [b"1"]


def test_a_transaction_buries_and_gives_back_when_it_commits_and_not_before() -> None:
    """CONTRACT D21, AMQP 4.4.2."""
    s = Scenario()
    s.publish("q", b"consumed", b"buried", b"back")
    consumer = s.consumer("q", 3)
    transaction = s.broker.transactions.find(s.broker.transactions.declare("me"), "me")
    assert transaction is not None
    consumed, buried, back = s.in_hand(consumer)
    s.broker.transactions.acknowledge(transaction, consumer, consumed)
    disposal = Disposal(rejected=True, text="never works", properties=(("legato_attempts", 7),))
    s.broker.transactions.acknowledge(transaction, consumer, buried, disposal)
    s.broker.transactions.acknowledge(transaction, consumer, back, Disposal())
    s.run()
    assert s.broker.directory.queue("q").depth == 3
    s.broker.transactions.discharge(transaction.id, "me", fail=False, token="commit")
    s.run()
    assert s.discharged == ["commit"]
    assert s.broker.directory.queue("q").depth == 1
    letter = s.received(s.consumer("DLQ.q", 1))[0]
    assert b"never works" in letter
    assert b'"legato_attempts":7' in letter


def test_dead_letters_of_a_transaction_keep_their_order_however_they_are_stated() -> None:
    """CONTRACT C9: a client's engine may put the first delivery's outcome behind the others'."""
    s = Scenario()
    s.publish("q", b"one", b"two", b"three")
    consumer = s.consumer("q", 3)
    transaction = s.broker.transactions.find(s.broker.transactions.declare("me"), "me")
    assert transaction is not None
    one, two, three = s.in_hand(consumer)
    for message in (two, three, one):
        s.broker.transactions.acknowledge(transaction, consumer, message, Disposal(rejected=True, text="never works"))
    s.broker.transactions.discharge(transaction.id, "me", fail=False, token="commit")
    s.run()
    letters = s.received(s.consumer("DLQ.q", 3))
    assert [b"two" in letter for letter in letters] == [False, True, False]
    assert b"one" in letters[0]


def test_a_transaction_whose_dead_letter_finds_no_room_is_rolled_back_whole() -> None:
    """CONTRACT D2: what it received comes again, and nothing is lost."""
    s = Scenario()
    s.publish("q", b"consumed", b"buried")
    consumer = s.consumer("q", 2)
    transaction = s.broker.transactions.find(s.broker.transactions.declare("me"), "me")
    assert transaction is not None
    consumed, buried = s.in_hand(consumer)
    s.broker.transactions.acknowledge(transaction, consumer, consumed)
    s.broker.transactions.acknowledge(transaction, consumer, buried, Disposal(rejected=True, text="never works"))
    s.full = True
    s.broker.transactions.discharge(transaction.id, "me", fail=False, token="commit")
    s.run()
    assert list(s.discharge_refused) == ["commit"]
    assert s.broker.directory.queue("q").depth == 2
    s.received(consumer)
    assert sorted(credit(s, consumer, 2)) == [b"buried", b"consumed"]


def _transaction(s: Scenario) -> tuple[bytes, Transaction]:
    txn = s.broker.transactions.declare("me")
    transaction = s.broker.transactions.find(txn, "me")
    assert transaction is not None
    return txn, transaction


def test_a_transaction_cannot_commit_what_its_receiver_gave_back() -> None:
    """AMQP 4.3: an acknowledgement that does not hold rolls it back, never the half of it."""
    s = Scenario()
    s.publish("q", b"1")
    consumer = s.consumer("q", 1)
    (message,) = s.in_hand(consumer)
    txn, transaction = _transaction(s)
    s.broker.settlement.release(consumer, message)
    assert not s.broker.transactions.acknowledge(transaction, consumer, message)
    s.broker.transactions.publish(transaction, s.broker.directory.queue("reply"), b"done", "done")
    s.broker.transactions.discharge(txn, "me", fail=False, token="commit")
    s.run()
    assert s.discharge_refused == {"commit": "amqp:transaction:rollback"}
    assert s.broker.directory.queue("reply").depth == 0


def test_a_message_is_one_transactions() -> None:
    """AMQP 4.4.2: its outcome cannot be that of a second one."""
    s = Scenario()
    s.publish("q", b"1")
    consumer = s.consumer("q", 1)
    (message,) = s.in_hand(consumer)
    (first, one), (second, two) = _transaction(s), _transaction(s)
    assert s.broker.transactions.acknowledge(one, consumer, message)
    assert not s.broker.transactions.acknowledge(two, consumer, message)
    s.broker.transactions.discharge(second, "me", fail=False, token="second")
    s.broker.transactions.discharge(first, "me", fail=False, token="first")
    s.run()
    assert list(s.discharge_refused) == ["second"]
    assert s.discharged == ["first"]
    assert s.broker.directory.queue("q").depth == 0


def test_what_was_in_a_deleted_queue_hinders_no_commit() -> None:
    """It went with the queue: there is nothing that could come again."""
    s = Scenario()
    s.publish("q", b"1")
    consumer = s.consumer("q", 1)
    (message,) = s.in_hand(consumer)
    txn, transaction = _transaction(s)
    s.broker.deletion.delete(s.broker.directory.queue("q"))
    s.broker.transactions.acknowledge(transaction, consumer, message)
    s.broker.transactions.discharge(txn, "me", fail=False, token="commit")
    s.run()
    assert s.discharged == ["commit"]
