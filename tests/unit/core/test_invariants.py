"""Heap and store agree whenever nothing waits to be committed; each invariant is seen to fail once."""

from collections.abc import Callable

import pytest

from legato.core.consumers import Consumer, Reservation
from legato.core.invariants import violations
from legato.core.message import Message
from legato.core.queues import Queue
from legato.core.settings import AddressSettings
from legato.core.topics import Topic
from tests.support.scenario import Scenario

QUEUE, SECOND, OTHER = "q", "second", "other"


def scenario() -> Scenario:
    """A queue in whose window and in whose consumer's hands there is something, another one, a topic and more."""
    s = Scenario()
    s.publish(QUEUE, b"one", b"two", b"three", b"four", b"five", b"six")
    consumer = s.consumer(QUEUE, 0, exact=True, link="l")
    # What is corrupted here are single messages.
    consumer.takes_runs = False
    s.broker.receivers.flow(consumer, 2, False, s.now_us)
    s.run()
    s.present(consumer, 1)
    topic = s.broker.directory.create_topic("t")
    queue = s.broker.subscriptions.subscribe(topic, "sub", container="", durable=True, shared=False)
    s.run()
    s.publish(topic, b"for all")
    producer = s.broker.producers.attach("p")
    s.broker.publisher.publish_numbered(s.broker.directory.queue(OTHER), b"1", "1", "1", producer, 1)
    s.broker.transactions.declare("owner")
    s.broker.assignments.open("assignment://a", s.broker.directory.queue(OTHER))
    s.run()
    assert queue.depth == 1
    assert violations(s.broker, s.store) == []
    return s


def queue_of(s: Scenario) -> Queue:
    return s.broker.directory.queues[QUEUE]


def consumer_of(s: Scenario) -> Consumer:
    return next(iter(queue_of(s).consumers))


def topic_of(s: Scenario) -> Topic:
    return s.broker.directory.topics["t"]


def set_in_store(s: Scenario, name: str, value: object) -> None:
    """What the store says of the queue is changed behind the heap's back."""
    setattr(s.store._state.queues[queue_of(s).id], name, value)


def forget_queue(s: Scenario) -> None:
    del s.store._state.queues[queue_of(s).id]


def starve(s: Scenario) -> None:
    queue = queue_of(s)
    queue.settings = AddressSettings(max_messages=100, when_full="block")
    queue.starved = True
    s.broker.backpressure.starving.add(queue)


def take_out(s: Scenario) -> None:
    """A message is taken from the window and nobody has it."""
    lane = queue_of(s).main
    lane.window_bytes -= lane.ready.popleft().size


def give_twice(s: Scenario) -> None:
    lane = queue_of(s).main
    message = consumer_of(s).unsettled[1]
    lane.returned.append(message)
    message.waiting = True


def unlink(s: Scenario) -> None:
    consumer_of(s).unsettled[1].consumer = None


def unmark(s: Scenario) -> None:
    """What a consumer has is above the mark, here and in the store."""
    lane = queue_of(s).main
    lane.mark = lane.mark_pending = 1
    set_in_store(s, "dispatch_mark", 1)


def reserve(s: Scenario, *, key: tuple[str, str] = ("c", "gone"), presented: bool = True) -> None:
    """Something is kept for a consumer that has gone."""
    queue = queue_of(s)
    gone = Consumer(99, queue, None, "c", True, name="gone")
    reservation = queue.reservations[key] = Reservation(gone, 0, leads=False)
    message = queue.main.ready.popleft()
    assert isinstance(message, Message)
    queue.main.window_bytes -= message.size
    message.presented = presented
    reservation.messages[message.seq] = message
    s.broker.reservations.queues.add(queue)


def reserve_unknown(s: Scenario) -> None:
    reserve(s)
    s.broker.reservations.queues.clear()


def select(s: Scenario) -> None:
    """The queue selects from now on, and nothing was claimed."""
    queue_of(s).selecting = True


def lose_lane(s: Scenario) -> None:
    s.store._state.queues[queue_of(s).id].lanes = {7: (7 << 56 | 1, 0)}


def hold(s: Scenario) -> None:
    consumer_of(s).held_until_us = 1


def hold_first(s: Scenario) -> None:
    """What comes to it first is said to be waiting too."""
    consumer = consumer_of(s)
    message = consumer.unsettled.pop(1)
    message.consumer, message.waiting = None, True
    consumer.first.append(message)


def receive_in_transaction(s: Scenario) -> None:
    transaction = next(iter(s.broker.open_transactions.by_id.values()))
    consumer = consumer_of(s)
    message = consumer.unsettled[1]
    assert s.broker.transactions.acknowledge(transaction, consumer, message)
    message.consumer = None


def commit_without_heap(s: Scenario) -> None:
    s.store._state.outcomes[next(iter(s.broker.open_transactions.by_id))] = 1


def put_off(s: Scenario) -> None:
    schedule = s.broker.router.schedule
    s.run()
    schedule.uncommitted.add(1)


def unknown_number(s: Scenario) -> None:
    s.broker.directory.by_number[98] = topic_of(s)


def forget_producer(s: Scenario) -> None:
    s.store._state.producers.clear()


def refuse_in_heap(s: Scenario) -> None:
    s.broker.producers.attached["p"].refuse(2)


def add_to_lane(s: Scenario, name: str, by: int) -> None:
    lane = queue_of(s).main
    setattr(lane, name, getattr(lane, name) + by)


def pend(s: Scenario) -> None:
    s.broker.duplicates.window(queue_of(s)).last += 1


def say_waiting(s: Scenario) -> None:
    queue_of(s).main.ready[0].consumer = consumer_of(s)


def swap(s: Scenario) -> None:
    queue_of(s).main.ready.rotate(1)


def phantom(s: Scenario) -> None:
    consumer = consumer_of(s)
    consumer.unsettled[77] = Message(queue_of(s), 77, b"", 0, consumer=consumer)


def second_turn(s: Scenario) -> None:
    queue_of(s).ring.append(consumer_of(s))


def count_more(s: Scenario, name: str) -> None:
    setattr(queue_of(s), name, getattr(queue_of(s), name) + 1)


CORRUPTIONS: dict[str, Callable[[Scenario], object]] = {
    "it is in the store": forget_queue,
    "what was stored is counted alike": lambda s: count_more(s, "stored"),
    "what left is counted alike": lambda s: count_more(s, "consumed"),
    "bytes are counted alike": lambda s: count_more(s, "bytes"),
    "its depth is how many wait": lambda s: s.store._state.messages[queue_of(s).id].pop(6),
    "it is paused or not": lambda s: set_in_store(s, "paused", True),
    "it has groups or not": lambda s: set_in_store(s, "grouped", True),
    "nothing is on its way back": lambda s: count_more(s, "returning"),
    "producers are told of room": starve,
    "all its lanes are in the heap": lose_lane,
    "numbers are given once": lambda s: set_in_store(s, "last_seq", 100),
    "dispatch marks are in the store": lambda s: set_in_store(s, "dispatch_mark", 5),
    "what the heap has is in the store": phantom,
    "sizes are alike": lambda s: setattr(queue_of(s).main.ready[0], "size", 1),
    "failed deliveries are counted alike": lambda s: setattr(consumer_of(s).unsettled[1], "count", 3),
    "what the heap has is passed over on disk": select,
    "all that is stored is visible": lambda s: add_to_lane(s, "visible_seq", -1),
    "what is flagged is marked": lambda s: add_to_lane(s, "flag_upto", 50),
    "the window is of what is visible": lambda s: add_to_lane(s, "loaded_seq", 50),
    "the window is in order": swap,
    "there is no window while consumers select": select,
    "the window's bytes are counted": lambda s: add_to_lane(s, "window_bytes", 1),
    "what waits is nobody's": say_waiting,
    "what is claimed is in the store": lambda s: queue_of(s).main.claimed.add(50),
    "what a consumer has is its own": unlink,
    "what a consumer has is marked": unmark,
    "what comes first is nobody else's": hold_first,
    "credit is not exceeded": lambda s: setattr(consumer_of(s), "credit", -1),
    "who can be given a message has a turn": second_turn,
    "what is kept is for who is away": lambda s: reserve(s, key=("another", "")),
    "what is kept was presented and is nobody else's": lambda s: reserve(s, presented=False),
    "a message is in one place": give_twice,
    "what waits can be had": take_out,
    "its duplicate ids are in the store": pend,
    "an assignment stands as in the store": lambda s: setattr(
        next(iter(s.broker.assignments.by_number.values())), "acknowledged", 9
    ),
    "nothing is on its way into it or out of it": put_off,
    "what has a name has a number": unknown_number,
    "queues with reservations are known": reserve_unknown,
    "queues whose producers wait are known": lambda s: setattr(queue_of(s), "starved", True),
    "queues that hold something back are known": hold,
    "a deleted queue keeps nothing and nobody": lambda s: s.broker.backpressure.starving.add(deleted_queue(s)),
    "a producer that is attached is in the store": forget_producer,
    "a producer's numbers are in the store": refuse_in_heap,
    "no transaction is being committed": lambda s: s.broker.transactions.committing.add(b"x"),
    "a live transaction has no outcome": commit_without_heap,
    "what it received is its consumer's": receive_in_transaction,
    "publications are counted alike": lambda s: setattr(topic_of(s), "stored", 9),
    "all its subscriptions are in the heap": lambda s: topic_of(s).subscriptions.clear(),
}
"""By the name of the invariant: what breaks it."""


def deleted_queue(s: Scenario) -> Queue:
    queue = s.broker.directory.queue("gone")
    s.run()
    s.broker.deletion.delete(queue)
    s.run()
    return queue


@pytest.mark.parametrize("invariant", CORRUPTIONS)
def test_each_invariant_fails_when_what_it_is_about_is_corrupted(invariant: str) -> None:
    s = scenario()
    CORRUPTIONS[invariant](s)
    assert invariant in {violation.invariant for violation in violations(s.broker, s.store)}


def test_what_is_read_is_bounded() -> None:
    """A broker looks at itself while it serves: what it does not read it does not judge."""
    s = scenario()
    s.store._state.messages[queue_of(s).id].pop(6)
    invariants = {violation.invariant for violation in violations(s.broker, s.store, messages_max=2)}
    assert "its depth is how many wait" not in invariants


def test_what_left_before_a_queue_selects_is_not_claimed_for_good() -> None:
    """Stale sequences stayed in `lane.claimed` when acknowledgements were uncommitted as consumers began to select."""
    s = Scenario()
    s.publish("q", b"red 1", b"blue 2")
    first = s.consumer("q", 2)
    for message in s.in_hand(first):
        assert s.broker.settlement.acknowledge(first, message, confirm=False)
    s.consumer("q", 1, wants=b"red")
    assert s.broker.directory.queue("q").main.claimed == set()


def test_what_comes_back_after_a_failed_commit_of_a_selecting_queue_is_given_once() -> None:
    """The transaction's messages were claimed as it committed; they wait again when there is no room for its sends."""
    s = Scenario()
    s.publish("q", b"red 1")
    first = s.consumer("q", 1)
    txn = s.broker.transactions.declare("me")
    transaction = s.broker.transactions.find(txn, "me")
    assert transaction is not None
    assert s.broker.transactions.acknowledge(transaction, first, s.in_hand(first)[0])
    s.broker.transactions.publish(transaction, s.broker.directory.queue("out"), b"x", "x")
    s.full = True
    s.broker.transactions.discharge(txn, "me", fail=False, token="t")
    second = s.consumer("q", 5, wants=b"red")
    s.run()
    assert "t" in s.discharge_refused
    s.broker.receivers.flow(first, 5, False, s.now_us)
    s.run()
    assert s.received(first)[1:] + s.received(second) == [b"red 1"]


def test_a_place_in_the_schedule_is_free_again_when_there_was_no_room() -> None:
    s = Scenario()
    s.publish("q", b"first", deliver_us=s.now_us + 5_000_000)
    s.full = True
    s.publish("q", b"refused", deliver_us=s.now_us + 5_000_000)
    assert s.broker.router.schedule.uncommitted == set()
