"""What it takes to claim what an application still holds (names.HELD): each message is looked at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from legato.core.message import Message, MessageRun
from tests.support.scenario import Scenario

MANY = 300


class CountingDeque(deque[Message]):
    """Counts how many of its messages were looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Message]:
        for message in super().__iter__():
            self.looks += 1
            yield message


def waiting(count: int) -> Scenario:
    s = Scenario()
    s.publish("q", *(b"%d" % number for number in range(1, count + 1)))
    return s


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
