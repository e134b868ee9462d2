"""Limits of addresses."""

from collections.abc import Callable, Sequence

import pytest

from legato import limits
from legato.core.effects import ScanAgain
from legato.core.facts import MessageMoved
from legato.core.producers import SINK_PREFIX
from legato.core.records import StoredMessage
from legato.core.settings import AddressSettings
from legato.core.staged_batches import StagedRun
from legato.core.transaction import Disposal
from legato.store.block_writer import new_blocks
from tests.support.scenario import Scenario


def test_a_full_address_refuses_and_takes_again_when_there_is_room() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=2, when_full="fail")
    s.publish("q", b"1", b"2", b"3")
    assert s.refused == {b"3": "amqp:resource-limit-exceeded"}
    consumer = s.consumer("q", 1)
    s.accept(consumer, *s.in_hand(consumer))
    s.publish("q", b"4")
    assert s.confirmed[-1] == b"4"


def test_a_numbered_send_that_was_refused_may_come_again() -> None:
    """Promise 1."""
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=1, when_full="fail")
    producer = s.broker.producers.attach("p")
    for number in (1, 2):
        s.broker.publisher.publish_numbered(s.broker.directory.queue("q"), b"%d" % number, "", number, producer, number)
    s.run()
    assert s.refused == {2: "amqp:resource-limit-exceeded"}
    consumer = s.consumer("q", 1)
    s.accept(consumer, *s.in_hand(consumer))
    s.broker.publisher.publish_numbered(s.broker.directory.queue("q"), b"2", "", "again", producer, 2)
    s.run()
    assert s.confirmed == [1, "again"]
    assert s.broker.directory.queue("q").depth == 1


def test_bytes_are_limited_too_and_known_after_a_takeover() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(max_bytes=100, when_full="fail")
    s.publish("q", b"x" * 60, b"y" * 60)
    assert s.broker.directory.queue("q").bytes == 120
    s.publish("q", b"z")
    assert list(s.refused) == [b"z"]
    other = s.crash()
    assert other.broker.directory.queue("q").bytes == 120


def test_producers_that_wait_are_told_of_room() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=2, when_full="block")
    assert s.broker.backpressure.room(s.broker.directory.queue("q")) == 2
    s.publish("q", b"1", b"2")
    assert s.broker.backpressure.room(s.broker.directory.queue("q")) == 0
    consumer = s.consumer("q", 2)
    assert s.rooms == []
    s.accept(consumer, *s.in_hand(consumer))
    assert s.rooms == ["q"]
    assert s.broker.backpressure.room(s.broker.directory.queue("q")) == 2


def test_producers_that_wait_are_told_of_room_that_others_did_not_fill_after_all() -> None:
    """The store was full: what had taken the room was refused."""
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=1, when_full="block")
    queue = s.broker.directory.queue("q")
    s.run()
    s.broker.publisher.publish(queue, b"1", "1", b"1")
    assert s.broker.backpressure.room(queue) == 0
    s.full = True
    s.run()
    assert list(s.refused) == [b"1"]
    assert s.rooms == ["q"]


def test_producers_that_wait_are_told_when_the_full_subscription_ends() -> None:
    s = Scenario()
    s.settings["t"] = AddressSettings(max_messages=1, when_full="block")
    topic = s.broker.directory.topic("t")
    full = s.broker.subscriptions.subscribe(topic, "full", container="a", durable=True, shared=False)
    s.broker.subscriptions.subscribe(topic, "empty", container="b", selector="red", durable=True, shared=False)
    s.publish(topic, b"1")
    assert s.broker.backpressure.room(topic) == 0
    s.broker.subscriptions.unsubscribe(full)
    s.run()
    assert s.rooms == [full.name]


@pytest.mark.parametrize(
    "settings",
    [
        AddressSettings(),
        AddressSettings(max_messages=5, when_full="block"),
        AddressSettings(max_messages=1, when_full="drop-oldest"),
        AddressSettings(max_messages=1, when_full="fail"),
        AddressSettings(max_messages=1, when_full="page"),
    ],
    ids=["no limit", "a higher limit", "drop-oldest", "fail", "page"],
)
def test_producers_go_on_when_settings_no_longer_make_them_wait(settings: AddressSettings) -> None:
    """The queue counted for ever as one whose producers wait: no acknowledgement of anybody's waited for company."""
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=1, when_full="block")
    s.publish("q", b"1")
    assert s.broker.backpressure.room(s.broker.directory.queue("q")) == 0
    s.settings["q"] = settings
    s.reload()
    s.run()
    assert s.rooms == ["q"]
    assert not s.broker.backpressure.starving


def test_the_oldest_go_when_settings_say_so_but_never_what_somebody_has() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=3, when_full="drop-oldest")
    s.publish("q", b"1")
    consumer = s.consumer("q", 1)
    s.publish("q", *(b"%d" % n for n in range(2, 8)))
    assert s.broker.directory.queue("q").depth == 3
    s.broker.receivers.flow(consumer, 10, False, s.now_us)
    s.run()
    assert s.received(consumer) == [b"1", b"6", b"7"]
    assert s.crash().broker.directory.queue("q").depth == 3


def test_what_came_back_goes_first_where_it_is_the_oldest() -> None:
    """A queue that selects dropped what was on disk only: each new message went, and what had come back stayed."""
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=3, when_full="drop-oldest")
    s.publish("q", b"group=a;1", b"group=a;2", b"group=a;3")
    consumer = s.consumer("q", 3)
    for message in s.in_hand(consumer):
        s.broker.settlement.release(consumer, message)
    s.publish("q", b"group=a;4")
    assert s.broker.directory.queue("q").selecting
    assert [fact.seq for fact in s.facts if isinstance(fact, MessageMoved)] == [1]
    s.broker.receivers.flow(consumer, 3, False, s.now_us)
    s.run()
    assert s.received(consumer)[3:] == [b"group=a;2", b"group=a;3", b"group=a;4"]


def test_a_limit_is_kept_of_a_queue_that_selects_whoever_had_its_messages() -> None:
    """Somebody has some, some came back, and some nobody has had: the oldest go, from wherever they are."""
    s = Scenario()
    s.publish("q", *(b"group=a;%d" % n for n in range(1, 9)))
    consumer = s.consumer("q", 6)
    first, second, third, fourth, *_ = s.in_hand(consumer)
    for message in (fourth, second, first):
        s.broker.settlement.release(consumer, message)
    s.settings["q"] = AddressSettings(max_messages=4, when_full="drop-oldest")
    s.reload()
    s.publish("q", b"group=a;9")
    assert [fact.seq for fact in s.facts if isinstance(fact, MessageMoved)] == [1, 2, 4, 7, 8]
    s.accept(consumer, third)
    s.publish("q", b"group=a;10", b"group=a;11")
    assert [fact.seq for fact in s.facts if isinstance(fact, MessageMoved)][5:] == [9]
    assert s.crash().broker.directory.queue("q").depth == 4


@pytest.mark.parametrize("end", ["released", "released in a transaction", "closed", "cut off"])
@pytest.mark.parametrize("wants", [None, b""], ids=["in a window", "on disk"])
def test_what_is_given_back_goes_before_the_next_message_comes(wants: bytes | None, end: str) -> None:
    """No commit follows from that; what was too much of it stayed until one came."""
    s = Scenario()
    consumer = s.consumer("q", 5, wants=wants)
    s.publish("q", b"1", b"2", b"3", b"4", b"5")
    s.settings["q"] = AddressSettings(max_messages=2, when_full="drop-oldest")
    s.reload()
    s.run()
    queue = s.broker.directory.queue("q")
    assert queue.depth == 5, "somebody has them"
    s.broker.receivers.flow(consumer, 0, False, s.now_us)
    if end == "released":
        for message in s.in_hand(consumer):
            s.broker.settlement.release(consumer, message)
    elif end == "released in a transaction":
        txn = s.broker.transactions.declare("me")
        transaction = s.broker.transactions.find(txn, "me")
        assert transaction is not None
        for message in s.in_hand(consumer):
            s.broker.transactions.acknowledge(transaction, consumer, message, Disposal())
        s.broker.transactions.discharge(txn, "me", fail=False, token="end")
    else:
        s.broker.receivers.detach(consumer, clean=end == "closed")
    s.run()
    assert queue.depth == 2
    s.run()
    assert [message.body for message in s.store.messages(queue.id, 0, 9, 1 << 20)] == [b"4", b"5"]


def test_what_is_given_back_and_wanted_does_not_go() -> None:
    """It is somebody's again before anything is dropped."""
    s = Scenario()
    one, two = s.consumer("q", 5), s.consumer("q", 0)
    s.publish("q", b"1", b"2", b"3", b"4", b"5")
    s.settings["q"] = AddressSettings(max_messages=2, when_full="drop-oldest")
    s.reload()
    s.broker.receivers.flow(one, 0, False, s.now_us)
    s.broker.receivers.flow(two, 4, False, s.now_us)
    for message in s.in_hand(one):
        s.broker.settlement.release(one, message)
    s.run()
    assert s.received(two) == [b"1", b"2", b"3", b"4"]
    assert s.broker.directory.queue("q").depth == 4


@pytest.mark.parametrize("wants", [None, b""], ids=["in a window", "on disk"])
def test_what_a_lowered_limit_makes_too_much_goes_in_slices(wants: bytes | None) -> None:
    """A backlog went in one turn of the loop, about 2 us a message: of a million, everybody waited for seconds."""
    s = Scenario()
    count = 3 * limits.SCAN_MESSAGES + 7
    s.publish("q", *(b"%d" % n for n in range(count)))
    consumer = s.consumer("q", 0, wants=wants)
    s.settings["q"] = AddressSettings(max_messages=3, when_full="drop-oldest")
    s.reload()
    s.publish("q", b"last")
    dropped = [
        sum(isinstance(fact, MessageMoved) for fact in record.facts)
        for _, record in s.store.log(0, 2 * limits.SCAN_MESSAGES)
    ]
    assert sum(dropped) == count - 2
    assert max(dropped) <= limits.SCAN_MESSAGES + 1, "as many as come with a commit are no part of the slice"
    s.broker.receivers.flow(consumer, 10, False, s.now_us)
    s.run()
    assert s.received(consumer) == [b"%d" % (count - 2), b"%d" % (count - 1), b"last"]


def publish_singly(s: Scenario, count: int) -> None:
    for _ in range(count):
        s.broker.publisher.publish(s.broker.directory.queue("q"), b"x", "m", None)


def publish_to_topic(s: Scenario, count: int) -> None:
    topic = s.broker.directory.topic("q")
    for _ in range(count):
        s.broker.publisher.publish(topic, b"x", "m", None)


def publish_batch(s: Scenario, count: int) -> None:
    bodies = [b"x"] * count
    blocks = [value for _, value, _ in new_blocks(dict(enumerate(bodies)), list(range(count)), 1, {})]
    run = StagedRun(s.broker.directory.queue("q"), 4, count, count, blocks)
    name = f"{SINK_PREFIX}{len(s.facts)}"
    s.broker.staged_batches.publish(name, 1, [run], [], None)


@pytest.mark.parametrize("consumer", ["nobody", "a consumer", "a consumer that selects"])
@pytest.mark.parametrize("publish", [publish_singly, publish_to_topic, publish_batch])
def test_a_limit_holds_after_each_commit_however_much_it_brings(
    publish: Callable[[Scenario, int], None], consumer: str
) -> None:
    """Of what was beyond a slice only the slices of later turns dropped some: it became more with each commit."""
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=100, when_full="drop-oldest")
    if publish is publish_to_topic:
        topic = s.broker.directory.topic("q")
        queue = s.broker.subscriptions.subscribe(topic, "s", container="a", durable=True, shared=False)
    else:
        queue = s.broker.directory.queue("q")
    if consumer != "nobody":
        s.consumer(queue, 0, wants=b"" if consumer == "a consumer that selects" else None)
    depths = []
    for _ in range(5):
        publish(s, 4 * limits.SCAN_MESSAGES)
        assert s.step()
        s.go_on()
        depths.append(queue.depth)
    assert depths == [100] * 5
    s.run()


def test_a_limit_of_bytes_holds_when_few_large_messages_follow_many_small_ones() -> None:
    """For each large one as many small ones go as weigh as much, though they are more than a slice."""
    s = Scenario()
    small, large = b"x" * 10, b"y" * 20_000
    most = 10 * 10 * limits.SCAN_MESSAGES
    s.settings["q"] = AddressSettings(max_bytes=most, when_full="drop-oldest")
    queue = s.broker.directory.queue("q")
    for _ in range(10 * limits.SCAN_MESSAGES):
        s.broker.publisher.publish(queue, small, "m", None)
    s.run()
    sizes = []
    for _ in range(5):
        s.broker.publisher.publish(queue, large, "m", None)
        assert s.step()
        sizes.append(queue.bytes)
    assert sizes == [most] * 2 + [2 * len(large)] * 3
    s.run()


@pytest.mark.parametrize("wants", [None, b""], ids=["a consumer", "a consumer that selects"])
def test_a_batch_of_any_size_is_dropped_in_slices(wants: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a batch brought went in one event, and in one commit: with a million rows that took many seconds."""
    monkeypatch.setattr(limits, "BATCH_FACTS_MAX", 1_000)
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=10, when_full="drop-oldest")
    queue = s.broker.directory.queue("q")
    s.consumer(queue, 0, wants=wants)
    publish_batch(s, 5_000)
    assert s.step()
    assert (
        sum(isinstance(fact, MessageMoved) for fact in s.broker.kernel.gathering.facts) <= 1_000 + limits.SCAN_MESSAGES
    )
    s.run()
    assert queue.depth == 10


def test_what_consumers_hold_is_passed_over_in_slices_where_bytes_are_limited() -> None:
    """For each message that came, all that a consumer held was read from the disk."""
    s = Scenario()
    count = 10 * limits.SCAN_MESSAGES
    queue = s.broker.directory.queue("q")
    for _ in range(count):
        s.broker.publisher.publish(queue, b"x", "m", None)
    s.run()
    s.consumer(queue, count, wants=b"")
    s.settings["q"] = AddressSettings(max_bytes=count, when_full="drop-oldest")
    s.reload()
    s.run()
    read: list[int] = []
    messages = s.store.messages

    def counted(queue: int, after: int, limit: int, limit_bytes: int) -> Sequence[StoredMessage]:
        found = messages(queue, after, limit, limit_bytes)
        read.append(len(found))
        return found

    s.store.messages = counted  # type: ignore[method-assign]
    s.broker.publisher.publish(queue, b"y", "m", None)
    assert s.step()
    assert sum(read) <= 2 * limits.SCAN_MESSAGES
    s.run()


def test_a_lowered_limit_goes_on_in_slices_while_more_comes() -> None:
    """Each commit has its own messages dropped, and a slice of what was too much before."""
    s = Scenario()
    s.publish("q", *(b"%d" % n for n in range(10 * limits.SCAN_MESSAGES)))
    s.settings["q"] = AddressSettings(max_messages=10, when_full="drop-oldest")
    other = s.crash()  # it begins with the lower limit
    queue = other.broker.directory.queue("q")
    depths = []
    for _ in range(3):
        publish_singly(other, 2 * limits.SCAN_MESSAGES)
        assert other.step()
        depths.append(queue.depth)
    assert depths == [(10 - commits) * limits.SCAN_MESSAGES for commits in (1, 2, 3)]
    other.run()
    assert queue.depth == 10


def test_a_lowered_limit_holds_before_the_next_message_comes() -> None:
    """What was too much stayed until something happened at the address."""
    s = Scenario()
    for name in ("q", "quiet", "other"):
        s.publish(name, *(b"%d" % n for n in range(6)))
        s.settings[name] = AddressSettings(max_messages=2, when_full="drop-oldest")
    s.settings["other"] = AddressSettings(max_messages=2, when_full="page")
    s.reload()
    s.run()
    assert [s.broker.directory.queue(name).depth for name in ("q", "quiet", "other")] == [2, 2, 6]
    assert s.scans == 1


def test_settings_of_many_addresses_are_applied_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100,000, the loop waited for a second."""
    s = Scenario()
    monkeypatch.setattr(limits, "SETTINGS_IN_ONE_GO", 2)
    names = ("q1", "q2", "q3", "q4", "q5")
    for name in names:
        s.publish(name, b"1")
        s.settings[name] = AddressSettings(max_messages=1, when_full="fail")
    limited = [
        sum(s.broker.directory.queue(name).limited for name in names) for _ in s.broker.administration.apply_settings()
    ]
    assert limited == [2, 4]
    assert s.broker.directory.queue("q5").limited


def test_dropping_waits_while_the_next_commit_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a slow disk the slices piled up in memory, and became one commit."""
    s = Scenario()
    monkeypatch.setattr(limits, "SCAN_MESSAGES", 5)
    monkeypatch.setattr(limits, "BATCH_FACTS_MAX", 20)
    s.publish("q", *(b"%d" % n for n in range(100)))
    s.settings["q"] = AddressSettings(max_messages=3, when_full="drop-oldest")
    s.reload()
    s.broker.publisher.publish(s.broker.directory.queue("q"), b"last", "last", None)
    assert s.step()
    assert s.go_on()
    assert s.broker.take_batch(s.now_us) is not None  # the disk is slow
    while s.go_on():
        pass
    assert len(s.broker.kernel.gathering.facts) == 20
    s.broker.committed(s.now_us)
    assert any(isinstance(effect, ScanAgain) for effect in s.broker.take_effects())


def test_a_transaction_that_finds_no_room_is_rolled_back() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=1, when_full="fail")
    s.publish("q", b"1")
    txn = s.broker.transactions.declare("me")
    transaction = s.broker.transactions.find(txn, "me")
    assert transaction is not None
    s.broker.transactions.publish(transaction, s.broker.directory.queue("q"), b"2", "2")
    s.broker.transactions.discharge(txn, "me", fail=False, token="end")
    s.run()
    assert s.discharge_refused == {"end": "amqp:transaction:rollback"}


def test_a_transaction_is_refused_if_all_that_it_sends_does_not_fit() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=3, when_full="fail")
    for count, fits in ((4, False), (3, True)):
        txn = s.broker.transactions.declare("me")
        transaction = s.broker.transactions.find(txn, "me")
        assert transaction is not None
        for number in range(count):
            s.broker.transactions.publish(transaction, s.broker.directory.queue("q"), b"%d" % number, "")
        s.broker.transactions.discharge(txn, "me", fail=False, token=count)
        s.run()
        assert (count in s.discharged) == fits
    assert s.broker.directory.queue("q").depth == 3
    assert "room for 3 more" in str(s.reasons[4])
