"""What was staged is published in one commit, once, and is messages like any others."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import pytest

from legato import limits
from legato.core.facts import BatchPublished, DuplicateDropped
from legato.core.producers import ONCE_PREFIX, SINK_PREFIX
from legato.core.published_batches import BatchIdentity
from legato.core.queues import Queue
from legato.core.refusals import NotFound, Refusal
from legato.core.router import Router
from legato.core.settings import AddressSettings
from legato.core.staged_batches import UNKNOWN_BATCH, BatchBrokenOffError, StagedMessage, StagedRun
from legato.core.steady import STEP_MAX_US
from legato.core.traits import Traits
from legato.errors import StoreCorruptError
from legato.store.block_writer import new_blocks
from tests.support.scenario import Scenario

SINK = "sink://s"


@pytest.fixture
def s() -> Scenario:
    return Scenario()


def run_of(queue: Queue, *bodies: bytes, priority: int = 4, grouped: bool = False) -> StagedRun:
    blocks = [value for _, value, _ in new_blocks(dict(enumerate(bodies)), list(range(len(bodies))), 1, {})]
    return StagedRun(queue, priority, len(bodies), sum(map(len, bodies)), blocks, grouped)


def publish(
    s: Scenario, number: int, *bodies: bytes, token: Any = "t", messages: tuple[StagedMessage, ...] = ()
) -> None:
    runs = [run_of(s.broker.directory.queue("q"), *bodies)] if bodies else []
    s.broker.staged_batches.publish(SINK, number, runs, messages, token)
    s.run()


def received(s: Scenario, queue: str = "q") -> list[bytes]:
    return s.received(s.consumer(queue, 1000))


def test_a_batch_is_delivered_in_order_behind_what_waits(s: Scenario) -> None:
    s.publish("q", b"before")
    publish(s, 1, *[b"%d" % n for n in range(300)])
    s.publish("q", b"behind")
    assert s.staged == {"t": 300}
    assert received(s) == [b"before", *[b"%d" % n for n in range(300)], b"behind"]


def test_a_batch_without_rows_is_confirmed_although_nothing_else_is_to_be_committed(s: Scenario) -> None:
    publish(s, 1)
    publish(s, 1, token="again")
    assert s.staged == {"t": 0, "again": 0}
    assert s.broker.idle
    assert not any(isinstance(fact, DuplicateDropped) for fact in s.facts), "nothing of it is stored: no duplicate"


def test_a_message_of_the_same_commit_does_not_hide_the_batch_before_it(s: Scenario) -> None:
    """Somebody received: the window reached up to the message, and the batch waited for the next takeover."""
    consumer = s.consumer("q", 10)
    queue = s.broker.directory.queue("q")
    s.broker.staged_batches.publish(SINK, 1, [run_of(queue, b"1", b"2")], [], "t")
    s.broker.publisher.publish(queue, b"3", "3", b"3")
    s.run()
    assert s.received(consumer) == [b"1", b"2", b"3"]


def test_who_waits_already_gets_it_when_it_is_durable(s: Scenario) -> None:
    consumer = s.consumer("q", 10)
    publish(s, 1, b"1", b"2")
    assert s.received(consumer) == [b"1", b"2"]


def test_a_repeated_batch_is_confirmed_and_not_stored(s: Scenario) -> None:
    publish(s, 1, b"1", token="first")
    publish(s, 1, b"1", token="again")
    after = s.crash()
    publish(after, 1, b"1", token="after a crash")
    assert (s.staged, after.staged) == ({"first": 1, "again": 0}, {"after a crash": 0})
    assert received(after) == [b"1"]
    assert after.broker.staged_batches.is_published(SINK, 1)
    assert not after.broker.staged_batches.is_published(SINK, 2)


def test_a_batch_of_many_destinations_and_priorities_is_one_commit(s: Scenario) -> None:
    s.consumer("q", 0)
    runs = [
        run_of(s.broker.directory.queue("q"), b"normal"),
        run_of(s.broker.directory.queue("q"), b"urgent", priority=9),
        run_of(s.broker.directory.queue("r"), b"other"),
    ]
    s.broker.staged_batches.publish(SINK, 1, runs, [], "t")
    batch = s.broker.take_batch(s.now_us)
    assert batch is not None
    assert len(batch.runs) == 3
    s.store.commit(batch)
    s.broker.committed(s.now_us)
    s.run()
    assert received(s) == [b"urgent", b"normal"]
    assert received(s, "r") == [b"other"]


def test_topics_and_later_deliveries_are_part_of_the_batch(s: Scenario) -> None:
    topic = s.broker.directory.topic("t")
    subscription = s.broker.subscriptions.subscribe(topic, "one", container="", durable=True, shared=True)
    later = Traits(deliver_us=s.now_us + 500_000)
    messages = (
        StagedMessage(topic, b"news", "ID:1", Traits()),
        StagedMessage(s.broker.directory.queue("q"), b"later", "ID:2", later),
    )
    publish(s, 1, b"now", messages=messages)
    assert s.staged == {"t": 3}
    assert s.received(s.consumer(subscription, 5)) == [b"news"]
    consumer = s.consumer("q", 5)
    assert s.received(consumer) == [b"now"]
    s.wait(1)
    assert s.received(consumer) == [b"later"]


def test_a_batch_that_finds_no_room_is_refused_as_a_whole_and_can_come_again(s: Scenario) -> None:
    topic = s.broker.directory.topic("t")
    subscription = s.broker.subscriptions.subscribe(topic, "one", container="", durable=True, shared=True)
    news = (StagedMessage(topic, b"news", "ID:1", Traits()),)
    s.full = True
    publish(s, 1, b"1", b"2", token="full", messages=news)
    assert "full" in s.refused
    assert s.broker.directory.queue("q").depth == 0
    publish(s, 1, b"1", b"2", token="again", messages=news)
    assert s.staged == {"again": 3}
    assert received(s) == [b"1", b"2"]
    assert s.received(s.consumer(subscription, 5)) == [b"news"]


def test_a_crash_before_the_commit_leaves_nothing(s: Scenario) -> None:
    s.broker.staged_batches.publish(SINK, 1, [run_of(s.broker.directory.queue("q"), b"1")], [], "t")
    after = s.crash()
    assert after.broker.directory.queue("q").depth == 0
    publish(after, 1, b"1")
    assert received(after) == [b"1"]


def test_two_requests_for_one_batch_do_not_both_count(s: Scenario) -> None:
    run = run_of(s.broker.directory.queue("q"), b"1")
    s.broker.staged_batches.publish(SINK, 1, [run], [], "first")
    with pytest.raises(Refusal, match="ask again"):
        s.broker.staged_batches.publish(SINK, 1, [run], [], "second")
    s.run()
    assert received(s) == [b"1"]


def test_a_full_address_refuses_a_batch_before_anything_is_stored(s: Scenario) -> None:
    s.settings["q"] = AddressSettings(max_messages=2, when_full="block")
    with pytest.raises(Refusal, match="room for 2"):
        publish(s, 1, b"1", b"2", b"3")
    publish(s, 1, b"1", b"2")
    assert received(s) == [b"1", b"2"]


@pytest.mark.parametrize("when_full", ["fail", "block"])
@pytest.mark.parametrize("kind", ["run", "queue", "topic", "later"])
def test_an_address_that_is_full_in_the_middle_of_a_batch_refuses_all_of_it(
    s: Scenario, kind: str, when_full: Literal["fail", "block"]
) -> None:
    """The rows from there on were lost, and the batch was told as published."""
    s.settings["q"] = s.settings["t"] = AddressSettings(max_bytes=1000, when_full=when_full, duplicate_window=100)
    queue, topic = s.broker.directory.queue("q"), s.broker.directory.topic("t")
    subscription = s.broker.subscriptions.subscribe(topic, "one", container="", durable=True, shared=True)
    bodies = [b"%03d" % number + b"x" * 97 for number in range(11)]

    def ask(count: int) -> None:
        runs, messages = [], []
        for number, body in enumerate(bodies[:count]):
            if kind == "run":
                runs.append(run_of(queue, body))
            else:
                due_us = s.now_us + 500_000 if kind == "later" else 0
                traits = Traits(deliver_us=due_us, duplicate_id=b"%d" % number)
                messages.append(StagedMessage(topic if kind == "topic" else queue, body, f"ID:{number}", traits))
        s.broker.staged_batches.publish(SINK, 1, runs, messages, "t")
        s.run()

    with pytest.raises(Refusal, match="room for 1000 bytes; the batch has 1100"):
        ask(11)
    assert s.refused == {}
    ask(10)
    assert s.staged == {"t": 10}
    s.wait(1)
    assert s.received(s.consumer(subscription if kind == "topic" else queue, 100)) == bodies[:10]


def test_the_last_message_of_a_batch_may_go_past_the_limit_as_any_other_may(s: Scenario) -> None:
    s.settings["q"] = AddressSettings(max_bytes=1000, when_full="fail", duplicate_window=100)
    queue = s.broker.directory.queue("q")
    large = StagedMessage(queue, b"x" * 5000, "ID:1", Traits(duplicate_id=b"d"))
    publish(s, 1, b"y" * 999, messages=(large,))
    assert s.staged == {"t": 2}
    with pytest.raises(Refusal, match="is full"):
        publish(s, 2, b"z")


@pytest.mark.parametrize("kind", ["duplicate id", "place in the schedule"])
def test_a_batch_of_which_something_cannot_be_read_is_not_stored_and_may_come_again(
    s: Scenario, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows before that were stored, and the batch was told as published when it came again."""
    s.settings["q"] = AddressSettings(duplicate_window=100)
    queue = s.broker.directory.queue("q")
    s.publish(queue, b"first", duplicate_id=b"0")
    later_us = s.now_us + 500_000 if kind == "place in the schedule" else 0
    messages = tuple(
        StagedMessage(queue, b"%d" % number, f"ID:{number}", Traits(duplicate_id=b"%d" % number, deliver_us=later_us))
        for number in (0, 1, 2, 2)
    )
    reads = 0

    def twice_and_no_more(*arguments: Any, read: Any) -> Any:
        nonlocal reads
        reads += 1
        if reads > 2:
            raise StoreCorruptError("it is not what was written")
        return read(*arguments)

    name = "messages" if later_us else "duplicate"
    with monkeypatch.context() as patch:
        patch.setattr(s.store, name, partial(twice_and_no_more, read=getattr(s.store, name)))
        messages = (*messages, StagedMessage(queue, b"3", "ID:3", Traits(duplicate_id=b"3", deliver_us=later_us)))
        with pytest.raises(StoreCorruptError):
            s.broker.staged_batches.publish(SINK, 1, [run_of(queue, b"run")], messages, "t")
    assert not s.broker.staged_batches.is_published(SINK, 1)
    s.run()
    assert (s.staged, queue.depth) == ({}, 1)
    publish(s, 1, b"run", messages=messages)
    assert s.staged == {"t": 6}
    s.wait(1)
    assert sorted(received(s)) == [b"1", b"2", b"3", b"first", b"run"]


def test_what_breaks_off_in_the_middle_of_a_batch_is_no_answer(s: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = s.broker.directory.queue("q")
    messages = [StagedMessage(queue, b"1", "ID:1", Traits()), StagedMessage(queue, b"2", "ID:2", Traits())]
    enqueue, calls = s.broker.router.enqueue, 0

    def once(self: Router, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise StoreCorruptError("it is not what was written")
        return enqueue(*arguments)

    monkeypatch.setattr(Router, "enqueue", once)
    with pytest.raises(BatchBrokenOffError, match="in part"):
        s.broker.staged_batches.publish(SINK, 1, [], messages, "t")


def test_groups_are_looked_for_once_a_run_has_some(s: Scenario) -> None:
    run = run_of(s.broker.directory.queue("q"), b"group=a;1", b"group=a;2", grouped=True)
    s.broker.staged_batches.publish(SINK, 1, [run], [], "t")
    s.run()
    first, second = s.consumer("q", 1), s.consumer("q", 5)
    assert len(s.received(first)) == 1
    assert s.received(second) == []


def test_batches_are_flagged_after_a_crash_like_anything_that_may_have_been_seen(s: Scenario) -> None:
    publish(s, 1, b"1", b"2", b"3")
    s.consumer("q", 2)
    after = s.crash()
    consumer = after.consumer("q", 5)
    assert [message.flagged for message in after.in_hand(consumer)][:2] == [True, True]


# -- batches that come again ---------------------------------------------------------------------------------------


def known_by(*bodies: bytes, stages: bytes, verified: bool = True, digest: bool = True) -> BatchIdentity:
    rows = b"rows:" + b"|".join(sorted(bodies)) if digest else b""
    return BatchIdentity(len(bodies) if digest else 0, rows, stages, verified)


def again(s: Scenario, number: int, identity: BatchIdentity, *bodies: bytes) -> int:
    """How many messages became visible by it."""
    runs = [run_of(s.broker.directory.queue("q"), *bodies)] if bodies else []
    s.broker.staged_batches.publish(SINK, number, runs, [], "t", identity)
    s.run()
    return s.staged.pop("t")


def published_then_crashed(s: Scenario) -> Scenario:
    assert again(s, 1, known_by(b"1", b"2", stages=b"a"), b"1", b"2") == 2
    return s.crash()


def test_a_batch_that_comes_again_with_its_rows_is_confirmed(s: Scenario) -> None:
    """Its driver died between the broker's commit and Spark's: other stages, another order."""
    after = published_then_crashed(s)
    assert again(after, 1, known_by(b"2", b"1", stages=b"b"), b"2", b"1") == 0
    assert again(after, 1, known_by(stages=b"a", digest=False)) == 0, "the same request once more: its stages are gone"
    assert again(after, 1, known_by(stages=b"none")) == 0, "its source has no rows for it any more"
    assert received(after) == [b"1", b"2"]


@pytest.mark.parametrize("bodies", [(b"3", b"4"), (b"1",), (b"1", b"2", b"3")])
def test_another_batch_under_the_number_of_one_that_is_published_is_refused(s: Scenario, bodies: tuple[bytes]) -> None:
    """Two queries from copies of one checkpoint: its rows would be nowhere."""
    after = published_then_crashed(s)
    with pytest.raises(
        Refusal, match=r"Batch 0 of the sink s is published, with other rows: with 2 then, .* checkpoint"
    ):
        again(after, 1, known_by(*bodies, stages=b"b"), *bodies)
    after.run()
    assert received(after) == [b"1", b"2"]
    assert again(after, 2, known_by(*bodies, b"5", stages=b"b"), *bodies, b"5") == len(bodies) + 1


def test_a_batch_whose_rows_are_gone_is_not_confirmed_for_another(s: Scenario) -> None:
    after = published_then_crashed(s)
    with pytest.raises(Refusal, match="the rows of these are gone: start the query again"):
        again(after, 1, known_by(stages=b"b", digest=False))


def test_whose_rows_always_differ_says_so(s: Scenario) -> None:
    after = published_then_crashed(s)
    assert again(after, 1, known_by(b"3", stages=b"b", verified=False), b"3") == 0


def test_what_former_versions_published_or_staged_is_confirmed_as_it_was(s: Scenario) -> None:
    publish(s, 1, b"1")
    after = s.crash()
    assert again(after, 1, known_by(b"3", stages=b"b"), b"3") == 0
    record = after.store.producer(SINK)
    assert record is not None
    after.store._state.producers[record.producer].batches = []
    assert again(after, 1, known_by(b"3", stages=b"b"), b"3") == 0


def test_of_the_last_batches_any_may_come_again_and_older_ones_are_refused(
    s: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that was restored from an older copy."""
    monkeypatch.setattr(limits, "BATCHES_KEPT", 3)
    for number in range(1, 6):
        assert again(s, number, known_by(b"%d" % number, stages=b"a"), b"%d" % number) == 1
    after = s.crash()
    for number in (3, 4, 5):
        assert again(after, number, known_by(b"%d" % number, stages=b"b"), b"%d" % number) == 0
        with pytest.raises(Refusal, match="other rows"):
            again(after, number, known_by(b"other", stages=b"b"), b"other")
    with pytest.raises(Refusal, match="Batch 1 of the sink s is published, as are those up to 4: too many to know"):
        again(after, 2, known_by(b"2", stages=b"b"), b"2")


@pytest.mark.parametrize(
    ("empty", "said"),
    [
        (2, r"Batch 1 of the sink s had no rows, and others up to 2 followed: now it has 1\."),
        (1, "Batch 0 of the sink s had no rows, or a former version"),
    ],
)
def test_other_rows_under_the_number_of_a_batch_that_was_empty_are_refused(s: Scenario, empty: int, said: str) -> None:
    """They were dropped as a duplicate, and their query was told that they are published."""
    for number in (1, 2, 3):
        bodies = () if number == empty else (b"%d" % number,)
        assert again(s, number, known_by(*bodies, stages=b"a"), *bodies) == len(bodies)
    after = s.crash()
    with pytest.raises(Refusal, match=said):
        again(after, empty, known_by(b"other", stages=b"b"), b"other")
    assert again(after, empty, known_by(stages=b"c")) == 0, "it is empty still"
    assert len(received(after)) == 2


def test_a_batch_is_not_judged_while_one_that_follows_it_is_committed(s: Scenario) -> None:
    run = run_of(s.broker.directory.queue("q"), b"1")
    s.broker.staged_batches.publish(SINK, 2, [run], [], "later", known_by(b"1", stages=b"a"))
    with pytest.raises(Refusal, match="ask again"):
        s.broker.staged_batches.publish(SINK, 1, [run], [], "earlier", known_by(b"1", stages=b"b"))
    s.run()
    with pytest.raises(Refusal, match="had no rows"):
        s.broker.staged_batches.publish(SINK, 1, [run], [], "earlier", known_by(b"1", stages=b"b"))


def test_a_batch_that_found_no_room_is_not_on_record(s: Scenario) -> None:
    s.full = True
    s.broker.staged_batches.publish(
        SINK, 1, [run_of(s.broker.directory.queue("q"), b"1")], [], "t", known_by(b"1", stages=b"a")
    )
    s.run()
    assert not [fact for fact in s.facts if isinstance(fact, BatchPublished)]
    assert again(s, 1, known_by(b"2", stages=b"b"), b"2") == 1
    assert [fact.digest for fact in s.facts if isinstance(fact, BatchPublished)] == [b"rows:2"]


# -- how long sinks are remembered ---------------------------------------------------------------------------------


def served(s: Scenario, days: float) -> None:
    """So long the broker serves, with the upkeep of it."""
    for _ in range(round(days * 86_400_000_000 / STEP_MAX_US) + 1):
        s.now_us += STEP_MAX_US
        s.broker.tick(s.now_us)
    s.broker.producers.forget_unused()
    s.run()


def test_a_sink_is_remembered_however_long_its_query_is_off(s: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a weekend, over a year: the repeated batch is the one that was published."""
    monkeypatch.setattr(limits, "PRODUCERS_KEPT", 0)
    assert again(s, 1, known_by(b"1", stages=b"a"), b"1") == 1
    s.broker.staged_batches.publish(
        ONCE_PREFIX + "w", 1, [run_of(s.broker.directory.queue("q"), b"w")], [], "w", UNKNOWN_BATCH
    )
    s.run()
    for days in (3.0, 20.0):
        served(s, days)
        assert again(s, 1, known_by(b"1", stages=b"b"), b"1") == 0
    assert s.store.producer(ONCE_PREFIX + "w") is None, "what was written once counts as any producer"
    assert [sink.name for sink in s.broker.staged_batches.sinks(0, 9)] == [SINK]


def test_a_sink_that_is_forgotten_publishes_its_batch_once_more(s: Scenario) -> None:
    assert again(s, 1, known_by(b"1", stages=b"a"), b"1") == 1
    s.broker.staged_batches.forget_sink(SINK)
    assert s.broker.staged_batches.sinks(0, 9) == []
    with pytest.raises(NotFound):
        s.broker.staged_batches.forget_sink(SINK)
    s.run()
    assert again(s, 1, known_by(b"2", stages=b"b"), b"2") == 1
    assert again(s.crash(), 1, known_by(b"2", stages=b"c"), b"2") == 0


def test_there_are_so_many_sinks_and_a_further_one_is_refused(s: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SINKS_MAX", 2)
    for name in ("a", "b"):
        s.broker.staged_batches.publish(SINK_PREFIX + name, 1, [run_of(s.broker.directory.queue("q"), b"1")], [], name)
        s.run()
    with pytest.raises(Refusal, match="legato sink forget"):
        s.broker.staged_batches.publish(SINK_PREFIX + "c", 1, [], [], "c")
    s.broker.staged_batches.forget_sink(SINK_PREFIX + "a")
    s.run()
    s.broker.staged_batches.publish(SINK_PREFIX + "c", 1, [run_of(s.broker.directory.queue("q"), b"1")], [], "c")
    s.broker.staged_batches.publish(SINK_PREFIX + "b", 2, [run_of(s.broker.directory.queue("q"), b"1")], [], "b")
