"""What it takes to claim what an application still holds (names.HELD): each message is looked at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import pytest

from legato import limits
from legato.core.message import Message, MessageRun
from legato.core.records import StoredMessage
from legato.store.memory import MemoryStore
from tests.support.scenario import Scenario

MANY = 300


class CountingDeque(deque[Message]):
    """Counts how many of its messages were looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Message]:
        for message in super().__iter__():
            self.looks += 1
            yield message


class CountingStore(MemoryStore):
    """Counts the messages that were read with their bytes, and keeps the largest piece."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []

    def messages(self, queue: int, after: int, limit: int, limit_bytes: int) -> Sequence[StoredMessage]:
        found = super().messages(queue, after, limit, limit_bytes)
        self.reads.append(len(found))
        return found


class HurriedClock:
    """Each look at it is one in another slice."""

    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        self.now_ms += limits.SCAN_MS
        return self.now_ms


def waiting(count: int, store: MemoryStore | None = None) -> Scenario:
    s = Scenario(store)
    s.publish("q", *(b"%d" % number for number in range(1, count + 1)))
    return s


def taken_over(count: int) -> tuple[Scenario, CountingStore]:
    """Consumers had so many messages, and their broker died."""
    store = CountingStore()
    s = waiting(count, store)
    s.consumer("q", count, exact=True, name="me")
    after = s.crash()
    store.reads.clear()
    return after, store


def test_what_another_one_claimed_is_looked_at_once() -> None:
    s = waiting(MANY)
    first = s.consumer("q", 0, exact=True, name="me", link="one", held=range(1, MANY + 1))
    claimed = first.first = CountingDeque(first.first)
    queue = s.broker.directory.queue("q")
    _, elsewhere = s.broker.receivers.attach(queue, None, "me", held=range(1, MANY + 1), name="two")
    assert elsewhere == list(range(1, MANY + 1))
    assert claimed.looks == MANY


def test_who_asks_for_what_another_one_has_in_a_run_leaves_it_a_run() -> None:
    s = waiting(10)
    s.keeps_runs = True
    other = s.consumer("q", 8, name="other")
    assert other.runs == 1
    run = next(iter(other.held.values()))
    assert isinstance(run, MessageRun)
    s.broker.settlement.acknowledge_run(other, run, 0, 2, confirm=False)
    s.run()
    s.consumer("q", 0, exact=True, name="me", held=range(1, 11))
    # Nobody had had the first two before: so it is not told who took them.
    assert s.elsewhere == [3, 4, 5, 6, 7, 8]
    assert other.runs == 1


def test_what_is_claimed_is_read_when_it_is_given_and_not_before() -> None:
    """Their number has a bound, and their bytes have none."""
    s, store = taken_over(MANY)
    consumer = s.broker.receivers.attach(
        s.broker.directory.queue("q"), None, "me", reports_presented=True, held=range(1, MANY + 1)
    )[0]
    s.inbox[consumer] = []
    assert (len(consumer.first), sum(store.reads)) == (MANY, 0)
    assert all(message.body is None and message.size == len(str(message.seq)) for message in consumer.first)
    s.broker.receivers.flow(consumer, 10, False, s.now_us)
    s.broker.dispatcher.dispatch_returned(s.now_us)
    assert (len(consumer.first), store.reads) == (MANY - 10, [10])
    assert all(message.body is None for message in consumer.first)
    s.run()
    assert s.received(consumer) == [b"%d" % number for number in range(1, 11)]


def test_what_was_in_the_window_leaves_it_without_its_bytes() -> None:
    s = Scenario()
    idle = s.consumer("q", 0, name="idle")
    s.publish("q", *(b"%d" % number for number in range(1, 11)))
    assert len(idle.queue.main.window()) == 10
    consumer = s.consumer("q", 0, exact=True, name="me", held=range(1, 6))
    assert [message.body for message in consumer.first] == [None] * 5
    assert (len(idle.queue.main.window()), s.elsewhere) == (5, [])


def test_what_takes_long_to_read_goes_on_in_other_turns_and_nothing_comes_before_it() -> None:
    """CONTRACT B21: what it held comes first, in order."""
    s, store = taken_over(MANY)
    s.broker.kernel.turn_ms = HurriedClock()
    claims = list(range(2, MANY, 70))
    consumer = s.consumer("q", MANY, exact=True, name="me", held=claims)
    rest = [number for number in range(1, MANY + 1) if number not in claims]
    assert s.received(consumer) == [b"%d" % number for number in (*claims, *rest)]
    assert store.reads[: len(claims)] == [1] * len(claims)


def test_groups_of_what_is_claimed_are_its_holders_and_their_bytes_are_not_kept() -> None:
    s = Scenario()
    s.publish("q", b"group=a;1", b"group=b;2", b"group=a;3")
    first = s.consumer("q", 1, exact=True, name="me")
    s.present(first, 1)
    after = s.crash()
    consumer = after.consumer("q", 0, exact=True, name="me", held=[1])
    other = after.consumer("q", 10, name="other")
    assert [message.body for message in consumer.first] == [None]
    assert after.received(other) == [b"group=b;2"]


def test_who_claims_what_cannot_be_read_any_more_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asked for the group of what was not there: an internal error cut off the whole connection."""
    s = Scenario()
    s.publish("q", b"group=a;1", b"group=a;2")
    consumer = s.consumer("q", 2, exact=True, name="A")
    held = [message.seq for message in s.in_hand(consumer)]
    s.present(consumer, *held)
    s.broker.presentations.tick()
    s.run()
    s = s.crash()
    monkeypatch.setattr(s.store, "messages", lambda *_: [])  # as of a queue whose bodies are damaged
    queue = s.broker.directory.queue("q")
    back, elsewhere = s.broker.receivers.attach(queue, None, consumer.container, held=held, name="A")
    assert ([message.seq for message in back.first], elsewhere) == (held, [])
