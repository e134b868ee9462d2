"""Duplicate ids: an address stores one message of each that it remembers, whatever becomes of the message."""

import pytest

from legato.core.facts import DuplicateIdDropped, DuplicateIdKept, MessageStored
from legato.core.producers import Producer
from legato.core.refusals import FULL
from legato.core.settings import AddressSettings
from legato.core.topics import Node
from legato.core.traits import Traits
from tests.support.scenario import Scenario


def send(s: Scenario, token: str, duplicate_id: bytes, *, to: Node | str = "q", message_id: str = "") -> None:
    """Publish without committing; the body is the token."""
    node = s.broker.directory.queue(to) if isinstance(to, str) else to
    s.broker.publisher.publish(node, token.encode(), message_id or token, token, Traits(duplicate_id=duplicate_id))


def send_numbered(s: Scenario, token: str, duplicate_id: bytes, producer: Producer, number: int) -> None:
    """Likewise, by a producer that numbers its messages."""
    traits = Traits(duplicate_id=duplicate_id)
    s.broker.publisher.publish_numbered(
        s.broker.directory.queue("q"), token.encode(), token, token, producer, number, traits
    )


def send_in(s: Scenario, txn: bytes, token: str, duplicate_id: bytes) -> bool:
    """Send in a transaction, wanting to be told."""
    transaction = s.broker.transactions.find(txn, "me")
    assert transaction is not None
    traits = Traits(duplicate_id=duplicate_id)
    return s.broker.transactions.publish(
        transaction, s.broker.directory.queue("q"), token.encode(), token, traits, "me", token
    )


def waiting(s: Scenario, queue: str = "q") -> list[bytes]:
    """What the store has of a queue."""
    record = s.store.queue(queue)
    return [] if record is None else [message.body for message in s.store.messages(record.queue, 0, 100, 1 << 20)]


def dropped(s: Scenario) -> list[DuplicateIdDropped]:
    return [fact for fact in s.facts if isinstance(fact, DuplicateIdDropped)]


def test_the_second_message_of_an_id_is_confirmed_and_not_stored() -> None:
    """CONTRACT E15, E19."""
    s = Scenario()
    send(s, "first", b"a")
    s.run()
    send(s, "again", b"a")
    send(s, "other", b"b")
    s.run()
    assert waiting(s) == [b"first", b"other"]
    assert (s.confirmed, s.duplicates) == (["first", "other"], ["again"])


def test_the_facts_say_what_was_kept_and_what_was_dropped() -> None:
    s = Scenario()
    queue, producer = s.broker.directory.queue("q"), s.broker.producers.attach("p")
    send_numbered(s, "first", b"a", producer, 1)
    send_numbered(s, "again", b"a", producer, 2)
    s.run()
    assert [fact for fact in s.facts if isinstance(fact, DuplicateIdKept)] == [
        DuplicateIdKept(queue.id, b"a", 20_000, "first", producer.id, 1)
    ]
    assert dropped(s) == [DuplicateIdDropped(queue.id, b"a", "again", "first", producer.id, 2)]
    record = s.store.producer("p")
    assert record is not None
    assert record.last_number == 2


def test_nobody_hears_of_a_duplicate_before_the_first_one_is_durable() -> None:
    s = Scenario()
    send(s, "first", b"a")
    assert s.broker.take_batch(s.now_us) is not None
    send(s, "again", b"a")
    assert s.broker.take_effects() == []


def test_messages_without_an_id_leave_no_trace() -> None:
    s = Scenario()
    s.publish("q", b"1", b"2", priority=9)
    assert [fact for fact in s.facts if isinstance(fact, DuplicateIdKept)] == []
    assert s.broker.duplicates.counts_of(s.broker.directory.queue("q")) == (0, 0)


def test_a_window_that_overflows_forgets_the_oldest() -> None:
    """CONTRACT E19."""
    s = Scenario()
    s.settings["q"] = AddressSettings(duplicate_window=2)
    for name in ("1", "2", "3"):
        send(s, name, name.encode())
    send(s, "3 again", b"3")
    s.run()
    send(s, "2 again", b"2")
    send(s, "1 again", b"1")
    s.run()
    send(s, "2 for the third time", b"2")
    s.run()
    assert s.duplicates == ["3 again", "2 again"]
    assert waiting(s) == [b"1", b"2", b"3", b"1 again", b"2 for the third time"]
    assert s.broker.duplicates.counts_of(s.broker.directory.queue("q")) == (2, 2)


def test_ids_count_for_the_window_once_they_are_durable() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(duplicate_window=2)
    send(s, "1", b"1")
    s.run()
    send(s, "2", b"2")
    send(s, "3", b"3")
    send(s, "1 again", b"1")
    s.run()
    send(s, "1 for the third time", b"1")
    s.run()
    assert s.duplicates == ["1 again"]
    assert waiting(s) == [b"1", b"2", b"3", b"1 for the third time"]


def test_an_id_that_finds_no_room_pushes_no_other_out_of_the_window() -> None:
    """CONTRACT E15. The simulator found it, seed 5203882."""
    s = Scenario()
    s.settings["q"] = AddressSettings(duplicate_window=1)
    send(s, "1", b"1")
    s.run()
    send(s, "2", b"2")
    assert s.broker.take_batch(s.now_us) is not None
    send(s, "1 again", b"1")
    s.broker.failed("no room")
    s.run()
    assert s.refused == {"2": FULL}
    assert s.duplicates == ["1 again"]
    assert waiting(s) == [b"1"]


def test_a_changed_setting_changes_the_window() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(duplicate_window=3)
    for name in ("1", "2", "3"):
        send(s, name, name.encode())
    s.run()
    s.settings["q"] = AddressSettings(duplicate_window=1)
    s.reload()
    assert s.broker.duplicates.counts_of(s.broker.directory.queue("q")) == (1, 0)
    send(s, "2 again", b"2")
    s.run()
    send(s, "3 again", b"3")
    s.settings["q"] = AddressSettings(duplicate_window=100)
    s.reload()
    send(s, "3 once more", b"3")
    s.run()
    assert s.duplicates == ["3 once more"]


def test_a_window_of_none_remembers_nothing() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(duplicate_window=0, duplicate_detection="message-id")
    send(s, "1", b"1")
    send(s, "2", b"1")
    s.run()
    assert waiting(s) == [b"1", b"2"]


def test_a_takeover_keeps_the_window_and_reads_nothing_of_it() -> None:
    """CONTRACT E15; promise 6."""
    s = Scenario()
    send(s, "first", b"a")
    s.run()
    after = s.crash()
    assert after.broker.duplicates.windows == {}
    send(after, "again", b"a")
    after.run()
    assert after.duplicates == ["again"]
    assert waiting(after) == [b"first"]


def test_what_becomes_of_a_message_does_not_free_its_id() -> None:
    """CONTRACT E19: consumed, expired, purged, or dead."""
    s = Scenario()
    s.settings["q"] = AddressSettings(maximum_deliveries=1)
    queue = s.broker.directory.queue("q")
    send(s, "consumed", b"1")
    s.run()
    consumer = s.consumer("q", 1)
    s.accept(consumer, *s.in_hand(consumer))
    send(s, "rejected", b"2")
    s.run()
    s.broker.receivers.flow(consumer, 1, False, s.now_us)
    s.run()
    s.broker.settlement.reject(consumer, s.in_hand(consumer)[0], "no")
    s.run()
    assert len(waiting(s, "DLQ.q")) == 1
    expiring = Traits(duplicate_id=b"3", expires_us=s.now_us + 50_000)
    s.broker.publisher.publish(queue, b"expiring", "3", "3", expiring)
    send(s, "purged", b"4")
    s.wait(0.3)
    s.broker.administration.purge(queue, "purge")
    s.run()
    assert waiting(s) == []
    for duplicate_id in (b"1", b"2", b"3", b"4"):
        send(s, duplicate_id.decode() + " again", duplicate_id)
    s.run()
    assert s.duplicates == ["1 again", "2 again", "3 again", "4 again"]


def test_dead_letters_and_moved_messages_bring_no_ids_along() -> None:
    s = Scenario()
    send(s, "1", b"a")
    send(s, "2", b"a", to="r")
    s.run()
    s.broker.administration.move(s.broker.directory.queue("r"), s.broker.directory.queue("q"), "moved")
    s.run()
    assert waiting(s) == [b"1", b"2"]


def test_every_address_has_its_own_window_and_all_subscriptions_of_a_topic_one() -> None:
    s = Scenario()
    topic = s.broker.directory.topic("t")
    for name in ("one", "two"):
        s.broker.subscriptions.subscribe(topic, name, container="me", durable=True, shared=True)
    send(s, "to the queue", b"a")
    send(s, "to the topic", b"a", to=topic)
    send(s, "again", b"a", to=topic)
    send(s, "to another topic", b"a", to=s.broker.directory.topic("other"))
    s.run()
    assert s.duplicates == ["again"]
    assert [waiting(s, name) for name in ("q", "one", "two")] == [
        [b"to the queue"],
        [b"to the topic"],
        [b"to the topic"],
    ]


def test_a_delayed_message_is_remembered_from_when_it_was_sent() -> None:
    s = Scenario()
    queue = s.broker.directory.queue("q")
    s.broker.publisher.publish(queue, b"later", "1", "later", Traits(duplicate_id=b"a", deliver_us=s.now_us + 200_000))
    send(s, "again", b"a")
    s.run()
    assert s.duplicates == ["again"]
    s.wait(0.5)
    assert waiting(s) == [b"later"]


def test_a_deleted_queue_takes_its_window_with_it() -> None:
    s = Scenario()
    send(s, "1", b"a")
    s.run()
    s.broker.deletion.delete(s.broker.directory.queue("q"))
    s.run()
    send(s, "2", b"a")
    s.run()
    assert waiting(s) == [b"2"]


def test_message_ids_count_where_settings_say_so() -> None:
    """Promise 1: for clients that send a message again with the same JMS message id."""
    s = Scenario()
    s.settings["q"] = AddressSettings(duplicate_detection="message-id")
    send(s, "first", b"", message_id="ID:1")
    send(s, "again", b"", message_id="ID:1")
    send(s, "named", b"name", message_id="ID:1")
    send(s, "anonymous", b"")
    s.run()
    assert s.duplicates == ["again"]
    assert waiting(s) == [b"first", b"named", b"anonymous"]
    s.settings["q"] = AddressSettings()
    s.reload()
    send(s, "now it is stored", b"", message_id="ID:1")
    s.run()
    assert s.duplicates == ["again"]


def test_a_duplicate_needs_no_room() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=1, when_full="fail")
    send(s, "first", b"a")
    s.run()
    send(s, "again", b"a")
    send(s, "refused", b"b")
    s.run()
    assert s.duplicates == ["again"]
    assert s.refused == {"refused": FULL}
    s.broker.administration.purge(s.broker.directory.queue("q"), "purge")
    s.run()
    send(s, "second try", b"b")
    s.run()
    assert waiting(s) == [b"second try"]


# -- numbered producers ----------------------------------------------------------------------------------------


def test_a_resent_duplicate_is_a_duplicate_again_and_a_resent_first_one_is_not() -> None:
    """A client that lost the broker resends: it must hear what it would have heard."""
    s = Scenario()
    producer = s.broker.producers.attach("p")
    send_numbered(s, "first", b"a", producer, 1)
    send_numbered(s, "duplicate", b"a", producer, 2)
    s.run()
    after = s.crash()
    producer = after.broker.producers.attach("p")
    send_numbered(after, "first resent", b"a", producer, 1)
    send_numbered(after, "duplicate resent", b"a", producer, 2)
    after.run()
    assert (after.confirmed, after.duplicates) == (["first resent"], ["duplicate resent"])
    assert waiting(after) == [b"first"]


def test_what_is_resent_after_its_id_was_forgotten_is_not_stored_again_whatever_its_sender_hears() -> None:
    """CONTRACT E19; promise 1: of a number only is known that it was handled."""
    s = Scenario()
    s.settings["q"] = AddressSettings(duplicate_window=1)
    producer = s.broker.producers.attach("p")
    send_numbered(s, "first", b"a", producer, 1)
    send_numbered(s, "duplicate", b"a", producer, 2)
    send_numbered(s, "other", b"b", producer, 3)
    s.run()
    assert s.duplicates == ["duplicate"]
    send_numbered(s, "duplicate resent", b"a", producer, 2)
    send_numbered(s, "later", b"a", producer, 4)
    send_numbered(s, "first resent", b"a", producer, 1)
    s.run()
    assert s.confirmed == ["first", "other", "duplicate resent", "later"]
    assert s.duplicates == ["duplicate", "first resent"]
    assert waiting(s) == [b"first", b"other", b"later"]


# -- transactions ----------------------------------------------------------------------------------------------


def test_of_two_transactions_with_the_same_id_the_second_to_commit_drops_it() -> None:
    """CONTRACT E15; unlike E19 the rest of the transaction commits."""
    s = Scenario()
    one, two = s.broker.transactions.declare("me"), s.broker.transactions.declare("me")
    assert send_in(s, one, "one", b"a")
    assert send_in(s, two, "two", b"a")
    assert send_in(s, two, "rest", b"b")
    s.run()
    assert s.settled == {}
    s.broker.transactions.discharge(two, "me", fail=False, token="two")
    s.broker.transactions.discharge(one, "me", fail=False, token="one")
    s.run()
    assert s.settled == {"two": False, "rest": False, "one": True}
    assert s.discharged == ["two", "one"]
    assert waiting(s) == [b"two", b"rest"]
    assert [fact.txn for fact in dropped(s)] == [one]
    assert s.store.outcome(one), "a transaction of which nothing was left has an outcome too"


@pytest.mark.parametrize("how", ["client", "disconnect", "crash"])
def test_a_transaction_that_is_rolled_back_gives_its_ids_back(how: str) -> None:
    s = Scenario()
    txn = s.broker.transactions.declare("me")
    send_in(s, txn, "lost", b"a")
    if how == "client":
        s.broker.transactions.discharge(txn, "me", fail=True, token="t")
    elif how == "disconnect":
        s.broker.transactions.disconnect("me")
    s.run()
    if how == "crash":
        s = s.crash()
    else:
        assert s.settled == {"lost": False}
    send(s, "stored", b"a")
    s.run()
    assert s.duplicates == []
    assert waiting(s) == [b"stored"]


def test_a_repeated_id_within_a_transaction_is_stored_once() -> None:
    s = Scenario()
    txn = s.broker.transactions.declare("me")
    send_in(s, txn, "one", b"a")
    send_in(s, txn, "two", b"a")
    s.broker.transactions.discharge(txn, "me", fail=False, token="t")
    s.run()
    assert s.settled == {"one": False, "two": True}
    assert waiting(s) == [b"one"]


def test_a_retried_commit_whose_outcome_was_unknown_stores_nothing_twice() -> None:
    """CONTRACT E14, E15, E16: it had committed, and the application sends all of it again with the same ids."""
    s = Scenario()
    for attempt in ("first", "second"):
        txn = s.broker.transactions.declare("me")
        for duplicate_id in (b"1", b"2"):
            send_in(s, txn, f"{attempt} {duplicate_id.decode()}", duplicate_id)
        s.broker.transactions.discharge(txn, "me", fail=False, token=attempt)
        assert s.step()
        s = s.crash()
    assert waiting(s) == [b"first 1", b"first 2"]


# -- no room -------------------------------------------------------------------------------------------------


def test_duplicates_of_a_message_that_found_no_room_are_refused_with_it() -> None:
    """Nobody may hear that a message is stored which is not (promise 1)."""
    s = Scenario()
    send(s, "first", b"a")
    send(s, "in the same commit", b"a")
    batch = s.broker.take_batch(s.now_us)
    assert batch is not None
    send(s, "while it is committed", b"a")
    s.broker.failed("no room")
    s.run()
    assert s.refused == dict.fromkeys(["first", "in the same commit", "while it is committed"], FULL)
    assert (s.confirmed, s.duplicates) == ([], [])
    send(s, "second try", b"a")
    s.run()
    assert waiting(s) == [b"second try"]
    assert len(dropped(s)) == 0


def test_a_transaction_with_duplicates_of_what_found_no_room_is_rolled_back() -> None:
    s = Scenario()
    send(s, "first", b"a")
    assert s.broker.take_batch(s.now_us) is not None
    txn = s.broker.transactions.declare("me")
    send_in(s, txn, "again", b"a")
    s.broker.transactions.discharge(txn, "me", fail=False, token="t")
    s.broker.failed("no room")
    s.run()
    assert s.discharge_refused == {"t": FULL}
    assert not s.store.outcome(txn)
    assert waiting(s) == []


def test_duplicates_of_what_is_durable_survive_a_commit_that_finds_no_room() -> None:
    s = Scenario()
    send(s, "first", b"a")
    s.run()
    s.full = True
    send(s, "again", b"a")
    send(s, "refused", b"b")
    s.run()
    assert (s.refused, s.duplicates) == ({"refused": FULL}, ["again"])
    assert [fact.message_id for fact in dropped(s)] == ["again"]


def test_a_resend_of_a_number_that_finds_no_room_is_refused_too() -> None:
    """The first of them was lost with its connection: confirming the second would lose the message (promise 1)."""
    s = Scenario()
    queue, producer = s.broker.directory.queue("q"), s.broker.producers.attach("p")
    s.broker.publisher.publish_numbered(queue, b"1", "1", "on a lost connection", producer, 1)
    s.broker.publisher.publish_numbered(queue, b"1", "1", "resent", producer, 1)
    s.full = True
    s.run()
    assert s.confirmed == []
    assert s.refused == {"on a lost connection": FULL, "resent": FULL}
    s.broker.publisher.publish_numbered(queue, b"1", "1", "again", producer, 1)
    s.run()
    assert s.confirmed == ["again"]
    assert sum(isinstance(fact, MessageStored) for fact in s.facts) == 1
