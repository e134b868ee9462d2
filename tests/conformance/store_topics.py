"""What every store must do with topics, subscriptions and deletion; inherited like `StoreTests`."""

from collections.abc import Sequence

import pytest

from legato.core.facts import (
    AnyFact,
    Kind,
    MessageConsumed,
    MessageMoved,
    MessagePublished,
    MessageReturned,
    MessageStored,
    ProducerRegistered,
    QueueCreated,
    QueueDeleted,
    QueueGrouped,
    QueuePaused,
)
from legato.core.records import ExpiryPlace, QueueRecord
from legato.errors import StoreError
from legato.store.base import Batch, Store
from tests.conformance.store import (
    NO_LIMIT,
    NOW_US,
    as_stored,
    batch_of,
    body_of,
    consumed,
    stored,
    waiting,
)

TOPIC = 2
FIRST, SECOND = 3, 4


def published(seq: int, *subscriptions: int, size: int = 20, expires_us: int = 0) -> MessagePublished:
    """The fact that goes with `body_of(seq, size)`."""
    return MessagePublished(TOPIC, seq, size, f"ID:{seq}", list(subscriptions), expires_us=expires_us)


def subscription(number: int, name: str, topic: int = TOPIC) -> QueueCreated:
    """A subscription without anything particular."""
    return QueueCreated(number, name, Kind.SUBSCRIPTION, topic)


def topic_counts(store: Store) -> tuple[int, int, int]:
    """Of the topic: bodies stored, gone, and bytes that are left."""
    record = store.queue("topic://t")
    assert record is not None
    return record.stored, record.consumed, record.bytes


def drain(store: Store) -> None:
    """Let the store do all that it does in the background."""
    while store.prune(NOW_US):
        pass


class StoreTopicTests:
    """Inherit this."""

    @pytest.fixture
    def epoch(self, store: Store) -> int:
        """An epoch that has begun, with the queue 1, `q`, the topic 2, `t`, and its subscriptions 3 and 4."""
        epoch = store.begin_epoch("broker-1", NOW_US).epoch
        facts = [
            QueueCreated(1, "q"),
            QueueCreated(TOPIC, "topic://t", Kind.TOPIC),
            subscription(FIRST, "subscription://c/a"),
            subscription(SECOND, "subscription://c/b"),
        ]
        store.commit(batch_of(epoch, *facts))
        return epoch

    def test_a_record_tells_all_that_its_creation_said(self, store: Store, epoch: int) -> None:
        facts = [
            QueueCreated(10, "s", Kind.SUBSCRIPTION, TOPIC, "a > 1", True, "c", True, True),
            QueueCreated(11, "t", Kind.QUEUE, container="d", temporary=True),
        ]
        store.commit(batch_of(epoch, *facts))
        kept = QueueRecord(
            10,
            "s",
            kind=Kind.SUBSCRIPTION,
            topic=TOPIC,
            selector="a > 1",
            no_local=True,
            container="c",
            temporary=True,
            shared=True,
        )
        assert store.queue("s") == store.queue_by_number(10) == kept
        assert store.queue_by_number(11) == QueueRecord(11, "t", container="d", temporary=True)
        assert store.queue_by_number(12) is None

    def test_a_queue_is_paused_goes_on_and_looks_for_groups_for_ever(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, QueuePaused(1, True), QueueGrouped(1)))
        assert store.queue("q") == QueueRecord(1, "q", paused=True, grouped=True)
        store.commit(batch_of(epoch, QueuePaused(1, False)))
        assert store.queue("q") == QueueRecord(1, "q", paused=False, grouped=True)

    def test_subscriptions_of_a_topic_and_temporaries_are_found_without_a_scan(self, store: Store, epoch: int) -> None:
        store.commit(
            batch_of(
                epoch,
                QueueCreated(5, "topic://u", Kind.TOPIC, temporary=True),
                subscription(6, "s", topic=5),
                QueueCreated(7, "v", Kind.SUBSCRIPTION, TOPIC, temporary=True),
                QueueCreated(8, "w", temporary=True),
            )
        )
        assert [record.queue for record in store.subscriptions(TOPIC)] == [FIRST, SECOND, 7]
        assert [record.queue for record in store.subscriptions(5)] == [6]
        assert [list(store.subscriptions(number)) for number in (1, 6, 99)] == [[], [], []]
        assert [record.queue for record in store.temporaries(10)] == [5, 7, 8]
        assert [record.queue for record in store.temporaries(2)] == [5, 7]

    def test_every_subscription_that_is_named_has_a_copy_and_the_topic_one_body(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, published(1, FIRST, SECOND), published(2, SECOND), published(3, FIRST, SECOND)))
        assert list(store.messages(FIRST, 0, 10, NO_LIMIT)) == [as_stored(1), as_stored(3)]
        assert list(store.messages(SECOND, 0, 10, NO_LIMIT)) == [as_stored(1), as_stored(2), as_stored(3)]
        assert topic_counts(store) == (3, 0, 60)
        first, second = store.queue_by_number(FIRST), store.queue_by_number(SECOND)
        assert first is not None
        assert second is not None
        assert (first.last_seq, first.stored, first.bytes) == (3, 2, 40)
        assert (second.last_seq, second.stored, second.bytes) == (3, 3, 60)

    def test_a_topic_itself_has_no_messages(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, published(1, FIRST)))
        assert list(store.messages(TOPIC, 0, 10, NO_LIMIT)) == []

    def test_what_nobody_subscribes_to_has_a_number_and_nothing_else(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, published(1), published(2, FIRST), published(3)))
        record = store.queue("topic://t")
        assert record is not None
        assert (record.last_seq, record.stored, record.bytes) == (3, 1, 20)
        assert waiting(store, FIRST) == [2]

    def test_a_body_goes_with_its_last_copy(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, *[published(seq, FIRST, SECOND) for seq in range(1, 1001)]))
        store.commit(batch_of(epoch, *[consumed(seq, queue=FIRST) for seq in range(1, 1001)]))
        assert topic_counts(store) == (1000, 0, 20_000)
        assert [message.body for message in store.messages(SECOND, 998, 10, NO_LIMIT)] == [body_of(999), body_of(1000)]
        gone = [seq for seq in range(1, 1001) if seq % 7]
        store.commit(batch_of(epoch, *[consumed(seq, queue=SECOND) for seq in gone]))
        assert topic_counts(store) == (1000, len(gone), 20 * (1000 - len(gone)))
        left = store.messages(SECOND, 0, NO_LIMIT, NO_LIMIT)
        assert list(left) == [as_stored(seq) for seq in range(7, 1001, 7)]

    def test_copies_that_go_in_one_commit_take_their_body_along(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, *[published(seq, FIRST, SECOND) for seq in range(1, 11)]))
        facts = [consumed(seq, queue=queue) for queue in (FIRST, SECOND) for seq in range(2, 11)]
        store.commit(batch_of(epoch, *facts, MessageMoved(FIRST, 1, "expired")))
        assert topic_counts(store) == (10, 9, 20)
        assert (waiting(store, FIRST), waiting(store, SECOND)) == ([], [1])

    def test_a_copy_consumed_in_the_batch_that_made_it_is_not_there(self, store: Store, epoch: int) -> None:
        facts: Sequence[AnyFact] = [published(1, FIRST, SECOND), published(2, FIRST), published(3, FIRST)]
        store.commit(batch_of(epoch, *facts, consumed(1, queue=FIRST), consumed(2, queue=FIRST)))
        assert (waiting(store, FIRST), waiting(store, SECOND)) == ([3], [1])
        assert topic_counts(store) == (3, 1, 40)
        record = store.queue_by_number(FIRST)
        assert record is not None
        assert (record.stored, record.consumed, record.bytes, record.last_seq) == (3, 2, 20, 3)

    def test_consuming_a_copy_twice_does_not_take_the_others_body(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, published(1, FIRST, SECOND)))
        store.commit(batch_of(epoch, consumed(1, queue=FIRST)))
        store.commit(batch_of(epoch, consumed(1, queue=FIRST)))
        assert list(store.messages(SECOND, 0, 10, NO_LIMIT)) == [as_stored(1)]

    def test_a_copy_that_left_may_come_back_to_its_place(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, *[published(seq, FIRST, SECOND) for seq in range(1, 6)]))
        gone: list[AnyFact] = [
            MessageMoved(FIRST, 2, "delayed"),
            MessageMoved(FIRST, 3, "delayed"),
            consumed(3, queue=SECOND),
        ]
        store.commit(batch_of(epoch, *gone))
        assert topic_counts(store) == (5, 1, 80)
        store.commit(batch_of(epoch, published(2, FIRST), published(3, FIRST)))
        assert topic_counts(store) == (6, 1, 100)
        assert (waiting(store, FIRST), waiting(store, SECOND)) == ([1, 2, 3, 4, 5], [1, 2, 4, 5])
        store.commit(batch_of(epoch, *[consumed(seq, queue=FIRST) for seq in (2, 3)]))
        assert [message.seq for message in store.messages(SECOND, 0, 10, NO_LIMIT)] == [1, 2, 4, 5]
        assert topic_counts(store) == (6, 2, 80)

    def test_a_subscription_also_takes_a_message_of_its_own(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, published(10, FIRST), published(20, FIRST, SECOND), published(30, FIRST)))
        store.commit(batch_of(epoch, stored(15, queue=FIRST), stored(31, queue=FIRST), published(33, FIRST)))
        assert list(store.messages(FIRST, 0, 10, NO_LIMIT)) == [as_stored(seq) for seq in (10, 15, 20, 30, 31, 33)]
        store.commit(batch_of(epoch, *[consumed(seq, queue=FIRST) for seq in (10, 15, 20, 31)]))
        assert waiting(store, FIRST) == [30, 33]
        assert topic_counts(store) == (4, 1, 60)

    def test_deliveries_of_a_copy_are_those_of_one_subscription(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, published(1, FIRST, SECOND), MessageReturned(FIRST, 1, 2, True, 9, "rollback")))
        assert [(m.count, m.flagged) for m in store.messages(FIRST, 0, 1, 0)] == [(2, True)]
        assert [(m.count, m.flagged) for m in store.messages(SECOND, 0, 1, 0)] == [(0, False)]

    def test_bodies_of_any_size_are_shared(self, store: Store, epoch: int) -> None:
        sizes = [0, 1, 4_000, 16_000, 40_000, 0, 100_000, 3]
        facts = [published(seq, FIRST, SECOND, size=size) for seq, size in enumerate(sizes, 1)]
        store.commit(batch_of(epoch, *facts))
        store.commit(batch_of(epoch, consumed(5, queue=FIRST)))
        found = store.messages(SECOND, 0, 10, NO_LIMIT)
        assert [message.body for message in found] == [body_of(seq, size) for seq, size in enumerate(sizes, 1)]
        assert [message.seq for message in store.messages(SECOND, 0, 10, 15_000)] == [1, 2, 3, 4]

    def test_bodies_in_a_batch_are_in_the_order_of_facts_of_both_kinds(self, store: Store, epoch: int) -> None:
        facts: list[AnyFact] = [
            stored(1),
            published(1, FIRST, size=30),
            published(2),
            stored(2, size=40),
            published(3, SECOND),
        ]
        store.commit(batch_of(epoch, *facts))
        assert [message.body for message in store.messages(1, 0, 10, NO_LIMIT)] == [body_of(1), body_of(2, 40)]
        assert store.messages(FIRST, 0, 1, 0)[0].body == body_of(1, 30)
        assert store.messages(SECOND, 0, 1, 0)[0].body == body_of(3)

    def test_what_is_published_is_a_producers_number(self, store: Store, epoch: int) -> None:
        facts: list[AnyFact] = [
            ProducerRegistered(1, "p"),
            MessagePublished(TOPIC, 1, 20, "m", [FIRST], producer=1, number=5),
            MessagePublished(TOPIC, 2, 20, "n", [], producer=1, number=6),
        ]
        store.commit(batch_of(epoch, *facts))
        producer = store.producer("p")
        assert producer is not None
        assert producer.last_number == 6

    def test_a_deleted_queue_is_gone_at_once_and_its_name_is_free(self, store: Store, epoch: int) -> None:
        expiring = MessageStored(1, 1, 20, "m", expires_us=NOW_US)
        store.commit(batch_of(epoch, expiring, MessageReturned(1, 1, 1, True, 1, "rollback")))
        store.commit(batch_of(epoch, QueueDeleted(1, "q", 1), QueueCreated(9, "q")))
        assert store.queue_by_number(1) is None
        assert store.queue("q") == QueueRecord(9, "q")
        assert [record.queue for record in store.queues()] == [TOPIC, FIRST, SECOND, 9]
        assert waiting(store, 1) == waiting(store, 9) == []
        assert list(store.expired(ExpiryPlace(), NOW_US, 10)) == []
        drain(store)
        assert store.begin_epoch("b", NOW_US).next_queue == 10

    def test_a_deleted_subscription_is_no_longer_among_those_of_its_topic(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, QueueCreated(7, "v", Kind.SUBSCRIPTION, TOPIC, temporary=True)))
        store.commit(batch_of(epoch, QueueDeleted(FIRST, "subscription://c/a"), QueueDeleted(7, "v")))
        assert [record.queue for record in store.subscriptions(TOPIC)] == [SECOND]
        assert list(store.temporaries(10)) == []

    def test_what_a_deleted_subscription_held_is_released(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, *[published(seq, FIRST, SECOND) for seq in range(1, 1001)]))
        store.commit(batch_of(epoch, *[consumed(seq, queue=SECOND) for seq in range(1, 501)]))
        store.commit(batch_of(epoch, QueueDeleted(FIRST, "subscription://c/a", 1000)))
        drain(store)
        assert topic_counts(store) == (1000, 500, 10_000)
        assert waiting(store, SECOND) == list(range(501, 1001))

    def test_what_is_published_in_the_batch_that_deletes_a_subscription_is_not_kept_for_it(
        self, store: Store, epoch: int
    ) -> None:
        gone = QueueDeleted(FIRST, "subscription://c/a")
        store.commit(batch_of(epoch, published(1, FIRST), published(2, FIRST, SECOND), gone, published(3, SECOND)))
        assert waiting(store, SECOND) == [2, 3]
        drain(store)
        assert topic_counts(store) == (3, 1, 40)

    def test_subscriptions_keep_what_they_have_when_their_topic_is_deleted(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, published(1, FIRST), published(2, FIRST, SECOND)))
        store.commit(batch_of(epoch, QueueDeleted(TOPIC, "topic://t")))
        drain(store)
        assert list(store.messages(FIRST, 0, 10, NO_LIMIT)) == [as_stored(1), as_stored(2)]
        store.commit(batch_of(epoch, consumed(1, queue=FIRST), consumed(2, queue=FIRST)))
        assert list(store.messages(SECOND, 0, 10, NO_LIMIT)) == [as_stored(2)]

    def test_a_queue_created_and_deleted_in_one_batch_leaves_its_number_used(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, subscription(20, "s"), published(1, 20), QueueDeleted(20, "s")))
        assert store.queue("s") is None
        assert store.meta().next_queue == 21
        assert topic_counts(store)[2] == 0

    @pytest.mark.parametrize(
        "facts",
        [
            [published(1, FIRST, 99)],
            [MessagePublished(99, 1, 20, "m", [FIRST])],
            [QueueDeleted(99, "x")],
            [QueuePaused(99, True)],
            [QueueGrouped(99)],
            [MessageMoved(99, 1, "purged")],
            [QueueDeleted(1, "q"), stored(1)],
            [QueueDeleted(1, "q"), MessageConsumed(1, 1, 1, 1, 1)],
            [QueueDeleted(FIRST, "subscription://c/a"), published(1, FIRST, SECOND)],
            [published(1, FIRST), QueueDeleted(TOPIC, "topic://t")],
            [subscription(9, "q")],
        ],
    )
    def test_a_batch_that_contradicts_the_state_leaves_it_as_it_was(
        self, store: Store, epoch: int, facts: list[AnyFact]
    ) -> None:
        before = store.meta(), list(store.queues())
        with pytest.raises(StoreError):
            store.commit(batch_of(epoch, stored(7), published(7, SECOND), *facts))
        assert (store.meta(), list(store.queues())) == before
        assert waiting(store, 1) == waiting(store, SECOND) == []

    @pytest.mark.parametrize("bodies", [[], [b"x" * 19], [b"x" * 20, b""]])
    def test_bodies_must_be_those_of_what_is_published(self, store: Store, epoch: int, bodies: list[bytes]) -> None:
        with pytest.raises(StoreError):
            store.commit(Batch(epoch, NOW_US, [published(1, FIRST), published(2)], bodies))
        assert waiting(store, FIRST) == []

    def test_reads_of_subscriptions_give_copies(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, published(1, FIRST)))
        store.subscriptions(TOPIC)[0].stored = 99
        store.messages(FIRST, 0, 1, 0)[0].count = 99
        assert store.subscriptions(TOPIC)[0].stored == 1
        assert store.messages(FIRST, 0, 1, 0)[0].count == 0
