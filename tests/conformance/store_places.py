"""What every store must do with lanes, expiry, moves and delivery history; inherited like `StoreTests`."""

import random

import pytest

from legato import limits
from legato.core.facts import (
    AnyFact,
    DispatchMarked,
    Kind,
    MessageMoved,
    MessageReturned,
    MessageStored,
    QueueCreated,
)
from legato.core.records import Attempt, ExpiryPlace, QueueRecord
from legato.store.base import Store
from tests.conformance.store import NO_LIMIT, NOW_US, SECOND_US, as_stored, batch_of, body_of, consumed, stored, waiting
from tests.conformance.store_topics import FIRST, SECOND, TOPIC, published, subscription

HIGH = 6 << 56
TOP = 10 << 56


def expiring(seq: int, expires_us: int, *, queue: int = 1) -> MessageStored:
    """A message that expires."""
    return MessageStored(queue, seq, 20, "m", expires_us=expires_us)


class StorePlaceTests:
    """Inherit this."""

    @pytest.fixture
    def epoch(self, store: Store) -> int:
        """An epoch that has begun, with the queue 1, `q`, the topic 2 and its subscriptions 3 and 4."""
        epoch = store.begin_epoch("broker-1", NOW_US).epoch
        created = [QueueCreated(1, "q"), QueueCreated(TOPIC, "topic://t", Kind.TOPIC)]
        store.commit(batch_of(epoch, *created, subscription(FIRST, "a"), subscription(SECOND, "b")))
        return epoch

    def test_every_lane_has_its_own_last_sequence_and_mark(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, stored(TOP + 3), stored(1), stored(HIGH + 1), stored(HIGH + 2), stored(2)))
        store.commit(batch_of(epoch, DispatchMarked(1, HIGH + 9), DispatchMarked(1, 5), DispatchMarked(1, HIGH + 4)))
        store.commit(batch_of(epoch, DispatchMarked(1, (3 << 56) + 1), stored(TOP + 2)))
        assert store.queue("q") == QueueRecord(
            1,
            "q",
            last_seq=2,
            dispatch_mark=5,
            stored=6,
            bytes=120,
            lanes={10: (TOP + 3, 0), 6: (HIGH + 2, HIGH + 9), 3: (0, (3 << 56) + 1)},
        )

    def test_reading_stays_in_the_lane_of_its_begin(self, store: Store, epoch: int) -> None:
        for first in (1, 3):
            seqs = [lane + n for n in (first, first + 1) for lane in (TOP, 0, HIGH)]
            store.commit(batch_of(epoch, *[stored(seq) for seq in seqs]))
        for lane in (0, HIGH, TOP):
            expected = [as_stored(lane + n) for n in range(1, 5)]
            assert list(store.messages(1, lane, 10, NO_LIMIT)) == expected
            assert list(store.messages(1, lane + 2, 10, NO_LIMIT)) == expected[2:]
            assert list(store.messages(1, lane + 4, 10, NO_LIMIT)) == []
        assert [list(store.messages(1, lane << 56, 10, NO_LIMIT)) for lane in (1, 7, 11)] == [[], [], []]

    def test_lanes_are_published_and_consumed(self, store: Store, epoch: int) -> None:
        seqs = [lane + n for lane in (0, HIGH, TOP) for n in (1, 2, 3)]
        store.commit(batch_of(epoch, *[published(seq, FIRST, SECOND) for seq in reversed(seqs)]))
        store.commit(batch_of(epoch, *[consumed(seq, queue=FIRST) for seq in (2, HIGH + 1, TOP + 1, TOP + 2, TOP + 3)]))
        assert [[m.seq - lane for m in store.messages(FIRST, lane, 9, NO_LIMIT)] for lane in (0, HIGH, TOP)] == [
            [1, 3],
            [2, 3],
            [],
        ]
        assert [m.body for m in store.messages(SECOND, TOP, 9, NO_LIMIT)] == [body_of(TOP + n) for n in (1, 2, 3)]
        record = store.queue_by_number(TOPIC)
        assert record is not None
        assert (record.last_seq, record.lanes) == (3, {6: (HIGH + 3, 0), 10: (TOP + 3, 0)})

    def test_a_moved_message_leaves_like_a_consumed_one(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, *[stored(seq) for seq in range(1, 6)]))
        store.commit(batch_of(epoch, MessageMoved(1, 2, "purged"), stored(6), MessageMoved(1, 6, "moved", 9, 9)))
        assert waiting(store) == [1, 3, 4, 5]
        assert store.queue("q") == QueueRecord(1, "q", last_seq=6, stored=6, consumed=2, bytes=80)

    def test_bytes_are_those_of_what_waits(self, store: Store, epoch: int) -> None:
        sizes = {1: 0, 2: 7, 3: 20_000, 4: 100, 5: 1_000}
        store.commit(batch_of(epoch, *[stored(seq, size=size) for seq, size in sizes.items()]))
        store.commit(batch_of(epoch, consumed(2), consumed(4), consumed(4), consumed(99), stored(6), consumed(6)))
        record = store.queue("q")
        assert record is not None
        assert record.bytes == 21_000

    def test_messages_at_random_places_come_in_order(self, store: Store, epoch: int) -> None:
        """As a schedule has them: a sequence is a due time."""
        chance = random.Random(5)
        seqs = chance.sample(range(1 << 54, (1 << 54) + (1 << 34)), 3_000)
        for begin in range(0, len(seqs), 100):
            store.commit(batch_of(epoch, *[stored(seq) for seq in seqs[begin : begin + 100]]))
        assert waiting(store) == sorted(seqs)
        gone = chance.sample(seqs, 2_990)
        for begin in range(0, len(gone), 500):
            store.commit(batch_of(epoch, *[consumed(seq) for seq in gone[begin : begin + 500]]))
        assert list(store.messages(1, 0, 99, NO_LIMIT)) == [as_stored(seq) for seq in sorted({*seqs} - {*gone})]

    def test_what_expired_is_found_in_order_of_time(self, store: Store, epoch: int) -> None:
        store.commit(
            batch_of(epoch, expiring(1, NOW_US + 5), stored(2), expiring(3, NOW_US + 3), expiring(4, NOW_US + 9))
        )
        store.commit(batch_of(epoch, expiring(5, NOW_US + 3), published(1, FIRST, SECOND, expires_us=NOW_US + 4)))
        places = [
            ExpiryPlace(NOW_US + 3, 1, 3),
            ExpiryPlace(NOW_US + 3, 1, 5),
            ExpiryPlace(NOW_US + 4, FIRST, 1),
            ExpiryPlace(NOW_US + 4, SECOND, 1),
            ExpiryPlace(NOW_US + 5, 1, 1),
            ExpiryPlace(NOW_US + 9, 1, 4),
        ]
        assert list(store.expired(ExpiryPlace(), NOW_US + 2, 10)) == []
        assert list(store.expired(ExpiryPlace(), NOW_US + 3, 10)) == places[:2]
        assert list(store.expired(ExpiryPlace(), NOW_US + 5, 10)) == places[:5]
        assert list(store.expired(ExpiryPlace(), NOW_US + 99, 10)) == places
        assert list(store.expired(ExpiryPlace(), NOW_US + 99, 2)) == places[:2]
        assert list(store.expired(places[1], NOW_US + 99, 2)) == places[2:4]
        assert list(store.expired(places[5], NOW_US + 99, 2)) == []

    def test_messages_say_when_they_expire(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, stored(1), expiring(2, NOW_US + 5), published(7, FIRST, expires_us=NOW_US + 6)))
        assert [message.expires_us for message in store.messages(1, 0, 9, NO_LIMIT)] == [0, NOW_US + 5]
        assert [message.expires_us for message in store.messages(FIRST, 0, 9, NO_LIMIT)] == [NOW_US + 6]

    def test_what_is_gone_does_not_expire_any_more(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, *[expiring(seq, NOW_US + 1000 - seq) for seq in range(1, 301)]))
        store.commit(batch_of(epoch, *[published(seq, FIRST, SECOND, expires_us=NOW_US) for seq in range(1, 301)]))
        gone: list[AnyFact] = [consumed(seq) for seq in range(2, 301)]
        gone += [MessageMoved(FIRST, seq, "expired") for seq in range(1, 300)]
        store.commit(batch_of(epoch, *gone, *[consumed(seq, queue=SECOND) for seq in range(1, 301)]))
        places = [ExpiryPlace(NOW_US, FIRST, 300), ExpiryPlace(NOW_US + 999, 1, 1)]
        assert list(store.expired(ExpiryPlace(), NOW_US + 9_999, 10)) == places
        assert [m.expires_us for m in store.messages(1, 0, 9, NO_LIMIT)] == [NOW_US + 999]

    def test_a_message_stored_and_gone_in_one_batch_does_not_expire(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, expiring(1, NOW_US), stored(2), consumed(1)))
        assert list(store.expired(ExpiryPlace(), NOW_US, 10)) == []

    def test_a_message_put_among_others_expires_at_its_time(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, stored(10), expiring(30, NOW_US + 7)))
        store.commit(batch_of(epoch, expiring(20, NOW_US + 3), stored(5)))
        places = [ExpiryPlace(NOW_US + 3, 1, 20), ExpiryPlace(NOW_US + 7, 1, 30)]
        assert list(store.expired(ExpiryPlace(), NOW_US + 9, 10)) == places
        assert [m.expires_us for m in store.messages(1, 0, 9, NO_LIMIT)] == [0, 0, NOW_US + 3, NOW_US + 7]

    def test_the_head_of_a_queue_has_the_age_of_its_commit(self, store: Store, epoch: int) -> None:
        for seconds in range(3):
            time_us = NOW_US + seconds * SECOND_US
            seqs = range(seconds * 10 + 1, seconds * 10 + 11)
            facts = [fact for seq in seqs for fact in (stored(seq), published(seq, FIRST, SECOND))]
            store.commit(batch_of(epoch, *facts, time_us=time_us))
        gone = [consumed(seq, queue=queue) for queue in (1, FIRST) for seq in range(1, 16)]
        store.commit(batch_of(epoch, *gone, time_us=NOW_US + 99 * SECOND_US))
        for queue, seconds in [(1, 1), (FIRST, 1), (SECOND, 0)]:
            (head,) = store.messages(queue, 0, 1, 0)
            assert head.stored_us == NOW_US + seconds * SECOND_US

    def test_failed_deliveries_are_remembered_one_by_one(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, stored(1), stored(2)))
        store.commit(batch_of(epoch, MessageReturned(1, 1, 1, False, 7, "modified"), time_us=NOW_US + 1))
        again = [MessageReturned(1, 1, 2, False, 8, "rollback"), MessageReturned(1, 1, 2, True, 9, "disconnect")]
        store.commit(batch_of(epoch, *again, time_us=NOW_US + 2))
        first, second = store.messages(1, 0, 9, NO_LIMIT)
        assert (first.count, first.flagged) == (2, True)
        assert first.history == [
            Attempt(NOW_US + 1, 7, "modified"),
            Attempt(NOW_US + 2, 8, "rollback"),
            Attempt(NOW_US + 2, 9, "disconnect"),
        ]
        assert second.history == []

    def test_of_many_failed_deliveries_the_last_are_remembered(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, stored(1)))
        times = limits.HISTORY_ATTEMPTS + 5
        for count in range(1, times + 1):
            store.commit(batch_of(epoch, MessageReturned(1, 1, count, False, 1, "rollback"), time_us=NOW_US + count))
        (message,) = store.messages(1, 0, 1, 0)
        assert message.count == times
        assert [attempt.time_us - NOW_US for attempt in message.history] == list(range(6, times + 1))

    def test_a_count_that_is_carried_along_is_no_failed_delivery(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, stored(1), MessageReturned(1, 1, 4, True, 1, "carried")))
        (message,) = store.messages(1, 0, 1, 0)
        assert (message.count, message.flagged, message.history) == (4, True, [])

    def test_the_history_of_a_message_goes_with_it(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, stored(1), MessageReturned(1, 1, 1, False, 1, "rollback")))
        store.commit(batch_of(epoch, MessageMoved(1, 1, "delayed")))
        store.commit(batch_of(epoch, stored(1), MessageReturned(1, 1, 1, False, 1, "carried")))
        assert [(m.count, m.history) for m in store.messages(1, 0, 1, 0)] == [(1, [])]

    def test_messages_are_found_without_their_bodies(self, store: Store, epoch: int) -> None:
        """Some among many that are there, that were and that never were, in any block of any lane."""
        high = 10 << 56
        store.commit(batch_of(epoch, *[stored(seq, size=seq) for seq in range(1, 301)]))
        store.commit(batch_of(epoch, stored(400, size=7), stored(high + 2, size=9), expiring(high + 3, NOW_US)))
        store.commit(batch_of(epoch, consumed(10), MessageReturned(1, 20, 2, True, 5, "disconnect")))
        asked = [1, 10, 20, 300, 301, 399, 400, high + 1, high + 2, high + 3, high + 9]
        found = store.unread_messages(1, asked)
        there = {message.seq: message for lane in (0, high) for message in store.messages(1, lane, NO_LIMIT, NO_LIMIT)}
        assert [message.seq for message in found] == [1, 20, 300, 400, high + 2, high + 3]
        for message in found:
            read = there[message.seq]
            assert (message.body, message.unread_bytes) == (b"", len(read.body))
            assert (message.count, message.flagged, message.history) == (read.count, read.flagged, read.history)
            assert (message.expires_us, message.stored_us) == (read.expires_us, read.stored_us)
        assert list(store.unread_messages(1, [500])) == list(store.unread_messages(99, [1])) == []

    def test_copies_are_found_without_their_bodies(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, published(1, FIRST, size=30)))
        assert [(m.seq, m.body, m.unread_bytes) for m in store.unread_messages(FIRST, [1])] == [(1, b"", 30)]
