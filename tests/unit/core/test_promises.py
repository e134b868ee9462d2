"""Idempotent producers, transactions with knowable outcomes, acknowledgements that tell the truth."""

from legato.core.facts import DuplicateDropped, MessageConsumed, MessageStored, TransactionCommitted
from legato.store.memory import MemoryStore
from tests.support.scenario import Scenario


def test_a_resent_message_is_confirmed_and_stored_once() -> None:
    """Promise 1."""
    s = Scenario()
    queue, producer = s.broker.directory.queue("q"), s.broker.producers.attach("p")
    s.broker.publisher.publish_numbered(queue, b"1", "1", "first", producer, 1)
    s.broker.publisher.publish_numbered(queue, b"1", "1", "again", producer, 1)
    s.run()
    assert s.confirmed == ["again", "first"] or s.confirmed == ["first", "again"]
    assert queue.depth == 1
    assert sum(isinstance(fact, DuplicateDropped) for fact in s.facts) == 1


def test_a_resend_after_a_crash_is_stored_once() -> None:
    """Promise 1, over a takeover."""
    s = Scenario()
    s.broker.publisher.publish_numbered(
        s.broker.directory.queue("q"), b"1", "1", "lost confirmation", s.broker.producers.attach("p"), 1
    )
    s.step()

    after = s.crash()
    queue, producer = after.broker.directory.queue("q"), after.broker.producers.attach("p")
    assert producer.last == 1
    after.broker.publisher.publish_numbered(queue, b"1", "1", "resent", producer, 1)
    after.broker.publisher.publish_numbered(queue, b"2", "2", "new", producer, 2)
    after.run()
    assert after.received(after.consumer("q", 10)) == [b"1", b"2"]


def test_refused_numbers_may_be_sent_again() -> None:
    s = Scenario()
    for number in (1, 2):
        s.broker.producers.refuse_number(s.broker.producers.attach("p"), number)
    s.run()

    after = s.crash()
    for number in (1, 2):
        body = b"%d" % number
        after.broker.publisher.publish_numbered(
            after.broker.directory.queue("q"), body, "", body, after.broker.producers.attach("p"), number
        )
    after.run()
    assert after.received(after.consumer("q", 10)) == [b"1", b"2"]


def test_a_refused_number_does_not_come_behind_what_was_sent_after_it() -> None:
    """A refusal that its sender did not hear of, and a resend of that and of what was on its way behind it."""
    s = Scenario()
    s.broker.producers.refuse_number(s.broker.producers.attach("p"), 1)
    s.broker.publisher.publish_numbered(
        s.broker.directory.queue("q"), b"2", "2", "second", s.broker.producers.attach("p"), 2
    )
    s.run()

    after = s.crash()
    for number in (1, 2, 3):
        body = b"%d" % number
        after.broker.publisher.publish_numbered(
            after.broker.directory.queue("q"), body, "", body, after.broker.producers.attach("p"), number
        )
    after.run()
    assert after.refused == {b"1": "amqp:resource-limit-exceeded"}
    assert after.confirmed == [b"2", b"3"]
    assert after.received(after.consumer("q", 10)) == [b"2", b"3"]


def test_a_commit_publishes_and_consumes_all_at_once() -> None:
    """CONTRACT A3, A9."""
    s = Scenario()
    s.publish("in", b"1")
    consumer, other = s.consumer("in", 1), s.consumer("out", 10)
    txn = s.broker.transactions.declare("me")
    live = s.broker.transactions.find(txn, "me")
    assert live is not None
    s.broker.transactions.acknowledge(live, consumer, s.in_hand(consumer)[0])
    s.broker.transactions.publish(live, s.broker.directory.queue("out"), b"done", "d")
    s.run()
    assert s.received(other) == []

    s.broker.transactions.discharge(txn, "me", fail=False, token="commit")
    assert s.discharged == []
    s.run()
    assert s.discharged == ["commit"]
    assert s.received(other) == [b"done"]
    facts = [fact for fact in s.facts if isinstance(fact, MessageConsumed | TransactionCommitted)]
    assert [fact.txn for fact in facts] == [txn, txn]


def test_a_rollback_recovers_what_was_received_and_discards_what_was_sent() -> None:
    """CONTRACT A4: recovered at the original place, flagged by its count."""
    s = Scenario()
    s.publish("in", b"1", b"2", b"3")
    consumer = s.consumer("in", 2)
    txn = s.broker.transactions.declare("me")
    live = s.broker.transactions.find(txn, "me")
    assert live is not None
    for message in s.in_hand(consumer):
        s.broker.transactions.acknowledge(live, consumer, message)
    s.broker.transactions.publish(live, s.broker.directory.queue("out"), b"never", "n")
    s.received(consumer)
    s.broker.receivers.flow(consumer, 3, False, s.now_us)
    s.run()
    assert s.received(consumer) == [b"3"]

    s.broker.transactions.discharge(txn, "me", fail=True, token="rollback")
    s.run()
    assert s.discharged == ["rollback"]
    assert s.received(consumer) == [b"1", b"2"]
    assert s.seen["in", 1] == (1, False)
    assert s.broker.directory.queue("out").depth == 0


def test_a_lost_connection_rolls_its_transactions_back() -> None:
    """CONTRACT A5."""
    s = Scenario()
    s.publish("in", b"1")
    consumer = s.consumer("in", 1)
    txn = s.broker.transactions.declare("me")
    live = s.broker.transactions.find(txn, "me")
    assert live is not None
    s.broker.transactions.acknowledge(live, consumer, s.in_hand(consumer)[0])
    s.broker.transactions.disconnect("me")
    s.broker.receivers.detach(consumer, clean=False)
    s.run()
    assert s.received(s.consumer("in", 1)) == [b"1"]
    assert s.seen["in", 1][0] == 1


def test_what_a_lost_consumer_was_to_be_given_goes_to_the_next_one_alone() -> None:
    """One tick decides a delivery and ends an idle connection: the shell performs effects after both."""
    s = Scenario()
    s.publish("in", b"1")
    s.lose(s.consumer("in", 1), hold_s=0)
    lost, other = s.consumer("in", 0), s.consumer("in", 0)
    for consumer in (lost, other):
        s.broker.receivers.flow(consumer, 1, False, s.now_us)
    s.broker.dispatcher.dispatch_returned(s.now_us)
    assert list(lost.unsettled) == [1]
    s.broker.receivers.detach(lost, clean=False)
    s.run()
    assert s.received(other) == [b"1"]
    assert s.inbox[lost] == []


def test_a_commit_that_was_cut_off_is_answered_truly_after_a_crash() -> None:
    """Promise 2; CONTRACT E14."""
    s = Scenario()
    committed, open_one = s.broker.transactions.declare("me"), s.broker.transactions.declare("me")
    for txn in (committed, open_one):
        live = s.broker.transactions.find(txn, "me")
        assert live is not None
        s.broker.transactions.publish(live, s.broker.directory.queue("q"), txn, "id")
    s.broker.transactions.discharge(committed, "me", fail=False, token="cut off")
    s.step()

    after = s.crash()
    after.broker.transactions.discharge(committed, "me again", fail=False, token="did it?")
    after.broker.transactions.discharge(open_one, "me again", fail=False, token="did that?")
    after.run()
    assert after.discharged == ["did it?"]
    assert list(after.discharge_refused) == ["did that?"]
    assert after.received(after.consumer("q", 10)) == [committed]


def test_asking_for_an_outcome_while_the_old_connection_lives_settles_it() -> None:
    """A discharge that arrives late over the old connection must not contradict the answer."""
    s = Scenario()
    txn = s.broker.transactions.declare("old")
    live = s.broker.transactions.find(txn, "old")
    assert live is not None
    s.broker.transactions.publish(live, s.broker.directory.queue("q"), b"x", "x")
    s.broker.transactions.discharge(txn, "new", fail=False, token="asked")
    s.broker.transactions.discharge(txn, "old", fail=False, token="late")
    s.run()
    assert set(s.discharge_refused) == {"asked", "late"}
    assert s.broker.directory.queue("q").depth == 0


def test_an_outcome_asked_for_while_it_is_being_committed_waits_for_it() -> None:
    s = Scenario()
    txn = s.broker.transactions.declare("old")
    live = s.broker.transactions.find(txn, "old")
    assert live is not None
    s.broker.transactions.publish(live, s.broker.directory.queue("q"), b"x", "x")
    s.broker.transactions.discharge(txn, "old", fail=False, token="first")
    batch = s.broker.take_batch(s.now_us)
    assert batch is not None
    s.broker.transactions.discharge(txn, "new", fail=False, token="asked")
    s._perform(s.broker.take_effects())
    assert s.discharged == []
    s.store.commit(batch)
    s.broker.committed(s.now_us)
    s.run()
    assert s.discharged == ["first", "asked"]


def test_an_empty_transaction_always_commits() -> None:
    """CONTRACT B17."""
    s = Scenario()
    txn = s.broker.transactions.declare("me")
    s.broker.transactions.discharge(txn, "me", fail=False, token="empty")
    s.run()
    assert s.discharged == ["empty"]
    assert not any(isinstance(fact, TransactionCommitted) for fact in s.facts)


def test_a_held_message_comes_back_to_its_holder_first() -> None:
    """CONTRACT table F, CLIENT_ACKNOWLEDGE, `legato`: acknowledge() succeeds if no other receiver got it."""
    s = Scenario()
    s.publish("q", b"1", b"2", b"3")
    s.consumer("q", 2, exact=True, name="me")

    after = s.crash()
    consumer = after.consumer("q", 0, exact=True, held=[1, 2], name="me")
    assert [message.seq for message in consumer.first] == [1, 2]
    assert after.elsewhere == []
    other = after.consumer("q", 10, name="other")
    assert after.received(other) == [b"3"]
    after.broker.receivers.flow(consumer, 10, False, after.now_us)
    after.run()
    assert after.received(consumer) == [b"1", b"2"]


def test_a_held_message_that_another_took_is_told_so() -> None:
    """CONTRACT B11, B12; promise 5."""
    s = Scenario()
    s.publish("q", b"1", b"2")
    s.consumer("q", 2, name="me")

    after = s.crash()
    other = after.consumer("q", 2, name="other")
    after.accept(other, after.in_hand(other)[0])
    after.consumer("q", 10, held=[1, 2], name="me")
    assert after.elsewhere == [1, 2]


def test_a_late_acknowledgement_is_not_taken_for_a_message_gone_elsewhere() -> None:
    s = Scenario()
    s.publish("q", b"1")
    consumer = s.consumer("q", 1)
    message = s.in_hand(consumer)[0]
    s.broker.receivers.detach(consumer, clean=False)
    other = s.consumer("q", 1)
    assert not s.broker.settlement.acknowledge(consumer, message, confirm=True)
    s.accept(other, message)
    assert s.broker.directory.queue("q").depth == 0


class FullStore(MemoryStore):
    """A real store that has no room for messages while `full` is set."""

    full = False

    def commit(self, batch):  # type: ignore[no-untyped-def]
        from legato.errors import StoreFullError

        if self.full and batch.bodies:
            raise StoreFullError("no room")
        return super().commit(batch)


def test_a_full_store_refuses_publications_and_lets_consumers_go_on() -> None:
    store = FullStore()
    s = Scenario(store)
    s.publish("q", b"1")
    consumer = s.consumer("q", 10)
    store.full = True
    producer = s.broker.producers.attach("p")
    s.broker.publisher.publish(s.broker.directory.queue("q"), b"2", "2", "plain")
    s.broker.publisher.publish_numbered(s.broker.directory.queue("q"), b"3", "3", "numbered", producer, 1)
    txn = s.broker.transactions.declare("me")
    live = s.broker.transactions.find(txn, "me")
    assert live is not None
    s.broker.transactions.publish(live, s.broker.directory.queue("q"), b"4", "4")
    s.broker.transactions.discharge(txn, "me", fail=False, token="commit")
    s.broker.settlement.acknowledge(consumer, s.in_hand(consumer)[0], confirm=True)
    s.run()
    assert set(s.refused) == {"plain", "numbered"}
    assert list(s.discharge_refused) == ["commit"]
    assert s.acknowledged == [1]
    assert s.broker.directory.queue("q").depth == 0

    store.full = False
    s.broker.publisher.publish_numbered(s.broker.directory.queue("q"), b"3", "3", "again", producer, 1)
    s.run()
    assert s.confirmed[-1] == "again"
    assert s.crash().broker.directory.queue("q").depth == 1


def test_facts_of_a_failed_commit_are_not_recorded() -> None:
    store = FullStore()
    s = Scenario(store)
    store.full = True
    s.broker.publisher.publish(s.broker.directory.queue("q"), b"1", "1", "t")
    s.run()
    assert not any(isinstance(fact, MessageStored) for fact in s.facts)


def test_a_held_message_whose_return_is_being_recorded_is_still_its_holders() -> None:
    """A client that reconnects at once must not be told that what it holds was acknowledged."""
    s = Scenario()
    s.publish("q", b"1")
    lost = s.consumer("q", 1, exact=True, name="me")
    s.broker.presentations.present(lost, s.in_hand(lost)[0])
    s.broker.receivers.detach(lost, clean=False)
    back, elsewhere = s.broker.receivers.attach(
        s.broker.directory.queue("q"), None, "me", reports_presented=True, held=[1]
    )
    assert ([message.seq for message in back.first], elsewhere) == ([1], [])
    s.inbox[back] = []
    s.broker.receivers.flow(back, 1, False, s.now_us)
    s.run()
    assert s.received(back) == [b"1"]
    s.accept(back, *s.in_hand(back))
    assert s.broker.directory.queue("q").depth == 0
    assert s.broker.directory.queue("q").returning == 0


def test_what_a_long_transaction_received_counts_after_a_crash() -> None:
    """Promise 4: it was handed to the application."""
    s = Scenario()
    s.publish("q", b"1", b"2")
    consumer = s.consumer("q", 2)
    live = s.broker.transactions.find(s.broker.transactions.declare("me"), "me")
    assert live is not None
    s.broker.transactions.acknowledge(live, consumer, s.in_hand(consumer)[0])
    s.broker.tick(s.now_us)
    s.broker.tick(s.now_us)
    s.run()

    after = s.crash()
    after.consumer("q", 2)
    assert after.seen["q", 1] == (1, True)
    assert after.seen["q", 2] == (0, True)


def test_a_producer_that_left_costs_no_memory_and_is_still_known() -> None:
    s = Scenario()
    for number in range(3):
        producer = s.broker.producers.attach("p")
        s.broker.publisher.publish_numbered(s.broker.directory.queue("q"), b"x", "x", number, producer, number + 1)
        s.broker.producers.detach(producer, forget=False)
        s.run()
        assert s.broker.producers.attached == {}
    assert s.broker.producers.attach("p").last == 3
