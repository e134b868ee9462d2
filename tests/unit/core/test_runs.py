"""What is published as a run, and as its messages one by one, leads to the same facts, states and effects."""

from __future__ import annotations

from array import array
from functools import partial
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.core import lanes
from legato.core.consumers import Consumer
from legato.core.fact_runs import single_facts
from legato.core.facts import MessagePublished, MessagesConsumed, MessagesStored
from legato.core.message import Message, MessageRun
from legato.core.publishing import takes_run
from legato.core.queues import Queue
from legato.core.settings import AddressSettings
from legato.core.topics import Node, Topic
from tests.support.examples import examples
from tests.support.scenario import RunTokens, Scenario


class Side:
    """A broker with a queue, publishing in runs or not, that does as it is told.

    Args:
        exact: consumers say which messages reached their applications.
        topic: the queue is a subscription, one of three: nobody receives from the second, and the third wants nothing
            of its own connection's, which is the publisher's.
        most: so many messages the queue keeps, and drops older ones; nothing is published to it in runs, but what is
            read may be given so. 0: as many as there are.
    """

    def __init__(self, *, in_runs: bool, most: int = 0, topic: bool = False, exact: bool = False) -> None:
        self.in_runs = in_runs
        self.exact = exact
        self.publishes_runs = in_runs and not most
        self.scenario = Scenario()
        if most:
            self.scenario.settings["q"] = AddressSettings(max_messages=most, when_full="drop-oldest")
        self.scenario.keeps_runs = True
        directory = self.scenario.broker.directory
        self.node: Node = directory.topic("q") if topic else directory.queue("q")
        self.queues = self.subscribe(self.node) if isinstance(self.node, Topic) else [self.node]
        self.queue = self.queues[0]
        self.producer = self.scenario.broker.producers.attach("p")
        self.consumers: list[Consumer] = []
        self.lost: Consumer | None = None
        self.published = 0
        self.log: list[Any] = []
        self.scenario.run()

    def subscribe(self, topic: Topic) -> list[Queue]:
        """Its subscriptions."""
        subscribe = partial(self.scenario.broker.subscriptions.subscribe, topic, durable=True, shared=True)
        return [
            subscribe("one", container="c"),
            subscribe("two", container="c"),
            subscribe("own", container="publisher", no_local=True),
        ]

    def publish(self, count: int, numbered: bool, told: bool) -> None:
        """Publish, and tell nobody yet."""
        names = [f"{self.published + place:09}" for place in range(count)]
        bodies = [name.encode() * (1 + place % 3) for place, name in enumerate(names)]
        self.published += count
        publisher, producer = self.scenario.broker.publisher, self.producer
        number = producer.last + 1
        if self.publishes_runs:
            tokens = RunTokens(names) if told else None
            ends, ids = array("I", accumulate(map(len, bodies))), "".join(names).encode()
            who, first = (producer, number) if numbered else (None, 0)
            publisher.publish_run(self.node, b"".join(bodies), ends, ids, tokens, who, first, "publisher")
            return
        for place, (name, body) in enumerate(zip(names, bodies, strict=True)):
            token = name if told else None
            if numbered:
                publisher.publish_numbered(
                    self.node, body, name, token, producer, number + place, container="publisher"
                )
            else:
                publisher.publish(self.node, body, name, token, container="publisher")

    def do(self, step: tuple[Any, ...]) -> None:
        scenario, broker = self.scenario, self.scenario.broker
        match step:
            case ("publish", count, numbered, told):
                self.publish(count, numbered, told)
            case ("run",):
                scenario.run()
            case ("full",):
                scenario.full = True
                scenario.run()
                scenario.full = False
            case ("attach", credit):
                consumer = scenario.consumer(self.queue, 0, name=f"c{len(self.consumers)}", exact=self.exact)
                consumer.takes_runs = self.in_runs
                self.consumers.append(consumer)
                broker.receivers.flow(consumer, credit, False, scenario.now_us)
                scenario.run()
            case ("flow", which, credit) if self.consumers:
                consumer = self.consumers[which % len(self.consumers)]
                broker.receivers.flow(consumer, credit, False, scenario.now_us)
                scenario.run()
            case ("accept", which, first, count) if self.consumers:
                consumer = self.consumers[which % len(self.consumers)]
                scenario.accept(consumer, *scenario.in_hand(consumer)[first : first + count])
            case ("take", which, count, confirm) if self.consumers:
                self.accept_first(self.consumers[which % len(self.consumers)], count, confirm=confirm)
                scenario.run()
            case ("release", which, first) if self.consumers:
                consumer = self.consumers[which % len(self.consumers)]
                for message in scenario.in_hand(consumer)[first : first + 1]:
                    assert broker.settlement.release(consumer, message)
                scenario.run()
            case ("fail", which, first) if self.consumers:
                consumer = self.consumers[which % len(self.consumers)]
                for message in scenario.in_hand(consumer)[first : first + 1]:
                    assert broker.settlement.modify(consumer, message, failed=True, undeliverable_here=False)
                scenario.run()
            case ("present", which, first) if self.consumers and self.exact:
                consumer = self.consumers[which % len(self.consumers)]
                for message in scenario.in_hand(consumer)[first : first + 1]:
                    broker.presentations.present(consumer, message)
            case ("leave", which) if self.consumers:
                broker.receivers.detach(self.consumers.pop(which % len(self.consumers)), clean=True)
                scenario.run()
            case ("lose", which) if self.consumers:
                self.lost = self.consumers.pop(which % len(self.consumers))
                scenario.lose(self.lost)
            case ("return", credit) if self.lost is not None:
                name, held = self.lost.container, [message.seq for message in self.lost.copies_of_unsettled()][::2]
                self.lost = None
                consumer = scenario.consumer(self.queue, 0, name=name, held=held, exact=self.exact)
                consumer.takes_runs = self.in_runs
                self.consumers.append(consumer)
                broker.receivers.flow(consumer, credit, False, scenario.now_us)
                scenario.run()
            case ("pause", paused):
                broker.administration.pause(self.queue, paused)
                scenario.run()
            case ("purge",):
                broker.administration.purge(self.queue, "purge")
                scenario.run()
            case ("move", limit):
                broker.administration.move(self.queue, broker.directory.queue("to"), "move", limit=limit)
                scenario.run()
            case ("settings", settings):
                scenario.settings["q"] = settings
                scenario.reload()
                self.publishes_runs = self.in_runs and takes_run(self.node)
                scenario.run()
            case ("wait", seconds):
                scenario.wait(seconds)
            case ("again", number):
                # Resent: a number that is stored is not stored twice, and one that was refused may be.
                if number <= self.producer.last:
                    broker.publisher.publish_numbered(self.node, b"again", "again", "again", self.producer, number)
                scenario.run()

    def accept_first(self, consumer: Consumer, count: int, *, confirm: bool) -> None:
        """Acknowledge the first ones that the consumer has, by runs where it has these."""
        settlement = self.scenario.broker.settlement
        while count and consumer.held:
            entry = next(iter(consumer.held.values()))
            if isinstance(entry, Message):
                assert settlement.acknowledge(consumer, entry, confirm=confirm)
                count -= 1
                continue
            part = min(count, entry.count - entry.settled)
            at = entry.settled
            if not settlement.acknowledge_run(consumer, entry, at, part, confirm=confirm):
                messages = entry.apart()
                assert consumer.unsettled
                for message in messages[at : at + part]:
                    assert settlement.acknowledge(consumer, message, confirm=confirm)
            count -= part

    def seen(self) -> Any:
        """All that is seen of it: facts, what was told, what consumers have, counters."""
        scenario, queue = self.scenario, self.queue
        return (
            [*single_facts(scenario.facts)],
            scenario.confirmed,
            scenario.refused,
            [[shown(message) for message in scenario.inbox[consumer]] for consumer in self.consumers],
            [[message.seq for message in consumer.copies_of_unsettled()] for consumer in self.consumers],
            [(consumer.credit, consumer.unsent_bytes, consumer.unsettled_count) for consumer in self.consumers],
            scenario.acknowledged,
            scenario.finished,
            scenario.seen,
            (queue.stored, queue.consumed, queue.bytes, queue.delivered, queue.main.mark, queue.in_flight),
            (self.producer.last, self.producer.stored, [*self.producer.refused]),
            [scenario.store.messages(each.id, 0, 1000, 1 << 20) for each in self.queues],
            [(each.stored, each.bytes, each.main.visible_seq) for each in self.queues],
            (self.node.stored, self.node.last_seq if isinstance(self.node, Topic) else 0),
        )


def shown(message: Message) -> tuple[Any, ...]:
    return message.seq, message.body, message.size


SETTINGS = (
    AddressSettings(),
    AddressSettings(max_messages=4, when_full="drop-oldest"),
    AddressSettings(max_messages=9, when_full="drop-oldest"),
    AddressSettings(exclusive=True),
    AddressSettings(maximum_deliveries=2),
    AddressSettings(redelivery_delay_s=0.2),
    AddressSettings(redelivery_delay_s=0.2, redelivery_blocking="queue"),
    AddressSettings(redelivery_delay_s=0.2, redelivery_blocking="consumer"),
)
STEPS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 12), st.booleans(), st.booleans()),
    st.tuples(st.just("publish"), st.integers(1, 12), st.booleans(), st.booleans()),
    st.tuples(st.just("run")),
    st.tuples(st.just("full")),
    st.tuples(st.just("attach"), st.integers(0, 9)),
    st.tuples(st.just("flow"), st.integers(0, 3), st.integers(0, 20)),
    st.tuples(st.just("accept"), st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)),
    st.tuples(st.just("accept"), st.integers(0, 3), st.just(0), st.integers(1, 20)),
    st.tuples(st.just("take"), st.integers(0, 3), st.integers(1, 20), st.booleans()),
    st.tuples(st.just("take"), st.integers(0, 3), st.integers(1, 20), st.booleans()),
    st.tuples(st.just("release"), st.integers(0, 3), st.integers(0, 5)),
    st.tuples(st.just("fail"), st.integers(0, 3), st.integers(0, 5)),
    st.tuples(st.just("present"), st.integers(0, 3), st.integers(0, 5)),
    st.tuples(st.just("leave"), st.integers(0, 3)),
    st.tuples(st.just("lose"), st.integers(0, 3)),
    st.tuples(st.just("return"), st.integers(0, 20)),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("purge")),
    st.tuples(st.just("move"), st.integers(1, 12)),
    st.tuples(st.just("settings"), st.sampled_from(SETTINGS)),
    st.tuples(st.just("wait"), st.sampled_from([0.3, 61.0])),
    st.tuples(st.just("again"), st.integers(1, 30)),
)


@pytest.mark.parametrize("topic", [False, True], ids=["queue", "topic"])
@settings(max_examples=examples(300), deadline=None)
@given(steps=st.lists(STEPS, max_size=25), large=st.booleans(), exact=st.booleans())
def test_runs_and_their_messages_lead_to_the_same(
    steps: list[tuple[Any, ...]], large: bool, topic: bool, exact: bool
) -> None:
    """Also of messages that are so large that what is read of them is neither joined nor one run."""
    with pytest.MonkeyPatch.context() as patch:
        if large:
            patch.setattr(lanes, "JOINED_BYTES_MAX", 1)
            patch.setattr(lanes, "DELIVERY_BYTES_IN_ONE_GO", 100)
        _lead_to_the_same(steps, topic=topic, exact=exact)


def _lead_to_the_same(steps: list[tuple[Any, ...]], *, topic: bool, exact: bool) -> None:
    sides = [Side(in_runs=in_runs, topic=topic, exact=exact) for in_runs in (True, False)]
    for step in [*steps, ("run",)]:
        for side in sides:
            side.do(step)
        runs, singles = (side.seen() for side in sides)
        assert runs == singles, step


def test_a_run_is_one_fact_as_long_as_nobody_tells_its_messages_apart() -> None:
    side = Side(in_runs=True)
    side.do(("publish", 5, True, True))
    side.do(("run",))
    facts = [fact for fact in side.scenario.facts if isinstance(fact, MessagesStored)]
    assert [(fact.seq, fact.count, fact.number) for fact in facts] == [(1, 5, 1)]
    assert side.scenario.confirmed == [f"{number:09}" for number in range(5)]


def test_copies_of_a_run_are_runs_of_the_same_bytes() -> None:
    side = Side(in_runs=True, topic=True)
    side.do(("attach", 9))
    side.do(("publish", 5, True, True))
    side.do(("run",))
    facts = [fact for fact in side.scenario.facts if isinstance(fact, MessagePublished)]
    assert [(fact.seq, fact.number, len(fact.subscriptions)) for fact in facts] == [(n, n, 2) for n in range(1, 6)]
    assert side.scenario.confirmed == [f"{number:09}" for number in range(5)]
    (consumer,) = side.consumers
    (run,) = consumer.held.values()
    assert isinstance(run, MessageRun)
    assert (run.seq, run.count, run.is_whole) == (1, 5, True)
    side.accept_first(consumer, 5, confirm=False)
    side.do(("run",))
    assert [queue.depth for queue in side.queues] == [0, 5, 0]


def test_copies_of_a_run_that_are_told_apart_are_of_the_same_bytes() -> None:
    """In the windows of a thousand subscriptions whose consumers report presentations they take room once."""
    side = Side(in_runs=True, topic=True)
    for name, queue in enumerate(side.queues[:2]):
        side.scenario.consumer(queue, 1, name=str(name), exact=True)
    side.do(("publish", 5, True, True))
    side.do(("run",))
    one, other = (queue.main.window() for queue in side.queues[:2])
    assert [message.seq for message in one] == [2, 3, 4, 5]
    assert all(mine.body is its.body for mine, its in zip(one, other, strict=True))


@pytest.mark.parametrize("settings", SETTINGS[1:3])
def test_a_topic_whose_subscriptions_have_limits_takes_no_runs(settings: AddressSettings) -> None:
    side = Side(in_runs=True, topic=True)
    assert takes_run(side.node)
    side.do(("settings", settings))
    assert not takes_run(side.node)


def test_a_topic_of_which_a_subscription_selects_takes_no_runs() -> None:
    side = Side(in_runs=True, topic=True)
    assert isinstance(side.node, Topic)
    side.queues[1].matches = lambda body: True
    assert not takes_run(side.node)


def test_messages_that_were_stored_one_by_one_are_given_in_runs_when_they_are_read() -> None:
    side = Side(in_runs=True)
    side.publishes_runs = False
    side.do(("publish", 9, True, True))
    side.do(("run",))
    side.do(("attach", 7))
    (consumer,) = side.consumers
    assert [(run.seq, run.count) for run in consumer.held.values() if isinstance(run, MessageRun)] == [(1, 7)]
    side.accept_first(consumer, 7, confirm=False)
    side.do(("run",))
    consumed = [fact for fact in side.scenario.facts if isinstance(fact, MessagesConsumed)]
    assert [(fact.seq, fact.count) for fact in consumed] == [(1, 7)]


def test_large_messages_that_are_read_are_given_as_they_were_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not joined to one, and the first of them may be given by themselves."""
    monkeypatch.setattr(lanes, "JOINED_BYTES_MAX", 1)
    side = Side(in_runs=True)
    side.do(("publish", 9, True, True))
    side.do(("run",))
    side.do(("attach", 5))
    (consumer,) = side.consumers
    bodies = [f"{place:09}".encode() * (1 + place % 3) for place in range(9)]
    for first, last in ((1, 5), (6, 9)):
        (run,) = consumer.held.values()
        assert isinstance(run, MessageRun)
        assert isinstance(run.content, list)
        assert (run.seq, run.last_seq) == (first, last)
        wanted = bodies[first - 1 : last]
        assert run.content == [message.body for message in run.messages()] == wanted
        assert [*run.ends] == [*accumulate(map(len, wanted))]
        side.accept_first(consumer, run.count, confirm=False)
        side.do(("flow", 0, 9))


def test_the_oldest_of_a_full_queue_is_dropped_out_of_a_run_that_was_read() -> None:
    """Seed 70000509: it ended the broker."""
    side = Side(in_runs=True, most=9)
    side.do(("publish", 9, True, True))
    side.do(("run",))
    side.do(("attach", 0))
    side.do(("publish", 1, True, True))
    side.do(("run",))
    side.do(("flow", 0, 20))
    (consumer,) = side.consumers
    assert [message.seq for message in consumer.copies_of_unsettled()] == [*range(2, 11)]


@pytest.mark.parametrize("topic", [False, True], ids=["queue", "topic"])
def test_a_run_that_finds_no_room_is_refused_message_by_message_and_may_come_again(topic: bool) -> None:
    side = Side(in_runs=True, topic=topic)
    side.do(("publish", 3, True, True))
    side.do(("full",))
    assert [*side.scenario.refused] == [f"{number:09}" for number in range(3)]
    assert [*side.producer.refused] == [1, 2, 3]
    assert side.scenario.store.messages(side.queue.id, 0, 10, 1 << 20) == []


def test_a_run_of_numbers_that_are_not_new_is_a_defect() -> None:
    side = Side(in_runs=True)
    side.do(("publish", 3, True, True))
    with pytest.raises(AssertionError):
        side.scenario.broker.publisher.publish_run(
            side.queue, b"x", array("I", [1]), b"", None, side.producer, side.producer.last
        )
