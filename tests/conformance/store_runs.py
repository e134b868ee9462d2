"""What every store does with assignments: runs are found and moved as a whole, acknowledged from the front."""

import pytest
from msgspec.structs import replace

from legato.core.facts import (
    AssignmentAcknowledged,
    AssignmentFenced,
    Kind,
    MessagePublished,
    MessageReturned,
    MessagesAssigned,
    QueueCreated,
)
from legato.core.records import ExpiryPlace, Run, StoredRun
from legato.errors import StoreError
from legato.store.base import Store
from tests.conformance.store import NO_LIMIT, NOW_US, apart, batch_of, body_of, consumed, stored, waiting

NONE: frozenset[int] = frozenset()
SOURCE, TARGET, TOPIC, SUBSCRIPTION = 1, 2, 3, 4


class StoreRunTests:
    """Inherit this."""

    @pytest.fixture
    def epoch(self, store: Store) -> int:
        epoch = store.begin_epoch("broker", NOW_US).epoch
        store.commit(
            batch_of(
                epoch,
                QueueCreated(SOURCE, "q"),
                QueueCreated(TARGET, "assignment://spark/q", Kind.ASSIGNMENT, SOURCE),
                QueueCreated(TOPIC, "topic://t", Kind.TOPIC),
                QueueCreated(SUBSCRIPTION, "subscription:///s", Kind.SUBSCRIPTION, TOPIC),
            )
        )
        return epoch

    def fill(self, store: Store, epoch: int, *seqs: int, size: int = 20) -> None:
        store.commit(batch_of(epoch, *[stored(seq, size=size) for seq in seqs]))

    def runs(
        self, store: Store, after: int = 0, limit: int = NO_LIMIT, without: frozenset[int] = frozenset()
    ) -> object:
        return [(run.seq, run.count) for run in store.runs(SOURCE, after, limit, NO_LIMIT, without)]

    def test_neighbours_are_one_run_across_commits(self, store: Store, epoch: int) -> None:
        self.fill(store, epoch, *range(1, 301))
        self.fill(store, epoch, *range(301, 402))
        assert store.runs(SOURCE, 0, NO_LIMIT, NO_LIMIT, set()) == [Run(1, 401, 401 * 20)]

    def test_a_run_ends_where_something_is_gone_or_left_out(self, store: Store, epoch: int) -> None:
        self.fill(store, epoch, *range(1, 301))
        store.commit(batch_of(epoch, consumed(7), consumed(200)))
        assert self.runs(store, without=frozenset({1, 50, 51, 300})) == [(2, 5), (8, 42), (52, 148), (201, 99)]

    def test_runs_begin_behind_a_place_and_stop_at_the_limit(self, store: Store, epoch: int) -> None:
        self.fill(store, epoch, *range(1, 301))
        assert self.runs(store, after=100, limit=130) == [(101, 130)]

    def test_runs_stay_within_a_lane(self, store: Store, epoch: int) -> None:
        high = 10 << 56
        self.fill(store, epoch, 1, 2, high + 1, high + 2)
        assert self.runs(store) == [(1, 2)]
        assert self.runs(store, after=high) == [(high + 1, 2)]

    def test_what_is_read_in_runs_is_what_is_read_message_by_message(self, store: Store, epoch: int) -> None:
        self.fill(store, epoch, *range(1, 9), size=100)
        self.fill(store, epoch, *range(9, 13), 15, *range(17, 21), size=30)
        store.commit(batch_of(epoch, *[replace(stored(seq), expires_us=NOW_US + 9) for seq in (21, 22)], stored(23)))
        self.fill(store, epoch, 24, 25, 26, 27, (1 << 56) + 1)
        self.fill(store, epoch, *range(28, 36), size=40)
        # Remembered: within a run, the last one of a run, and of another kind; gone: the first, and within.
        returned = [MessageReturned(SOURCE, seq, 1, False, 1, "rollback") for seq in (3, 12, 22, 27)]
        store.commit(batch_of(epoch, *returned, consumed(1), consumed(6)))
        for after in range(37):
            for limit in (0, 1, 2, 3, 5, 8, 13, NO_LIMIT):
                for limit_bytes in (0, 29, 30, 31, 99, 100, 101, 200, 330, NO_LIMIT):
                    reading = SOURCE, after, limit, limit_bytes
                    assert apart(store.messages_in_runs(*reading)) == list(store.messages(*reading)), reading
        assert any(isinstance(each, StoredRun) for each in store.messages_in_runs(SOURCE, 0, NO_LIMIT, NO_LIMIT))

    def test_runs_stop_soon_after_the_bytes_are_exceeded(self, store: Store, epoch: int) -> None:
        self.fill(store, epoch, *range(1, 1001), size=200)
        found = store.runs(SOURCE, 0, NO_LIMIT, 10_000, set())
        assert 50 < sum(run.count for run in found) < 200

    @pytest.mark.parametrize(("first", "count"), [(1, 300), (1, 125), (5, 250), (299, 1)])
    def test_an_assigned_run_is_read_in_order_under_its_numbers(
        self, store: Store, epoch: int, first: int, count: int
    ) -> None:
        self.fill(store, epoch, *range(1, 301))
        store.commit(batch_of(epoch, MessagesAssigned(SOURCE, first, count, 20 * count, TARGET, 1)))
        found = store.messages(TARGET, 0, NO_LIMIT, NO_LIMIT)
        assert [message.seq for message in found] == list(range(1, count + 1))
        assert [message.body for message in found] == [body_of(seq) for seq in range(first, first + count)]
        assert waiting(store, SOURCE) == [seq for seq in range(1, 301) if not first <= seq < first + count]

    def test_numbers_begin_at_the_first_that_is_left_of_a_block(self, store: Store, epoch: int) -> None:
        self.fill(store, epoch, *range(1, 101))
        store.commit(batch_of(epoch, consumed(1), consumed(2)))
        store.commit(batch_of(epoch, MessagesAssigned(SOURCE, 3, 98, 98 * 20, TARGET, 1)))
        found = store.messages(TARGET, 0, NO_LIMIT, NO_LIMIT)
        assert [(m.seq, m.body) for m in found] == [(n, body_of(n + 2)) for n in range(1, 99)]

    def test_counters_follow(self, store: Store, epoch: int) -> None:
        self.fill(store, epoch, *range(1, 301))
        store.commit(batch_of(epoch, MessagesAssigned(SOURCE, 10, 200, 4000, TARGET, 1)))
        store.commit(batch_of(epoch, AssignmentAcknowledged(TARGET, 150, 150)))
        source, target = store.queue_by_number(SOURCE), store.queue_by_number(TARGET)
        assert source is not None
        assert target is not None
        assert (source.stored, source.consumed, source.bytes) == (300, 200, 2000)
        assert (target.stored, target.consumed, target.bytes) == (200, 150, 1000)
        assert (target.last_seq, target.acknowledged) == (200, 150)
        assert waiting(store, TARGET) == list(range(151, 201))

    def test_the_next_run_follows_the_last(self, store: Store, epoch: int) -> None:
        self.fill(store, epoch, *range(1, 301))
        store.commit(
            batch_of(
                epoch,
                MessagesAssigned(SOURCE, 1, 10, 200, TARGET, 1),
                MessagesAssigned(SOURCE, 20, 281, 281 * 20, TARGET, 11),
            )
        )
        bodies = [message.body for message in store.messages(TARGET, 0, NO_LIMIT, NO_LIMIT)]
        assert bodies == [body_of(seq) for seq in (*range(1, 11), *range(20, 301))]

    def test_a_copy_from_a_topic_takes_its_body_along(self, store: Store, epoch: int) -> None:
        facts = [MessagePublished(TOPIC, seq, 20, f"ID:{seq}", [SUBSCRIPTION]) for seq in range(1, 51)]
        store.commit(batch_of(epoch, *facts))
        store.commit(batch_of(epoch, MessagesAssigned(SUBSCRIPTION, 1, 40, 800, TARGET, 1)))
        topic = store.queue_by_number(TOPIC)
        assert topic is not None
        assert topic.consumed == 40
        assert [m.body for m in store.messages(TARGET, 0, NO_LIMIT, NO_LIMIT)] == [body_of(s) for s in range(1, 41)]
        assert waiting(store, SUBSCRIPTION) == list(range(41, 51))

    def test_what_expires_does_not_once_it_is_assigned(self, store: Store, epoch: int) -> None:
        facts = [stored(1), stored(2)]
        facts[0].expires_us = NOW_US + 1
        store.commit(batch_of(epoch, *facts))
        store.commit(batch_of(epoch, MessagesAssigned(SOURCE, 1, 2, 40, TARGET, 1)))
        assert list(store.expired(ExpiryPlace(), NOW_US + 10, 10)) == []
        assert [m.expires_us for m in store.messages(TARGET, 0, NO_LIMIT, NO_LIMIT)] == [0, 0]

    def test_delivery_counts_go_along_and_end_with_the_message(self, store: Store, epoch: int) -> None:
        self.fill(store, epoch, *range(1, 11))
        store.commit(batch_of(epoch, MessageReturned(SOURCE, 4, 2, True, 1, "rollback")))
        store.commit(batch_of(epoch, MessagesAssigned(SOURCE, 3, 5, 100, TARGET, 1)))
        assert [m.count for m in store.messages(TARGET, 0, NO_LIMIT, NO_LIMIT)] == [0, 2, 0, 0, 0]
        store.commit(batch_of(epoch, AssignmentAcknowledged(TARGET, 3, 3)))
        assert [m.count for m in store.messages(TARGET, 0, NO_LIMIT, NO_LIMIT)] == [0, 0]

    def test_a_fence_and_floors_are_kept(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, AssignmentFenced(TARGET, 3, [7, 10 << 56])))
        record = store.queue_by_number(TARGET)
        assert record is not None
        assert (record.fence, record.floors) == (3, [7, 10 << 56])

    def test_from_which_queue_an_assignment_takes_may_change(self, store: Store, epoch: int) -> None:
        before = store.queue_by_number(TARGET)
        assert before is not None
        store.commit(batch_of(epoch, AssignmentFenced(TARGET, 3, [7])))
        after = store.queue_by_number(TARGET)
        assert after is not None
        assert after.topic == before.topic
        store.commit(batch_of(epoch, AssignmentFenced(TARGET, 4, [], before.topic + 7)))
        after = store.queue_by_number(TARGET)
        assert after is not None
        assert (after.fence, after.floors, after.topic) == (4, [], before.topic + 7)

    def test_a_run_that_is_not_there_is_refused_as_a_whole(self, store: Store, epoch: int) -> None:
        self.fill(store, epoch, 1, 2, 4)
        with pytest.raises((StoreError, KeyError)):
            store.commit(batch_of(epoch, MessagesAssigned(SOURCE, 1, 4, 80, TARGET, 1)))
