"""Which commits may wait for company: those of acknowledgements of which nobody waits to hear."""

from legato import limits
from legato.core.consumers import Consumer
from legato.core.settings import AddressSettings
from tests.support.scenario import Scenario


def acknowledged(s: Scenario, consumer: Consumer, count: int = 1, *, confirm: bool = False) -> None:
    """A consumer accepts messages; nothing is committed yet."""
    for message in s.in_hand(consumer)[:count]:
        assert s.broker.settlement.acknowledge(consumer, message, confirm=confirm)


def given(count: int = 1, *, detailed: bool = False) -> tuple[Scenario, Consumer]:
    """A consumer that has all messages of its queue."""
    s = Scenario(detailed=detailed)
    for number in range(count):
        s.publish("q", b"%d" % number)
    return s, s.consumer("q", count)


def test_an_acknowledgement_that_its_receiver_settled_may_wait() -> None:
    s, consumer = given()
    assert not s.broker.may_wait, "there is nothing"
    acknowledged(s, consumer)
    assert s.broker.may_wait
    batch = s.broker.take_batch(s.now_us)
    assert batch is not None, "it may be committed by itself all the same"
    assert not s.broker.may_wait, "it is on its way"


def test_one_that_came_again_may_wait_too() -> None:
    s, consumer = given()
    s.lose(consumer, hold_s=0)
    other = s.consumer("q", 1)
    assert s.in_hand(other)[0].flagged or s.in_hand(other)[0].count
    acknowledged(s, other)
    assert s.broker.may_wait


def test_deliveries_that_only_the_ledger_wants_to_know_may_wait() -> None:
    s, consumer = given(detailed=True)
    s.run()
    s.present(consumer, 1)
    acknowledged(s, consumer)
    assert s.broker.may_wait


def test_one_whose_receiver_asks_to_be_told_does_not_wait() -> None:
    s, consumer = given()
    acknowledged(s, consumer, confirm=True)
    assert not s.broker.may_wait


def test_nothing_waits_with_what_somebody_sends() -> None:
    s, consumer = given()
    acknowledged(s, consumer)
    s.broker.publisher.publish(s.broker.directory.queue("other"), b"x", "", "token")
    assert not s.broker.may_wait


def test_no_transaction_waits() -> None:
    s, consumer = given()
    owner = object()
    txn_id = s.broker.transactions.declare(owner)
    transaction = s.broker.transactions.find(txn_id, owner)
    assert transaction is not None
    s.broker.transactions.acknowledge(transaction, consumer, s.in_hand(consumer)[0])
    s.broker.transactions.discharge(txn_id, owner, fail=False, token="t")
    assert not s.broker.may_wait


def test_nothing_waits_that_makes_room_for_a_producer_that_waits() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=1, when_full="block")
    s.publish("q", b"1")
    consumer = s.consumer("q", 1)
    assert s.broker.backpressure.room(s.broker.directory.queue("q")) == 0
    acknowledged(s, consumer)
    assert not s.broker.may_wait


def test_nothing_waits_that_lets_consumers_have_more() -> None:
    """Messages above the dispatch mark are given to nobody: that it rises must not wait."""
    s = Scenario()
    for number in range(4):
        s.publish("q", b"%d" % number)
    consumer = s.consumer("q", 2)
    assert len(s.in_hand(consumer)) == 2
    acknowledged(s, consumer)
    assert not s.broker.may_wait
    s.run()
    s.broker.receivers.flow(consumer, 1, False, s.now_us)
    s.run()
    assert len(s.in_hand(consumer)) == 2


def test_what_waits_is_reckoned_with_when_the_mark_rises() -> None:
    """The same mark as if the acknowledgement and the publication had come at once."""
    marks = []
    for looked in (False, True):
        s, consumer = given(3)
        acknowledged(s, consumer, 3)
        if looked:
            assert s.broker.may_wait
        for number in range(3):
            s.broker.publisher.publish(s.broker.directory.queue("q"), b"%d" % number, "", None)
        s.step()
        marks.append(s.broker.directory.queue("q").main.mark)
    assert marks == [6, 6]


def test_many_do_not_wait() -> None:
    s, consumer = given(limits.UNAWAITED_FACTS_MAX + 1)
    acknowledged(s, consumer, limits.UNAWAITED_FACTS_MAX)
    assert s.broker.may_wait
    acknowledged(s, consumer)
    assert not s.broker.may_wait
