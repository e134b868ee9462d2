"""What every store must do about duplicate ids. Inherit as `StoreTests`."""

import pytest

from legato.core.facts import DuplicateIdDropped, DuplicateIdKept, Kind, ProducerRegistered, QueueCreated, QueueDeleted
from legato.core.records import KeptId
from legato.errors import FencedError, StoreError
from legato.store.base import FORGOTTEN_FOR_EACH, NONE_KEPT, Store
from tests.conformance.store import NOW_US, batch_of, consumed, stored

QUEUE, OTHER, TOPIC = 1, 2, 3
WINDOW = 5


def kept(name: str, *, queue: int = QUEUE, window: int = WINDOW) -> DuplicateIdKept:
    """The fact that a message got the id; the message's own id has it in it."""
    return DuplicateIdKept(queue, name.encode(), window, f"ID:{name}", 1, 7)


class StoreDuplicateTests:
    """Inherit this."""

    @pytest.fixture
    def epoch(self, store: Store) -> int:
        epoch = store.begin_epoch("broker-1", NOW_US).epoch
        store.commit(
            batch_of(
                epoch,
                QueueCreated(QUEUE, "q"),
                QueueCreated(OTHER, "other"),
                QueueCreated(TOPIC, "topic://t", Kind.TOPIC),
                ProducerRegistered(1, "p"),
            )
        )
        return epoch

    def remembered(self, store: Store, *names: str, queue: int = QUEUE) -> list[str]:
        return [name for name in names if store.duplicate(queue, name.encode()) is not None]

    def test_nothing_is_remembered_at_first(self, store: Store, epoch: int) -> None:
        assert store.duplicate(QUEUE, b"a") is None
        assert store.duplicates(QUEUE) == NONE_KEPT
        assert store.duplicates(99) == NONE_KEPT

    def test_ids_are_counted_and_lead_to_their_messages(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, kept("a"), stored(1), kept("b"), stored(2)))
        store.commit(batch_of(epoch, kept("c"), stored(3)))
        assert store.duplicate(QUEUE, b"a") == KeptId(1, "ID:a", 1, 7)
        assert store.duplicate(QUEUE, b"c") == KeptId(3, "ID:c", 1, 7)
        assert store.duplicates(QUEUE) == (1, 3)

    def test_every_queue_and_topic_has_its_own(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, kept("a"), kept("b", queue=TOPIC), kept("c", queue=TOPIC)))
        assert store.duplicate(TOPIC, b"a") is None
        assert store.duplicate(OTHER, b"a") is None
        assert [store.duplicates(queue) for queue in (QUEUE, OTHER, TOPIC)] == [(1, 1), NONE_KEPT, (1, 2)]

    def test_ids_of_any_length_and_bytes_are_kept_apart(self, store: Store, epoch: int) -> None:
        ids = [b"", b"\x00", b"x" * 510, b"x" * 511, b"x" * 5_000, bytes(range(256))]
        store.commit(batch_of(epoch, *[DuplicateIdKept(QUEUE, each, 100) for each in ids]))
        positions = [found.position for each in ids if (found := store.duplicate(QUEUE, each)) is not None]
        assert positions == [1, 2, 3, 4, 5, 6]

    def test_a_full_window_forgets_the_oldest(self, store: Store, epoch: int) -> None:
        for name in "abcdefg":
            store.commit(batch_of(epoch, kept(name)))
        assert self.remembered(store, *"abcdefg") == [*"cdefg"]
        assert store.duplicates(QUEUE) == (3, 7)

    def test_a_batch_with_more_ids_than_the_window_leaves_the_last_ones(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, kept("before")))
        store.commit(batch_of(epoch, *[kept(str(number)) for number in range(50)]))
        assert self.remembered(store, "before", *map(str, range(50))) == ["45", "46", "47", "48", "49"]
        assert store.duplicates(QUEUE) == (47, 51)

    def test_an_id_that_comes_again_once_it_was_forgotten_stays_as_long_as_any(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, *[kept(name) for name in "abcde"]))
        store.commit(batch_of(epoch, kept("a", window=4)))
        assert store.duplicate(QUEUE, b"a") == KeptId(6, "ID:a", 1, 7)
        store.commit(batch_of(epoch, kept("f", window=4), kept("g", window=4), kept("h", window=4)))
        assert self.remembered(store, *"abcdefgh") == ["a", "f", "g", "h"]
        store.commit(batch_of(epoch, kept("i", window=4)))
        assert self.remembered(store, *"abcdefghi") == ["f", "g", "h", "i"]

    def test_an_id_that_comes_again_before_its_first_place_is_emptied_stays(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, *[kept(name, window=8) for name in "abcdefgh"]))
        store.commit(batch_of(epoch, kept("h", window=1)))
        store.commit(batch_of(epoch, kept("x", window=1)))
        assert store.duplicates(QUEUE) == (9, 10)
        assert store.duplicate(QUEUE, b"h") == KeptId(9, "ID:h", 1, 7)

    def test_a_window_that_became_smaller_is_emptied_little_by_little(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, *[kept(str(number), window=100) for number in range(100)]))
        store.commit(batch_of(epoch, kept("x", window=10)))
        assert store.duplicates(QUEUE) == (1 + FORGOTTEN_FOR_EACH, 101)
        store.commit(batch_of(epoch, *[kept(f"y{number}", window=10) for number in range(50)]))
        assert store.duplicates(QUEUE) == (142, 151)

    def test_messages_come_and_go_and_ids_stay(self, store: Store, epoch: int) -> None:
        """CONTRACT E19."""
        store.commit(batch_of(epoch, kept("a"), stored(1)))
        store.commit(batch_of(epoch, consumed(1)))
        assert self.remembered(store, "a") == ["a"]

    def test_another_epoch_remembers_them(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, kept("a")))
        later = store.begin_epoch("broker-2", NOW_US).epoch
        with pytest.raises(FencedError):
            store.commit(batch_of(epoch, kept("b")))
        assert self.remembered(store, "a", "b") == ["a"]
        store.commit(batch_of(later, kept("b")))
        assert store.duplicates(QUEUE) == (1, 2)

    def test_a_deleted_queue_or_topic_forgets_them(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, kept("a"), kept("a", queue=TOPIC), kept("stays", queue=OTHER)))
        store.commit(batch_of(epoch, QueueDeleted(QUEUE, "q"), QueueDeleted(TOPIC, "topic://t")))
        while store.prune(NOW_US):
            pass
        assert [store.duplicates(queue) for queue in (QUEUE, OTHER, TOPIC)] == [NONE_KEPT, (1, 1), NONE_KEPT]
        assert store.duplicate(QUEUE, b"a") is None
        assert self.remembered(store, "stays", queue=OTHER) == ["stays"]

    def test_a_queue_that_comes_and_goes_in_one_batch_leaves_none(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, QueueCreated(9, "new"), kept("a", queue=9), QueueDeleted(9, "new")))
        assert store.duplicate(9, b"a") is None

    def test_an_id_of_a_queue_that_is_not_there_is_refused(self, store: Store, epoch: int) -> None:
        with pytest.raises(StoreError):
            store.commit(batch_of(epoch, kept("a", queue=99)))

    def test_the_number_of_a_dropped_duplicate_is_its_producers_last(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, DuplicateIdDropped(QUEUE, b"a", "again", "first", 1, 8)))
        store.commit(batch_of(epoch, DuplicateIdDropped(QUEUE, b"a", "unnumbered", "first")))
        record = store.producer("p")
        assert record is not None
        assert (record.last_number, record.refused) == (8, [])
