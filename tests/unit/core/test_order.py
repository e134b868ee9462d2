"""One receiver that comes and goes sees in order what nobody has seen (Jakarta Messaging 6.2.10), runs and singles."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.core.consumers import Consumer
from legato.core.lanes import Lane
from legato.core.message import Message, MessageRun
from legato.core.message_states import PUT_BACK, enter
from legato.core.queues import Queue
from legato.core.records import Batch
from tests.support.examples import examples
from tests.support.scenario import Scenario

HELD_S, STOLEN_S = 1.2, 0.8
"""How long what it had is kept, of a connection that was lost and of a link that was taken over."""


class Sending(Scenario):
    """As brokers do it, what has been sent is not kept in memory; and the store takes its time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.keeps_runs = True
        self.batch: Batch | None = None
        """It is on its way to the disk."""

    def _sent(self, entries: list[Message | MessageRun]) -> list[Message]:
        messages: list[Message] = []
        for entry in entries:
            messages += super()._sent([entry])
            if isinstance(entry, MessageRun):
                entry.content = None
        for message in messages:
            message.body = None
        return messages

    def turn(self) -> None:
        """All that came in one read was looked at."""
        self.broker.dispatcher.dispatch_returned(self.now_us)
        self._perform(self.broker.take_effects())
        self.resume()

    def begin_commit(self) -> None:
        """A commit begins, if none is under way."""
        if self.batch is None:
            self.batch = self.broker.take_batch(self.now_us)

    def end_commit(self) -> None:
        """The commit that is under way is durable."""
        batch, self.batch = self.batch, None
        if batch is not None:
            self.store.commit(batch)
            self.broker.committed(self.now_us)
            self.turn()


class Client:
    """A client with a consumer, and its application, which takes messages one by one.

    Args:
        reports: whether it says what its application has; who does not is given runs.
    """

    def __init__(self, *, reports: bool) -> None:
        self.broker = Sending()
        self.consumer: Consumer | None = None
        self.inbox: list[int] = []
        """Came, and not seen."""
        self.has: list[int] = []
        """Seen, and not acknowledged."""
        self.last = 0
        """What the application was given last of what nobody had had."""
        self.had: set[int] = set()
        self.published = 0
        self._reports = reports
        queue = self.broker.broker.directory.queue("q")
        assert isinstance(queue, Queue)
        self.broker.run()

    @property
    def queue(self) -> Queue:
        queue = self.broker.broker.directory.queue("q")
        assert isinstance(queue, Queue)
        return queue

    def do(self, step: tuple[Any, ...]) -> None:
        """One thing that happens."""
        match step:
            case ("publish", count, in_runs):
                self._publish(count, in_runs=in_runs)
            case ("begin",):
                self.broker.begin_commit()
            case ("end",):
                self.broker.end_commit()
            case ("come", credit) if self.consumer is None:
                self._attach(credit)
            case ("lost",) if self.consumer is not None:
                self._detach(hold_s=HELD_S, clean=False)
            case ("left",) if self.consumer is not None:
                self._acknowledge(len(self.has))
                self._detach(hold_s=0, clean=True)
                self.has = []
            case ("stolen", credit) if self.consumer is not None:
                self._detach(hold_s=STOLEN_S, clean=False, moving=True)
                self._attach(credit)
            case ("flow", credit) if self.consumer is not None:
                self.broker.broker.receivers.flow(self.consumer, credit, False, self.broker.now_us)
            case ("take", count):
                self._take(count)
            case ("acknowledge", count) if self.consumer is not None:
                self._acknowledge(count)
            case ("recover",) if self.consumer is not None:
                self._recover()
            case ("takeover",):
                self._crash()
            case ("wait", seconds) if self.broker.batch is None:
                self.broker.wait(seconds)
        self.broker.turn()
        self._hear()

    def drain(self) -> None:
        """All that is there comes."""
        for _ in range(4):
            self.broker.end_commit()
            self.broker.run()
            self._hear()
        if self.consumer is None:
            self._attach(1_000)
        while len(self.had) < self.published:
            before = len(self.had)
            assert self.consumer is not None
            self.do(("flow", 1_000))
            self.broker.run()
            self._hear()
            self._take(1_000)
            self._acknowledge(1_000)
            self.broker.run()
            assert len(self.had) > before, f"{before} of {self.published} came"

    def _publish(self, count: int, *, in_runs: bool) -> None:
        publisher, queue = self.broker.broker.publisher, self.queue
        bodies = [b"%09d" % (self.published + at) for at in range(count)]
        self.published += count
        if in_runs:
            ends = array("I", accumulate(map(len, bodies)))
            publisher.publish_run(queue, b"".join(bodies), ends, b"".join(bodies), None)
            return
        for body in bodies:
            publisher.publish(queue, body, body.decode(), None)

    def _attach(self, credit: int) -> None:
        receivers = self.broker.broker.receivers
        self.consumer, elsewhere = receivers.attach(
            self.queue, None, "client", reports_presented=self._reports, held=self.has, name="link"
        )
        self.has = [seq for seq in self.has if seq not in elsewhere]
        self.broker.inbox[self.consumer] = []
        receivers.flow(self.consumer, credit, False, self.broker.now_us)

    def _detach(self, *, hold_s: float, clean: bool, moving: bool = False) -> None:
        assert self.consumer is not None
        until_us = self.broker.now_us + int(hold_s * 1_000_000) if hold_s else 0
        self.broker.broker.receivers.detach(self.consumer, clean=clean, hold_until_us=until_us, moving=moving)
        self.consumer = None
        self.inbox = []

    def _hear(self) -> None:
        """Messages come; what the application has is not for it once more."""
        if self.consumer is not None:
            come, self.broker.inbox[self.consumer] = self.broker.inbox[self.consumer], []
            self.inbox += [message.seq for message in come if message.seq not in self.has]

    def _take(self, count: int) -> None:
        taken, self.inbox = self.inbox[:count], self.inbox[count:]
        for seq in taken:
            if seq not in self.had:
                assert seq > self.last, f"{seq} came after {self.last}"
                self.last = seq
                self.had.add(seq)
            self.has.append(seq)
            if self._reports and self.consumer is not None:
                self.broker.present(self.consumer, seq)

    def _acknowledge(self, count: int) -> None:
        """The oldest ones; of runs as far as it has them in order."""
        assert self.consumer is not None
        settlement = self.broker.broker.settlement
        done, self.has = self.has[:count], self.has[count:]
        for seq in done:
            run = next((e for e in self.consumer.held.values() if isinstance(e, MessageRun) and _next(e) == seq), None)
            if run is not None and settlement.acknowledge_run(self.consumer, run, run.settled, 1, confirm=False):
                continue
            if (message := self.consumer.unsettled.get(seq)) is not None:
                assert settlement.acknowledge(self.consumer, message, confirm=False)

    def _recover(self) -> None:
        """What it had failed, the rest goes back unseen; all in one read, before it gives credit."""
        assert self.consumer is not None
        self.broker.broker.receivers.flow(self.consumer, 0, False, self.broker.now_us)
        self.broker.turn()
        self._hear()
        settlement = self.broker.broker.settlement
        for seq in self.has:
            if (message := self.consumer.unsettled.get(seq)) is not None:
                settlement.modify(self.consumer, message, failed=True, undeliverable_here=False)
        for seq in self.inbox:
            settlement.release(self.consumer, self.consumer.unsettled[seq])
        self.inbox, self.has = [], []

    def _crash(self) -> None:
        """Another broker takes over; what was not durable was not confirmed, so that it is sent again."""
        former, self.broker = self.broker, Sending(self.broker.store)
        self.broker.now_us = self.broker.broker.now_us = former.now_us
        self.consumer = None
        self.inbox = []
        self.broker.turn()
        self.published = self.queue.main.last_seq


def _next(run: MessageRun) -> int:
    return run.seq + run.settled


CREDIT = st.integers(0, 15)
STEPS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 9), st.booleans()),
    st.tuples(st.just("publish"), st.integers(1, 9), st.booleans()),
    st.tuples(st.just("begin")),
    st.tuples(st.just("end")),
    st.tuples(st.just("begin")),
    st.tuples(st.just("end")),
    st.tuples(st.just("come"), CREDIT),
    st.tuples(st.just("come"), CREDIT),
    st.tuples(st.just("lost")),
    st.tuples(st.just("left")),
    st.tuples(st.just("stolen"), CREDIT),
    st.tuples(st.just("flow"), CREDIT),
    st.tuples(st.just("flow"), CREDIT),
    st.tuples(st.just("take"), st.integers(1, 9)),
    st.tuples(st.just("take"), st.integers(1, 9)),
    st.tuples(st.just("acknowledge"), st.integers(1, 9)),
    st.tuples(st.just("recover")),
    st.tuples(st.just("takeover")),
    st.tuples(st.just("wait"), st.sampled_from([0.3, 1.5])),
)
START: list[tuple[Any, ...]] = [("publish", 9, True), ("begin",), ("end",), ("come", 7), ("begin",), ("end",)]


@pytest.mark.parametrize("reports", [True, False])
@settings(max_examples=examples(200), deadline=None)
@given(steps=st.lists(STEPS, max_size=40))
def test_what_nobody_has_had_comes_in_order_however_its_receiver_comes_and_goes(
    reports: bool, steps: list[tuple[Any, ...]]
) -> None:
    client = Client(reports=reports)
    for step in [*START, *steps]:
        client.do(step)
    client.drain()
    assert client.had == {*range(1, client.published + 1)}


def test_a_broker_that_gives_the_last_one_back_first_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_back_first(self: Lane, message: Message) -> None:
        enter(message, PUT_BACK)
        message.waiting = True
        self.returned.insert(0, message)

    monkeypatch.setattr(Lane, "put_back", last_back_first)
    client = Client(reports=True)
    for step in [*START, ("lost",), ("come", 9), ("begin",), ("end",)]:
        client.do(step)
    with pytest.raises(AssertionError, match="came after"):
        client.do(("take", 9))
