"""What every store must do with large messages; inherited like `StoreTests`."""

import pytest

from legato.amqp.codec.stubs import Stub, make_stub
from legato.core.facts import (
    AnyFact,
    Kind,
    MessageConsumed,
    MessageDeadLettered,
    MessageMoved,
    MessagePublished,
    MessageStored,
    QueueCreated,
    QueueDeleted,
)
from legato.store.base import Batch, Store
from tests.conformance.store import NO_LIMIT, NOW_US, consumed, stored, waiting

TOPIC, FIRST, SECOND = 2, 3, 4
PARTS = (b"a" * 1000, b"b" * 1000, b"c")


def large_number(epoch: int, number: int = 1) -> int:
    return epoch << 32 | number


def stub(large: int) -> bytes:
    return make_stub(b"\x00\x53\x70\xc0\x02\x01\x41", Stub(large, 2001))


def upload(store: Store, large: int) -> None:
    """Commit all parts of a large message, in two batches."""
    epoch = large >> 32
    store.commit(Batch(epoch, NOW_US, [], [], [(large, 0, PARTS[0])]))
    store.commit(Batch(epoch, NOW_US, [], [], [(large, 1, PARTS[1]), (large, 2, PARTS[2])]))


def commit(
    store: Store, epoch: int, *facts: AnyFact, larges: tuple[int, ...] = (), ended: tuple[int, ...] = ()
) -> None:
    """Commit facts of which those that store something store stubs of `larges`, in turn."""
    bodies = [stub(large) for large in larges]
    store.commit(Batch(epoch, NOW_US, list(facts), bodies, [], list(ended)))


def stored_stub(seq: int, queue: int = 1) -> MessageStored:
    return stored(seq, queue=queue, size=len(stub(0)))


def published_stub(seq: int, *subscriptions: int) -> MessagePublished:
    return MessagePublished(TOPIC, seq, len(stub(0)), f"ID:{seq}", list(subscriptions))


def parts_of(store: Store, large: int) -> list[bytes]:
    """The parts that there are."""
    found: list[bytes] = []
    while (part := store.chunk(large, len(found))) is not None:
        found.append(part)
    return found


def prune(store: Store) -> None:
    """Remove all that is not needed."""
    while store.prune(NOW_US):
        pass


class StoreLargeTests:
    """Inherit this."""

    @pytest.fixture
    def epoch(self, store: Store) -> int:
        """An epoch that has begun, with the queue 1, the topic 2 and its subscriptions 3 and 4."""
        epoch = store.begin_epoch("broker-1", NOW_US).epoch
        made = [QueueCreated(1, "q"), QueueCreated(TOPIC, "topic://t", int(Kind.TOPIC))]
        made += [QueueCreated(n, f"subscription://c/{n}", int(Kind.SUBSCRIPTION), TOPIC) for n in (FIRST, SECOND)]
        store.commit(Batch(epoch, NOW_US, list(made), []))
        return epoch

    @pytest.fixture
    def large(self, store: Store, epoch: int) -> int:
        """A large message whose parts were committed and which no message refers to yet."""
        large = large_number(epoch)
        upload(store, large)
        return large

    def test_parts_are_kept_by_number_and_index(self, store: Store, epoch: int, large: int) -> None:
        other = large_number(epoch, 2)
        store.commit(Batch(epoch, NOW_US, [], [], [(other, 0, b"other")]))
        assert parts_of(store, large) == list(PARTS)
        assert parts_of(store, other) == [b"other"]
        assert store.chunk(large_number(epoch, 3), 0) is None

    def test_parts_are_no_facts(self, store: Store, epoch: int) -> None:
        position = store.commit(Batch(epoch, NOW_US, [], [], [(large_number(epoch), 0, b"x")]))
        assert [record.facts for _, record in store.log(position - 1, 10)] == [[]]

    def test_a_store_knows_whether_it_has_large_messages(self, store: Store, epoch: int) -> None:
        assert not store.has_larges()
        upload(store, large_number(epoch))
        assert store.has_larges()
        commit(store, epoch, ended=(large_number(epoch),))
        prune(store)
        assert not store.has_larges()

    def test_what_is_uploaded_stays_while_the_epoch_lasts(self, store: Store, large: int) -> None:
        prune(store)
        assert parts_of(store, large) == list(PARTS)

    def test_the_uploads_of_an_epoch_that_is_over_go(self, store: Store, large: int) -> None:
        store.begin_epoch("broker-2", NOW_US)
        prune(store)
        assert parts_of(store, large) == []

    def test_an_upload_that_was_given_up_goes(self, store: Store, epoch: int, large: int) -> None:
        other = large_number(epoch, 2)
        upload(store, other)
        commit(store, epoch, ended=(large,))
        prune(store)
        assert parts_of(store, large) == []
        assert parts_of(store, other) == list(PARTS)

    def test_it_stays_as_long_as_its_message_in_later_epochs_too(self, store: Store, epoch: int, large: int) -> None:
        commit(store, epoch, stored_stub(1), larges=(large,), ended=(large,))
        epoch = store.begin_epoch("broker-2", NOW_US).epoch
        prune(store)
        assert parts_of(store, large) == list(PARTS)
        commit(store, epoch, consumed(1))
        prune(store)
        assert parts_of(store, large) == []
        assert not store.has_larges()

    def test_a_message_among_many_takes_its_parts_with_it(self, store: Store, epoch: int, large: int) -> None:
        small = [stored(seq) for seq in range(1, 50)]
        bodies = [bytes(20) for _ in small]
        store.commit(Batch(epoch, NOW_US, [*small, stored_stub(50)], [*bodies, stub(large)], [], [large]))
        commit(store, epoch, *[consumed(seq) for seq in range(1, 50)])
        prune(store)
        assert parts_of(store, large) == list(PARTS)
        commit(store, epoch, consumed(50))
        prune(store)
        assert parts_of(store, large) == []

    def test_a_message_that_moves_takes_its_parts_along(self, store: Store, epoch: int, large: int) -> None:
        commit(store, epoch, stored_stub(1), larges=(large,), ended=(large,))
        commit(store, epoch, QueueCreated(5, "dead"))
        commit(store, epoch, MessageDeadLettered(1, 1, 1, "rejected", 5, 1), stored_stub(1, 5), larges=(large,))
        prune(store)
        assert parts_of(store, large) == list(PARTS)
        commit(store, epoch, MessageMoved(5, 1, "purged"))
        prune(store)
        assert parts_of(store, large) == []

    def test_a_message_that_comes_between_others_is_counted(self, store: Store, epoch: int, large: int) -> None:
        commit(store, epoch, stored_stub(10), larges=(large,))
        commit(store, epoch, stored_stub(5), larges=(large,), ended=(large,))
        commit(store, epoch, consumed(10))
        prune(store)
        assert parts_of(store, large) == list(PARTS)
        commit(store, epoch, consumed(5))
        prune(store)
        assert parts_of(store, large) == []

    def test_subscriptions_share_it(self, store: Store, epoch: int, large: int) -> None:
        commit(store, epoch, published_stub(1, FIRST, SECOND), larges=(large,), ended=(large,))
        commit(store, epoch, MessageConsumed(FIRST, 1, 1, NOW_US, 1))
        prune(store)
        assert parts_of(store, large) == list(PARTS)
        commit(store, epoch, MessageConsumed(SECOND, 1, 1, NOW_US, 1))
        prune(store)
        assert parts_of(store, large) == []

    def test_without_subscriptions_it_goes_at_once(self, store: Store, epoch: int, large: int) -> None:
        commit(store, epoch, published_stub(1), ended=(large,))
        prune(store)
        assert parts_of(store, large) == []

    def test_a_message_that_comes_and_goes_in_one_batch_leaves_nothing(
        self, store: Store, epoch: int, large: int
    ) -> None:
        commit(store, epoch, stored_stub(1), consumed(1), larges=(large,), ended=(large,))
        assert waiting(store) == []
        prune(store)
        assert parts_of(store, large) == []

    def test_it_goes_with_its_queue(self, store: Store, epoch: int, large: int) -> None:
        commit(store, epoch, stored_stub(1), stored_stub(2), larges=(large, large), ended=(large,))
        commit(store, epoch, QueueDeleted(1, "q", 2))
        prune(store)
        assert parts_of(store, large) == []
        assert list(store.messages(1, 0, NO_LIMIT, NO_LIMIT)) == []
