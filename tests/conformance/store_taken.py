"""What every store must remember of messages that left after others had had them; inherited like `StoreTests`."""

import pytest

from legato import limits
from legato.core.facts import MessageReturned, MessageTaken, QueueCreated, QueueDeleted
from legato.core.records import Attempt, TakenMessage
from legato.store.base import Store
from tests.conformance.store import NO_LIMIT, NOW_US, batch_of, consumed, stored


class StoreTakenTests:
    """Promise 5 over several takeovers."""

    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "TAKEN_MESSAGES", 3)

    def test_who_took_what_is_read_in_the_order_of_taking(self, store: Store) -> None:
        epoch = store.begin_epoch("a", NOW_US).epoch
        store.commit(batch_of(epoch, QueueCreated(1, "q"), stored(1), stored(2), stored(3)))
        store.commit(batch_of(epoch, consumed(2), MessageTaken(1, 2, "me", "link"), MessageTaken(1, 1, "", "")))
        store.begin_epoch("b", NOW_US)
        assert store.taken(1) == [TakenMessage(2, "me", "link"), TakenMessage(1, "", "")]
        assert store.taken(2) == []

    @pytest.mark.parametrize("sizes", [(4,), (2, 2), (3, 3, 1), (1,) * 8, (7,)])
    def test_the_oldest_are_forgotten_first(self, store: Store, sizes: tuple[int, ...]) -> None:
        epoch = store.begin_epoch("a", NOW_US).epoch
        store.commit(batch_of(epoch, QueueCreated(1, "q"), QueueCreated(2, "r")))
        seq = 0
        for size in sizes:
            facts = [MessageTaken(1, seq + number, "me", "") for number in range(1, size + 1)]
            store.commit(batch_of(epoch, *facts, MessageTaken(2, 9, "other", "")))
            seq += size
        assert [taken.seq for taken in store.taken(1)] == [seq - 2, seq - 1, seq]
        record = store.queue("q")
        assert record is not None
        assert record.taken == seq

    def test_a_deleted_queue_is_forgotten_with_it(self, store: Store) -> None:
        epoch = store.begin_epoch("a", NOW_US).epoch
        store.commit(batch_of(epoch, QueueCreated(1, "q"), QueueCreated(2, "r")))
        store.commit(batch_of(epoch, MessageTaken(1, 1, "me", ""), MessageTaken(2, 1, "me", "")))
        store.commit(batch_of(epoch, QueueDeleted(1, "q")))
        while store.prune(NOW_US):
            pass
        assert store.taken(1) == []
        assert store.taken(2) == [TakenMessage(1, "me", "")]

    def test_a_delivery_that_is_taken_back_is_no_further_attempt(self, store: Store) -> None:
        epoch = store.begin_epoch("a", NOW_US).epoch
        store.commit(batch_of(epoch, QueueCreated(1, "q"), stored(1)))
        store.commit(batch_of(epoch, MessageReturned(1, 1, 1, False, 7, "disconnect")))
        store.commit(batch_of(epoch, MessageReturned(1, 1, 0, True, 8, "claimed")))
        (message,) = store.messages(1, 0, NO_LIMIT, NO_LIMIT)
        assert (message.count, message.flagged, message.history) == (0, True, [Attempt(NOW_US, 7, "disconnect")])
