"""What every store must do. A store's own test module inherits `StoreTests` and gives it a fixture `store`."""

import threading
from collections.abc import Iterable, Sequence

import pytest

from legato import limits
from legato.core.facts import (
    AnyFact,
    ConsumerAttached,
    DispatchMarked,
    DuplicateDropped,
    EpochBegan,
    MessageConsumed,
    MessageDeadLettered,
    MessagePresented,
    MessagePublished,
    MessageReturned,
    MessageStored,
    NumberRefused,
    ProducerForgotten,
    ProducerRegistered,
    QueueCreated,
    QueueMarked,
    TransactionCommitted,
    TransactionRolledBack,
)
from legato.core.records import StoredRun
from legato.core.refused_numbers import RefusedNumbers
from legato.errors import FencedError, StoreError
from legato.ids import make_txn_id
from legato.store.base import Batch, Meta, ProducerRecord, QueueRecord, Store, StoredMessage

NOW_US = 1_700_000_000_000_000
FORGOTTEN_US = NOW_US - limits.OUTCOME_RETENTION_S * 1_000_000
"""What happened before a store had its steady clock may be forgotten."""
SECOND_US = 1_000_000
NO_LIMIT = 1 << 30


def body_of(seq: int, size: int = 20) -> bytes:
    """A body that no other message has."""
    return seq.to_bytes(8, "big") * (size // 8) + bytes(size % 8)


def stored(seq: int, *, queue: int = 1, size: int = 20, producer: int = 0, number: int = 0) -> MessageStored:
    """The fact that goes with `body_of(seq, size)`."""
    return MessageStored(queue, seq, size, f"ID:{queue}-{seq}", producer, number)


def consumed(seq: int, *, queue: int = 1) -> MessageConsumed:
    """The fact that a first delivery was acknowledged."""
    return MessageConsumed(queue, seq, 1, NOW_US, 1)


def as_stored(seq: int, *, size: int = 20, time_us: int = NOW_US) -> StoredMessage:
    """What is read of `body_of(seq, size)` when it was never delivered."""
    return StoredMessage(seq, body_of(seq, size), stored_us=time_us)


def batch_of(epoch: int, *facts: AnyFact, time_us: int = NOW_US, steady_us: int = 0) -> Batch:
    """A batch of `facts` with the bodies that belong to them."""
    bodies = [
        body_of(fact.seq, fact.size)
        for fact in facts
        if isinstance(fact, MessageStored) or (isinstance(fact, MessagePublished) and fact.subscriptions)
    ]
    return Batch(epoch, time_us, list(facts), bodies, steady_us=steady_us)


def apart(found: Iterable[StoredMessage | StoredRun]) -> list[StoredMessage]:
    """Messages that were read in runs."""
    return [message for each in found for message in (each.messages() if isinstance(each, StoredRun) else (each,))]


def waiting(store: Store, queue: int = 1) -> list[int]:
    """Sequences of all waiting messages of a queue."""
    return [message.seq for message in store.messages(queue, 0, NO_LIMIT, NO_LIMIT)]


class StoreTests:
    """Inherit this."""

    @pytest.fixture
    def epoch(self, store: Store) -> int:
        """An epoch that has begun, with the queue 1, `q`, and the producer 1, `p`."""
        epoch = store.begin_epoch("broker-1", NOW_US).epoch
        store.commit(batch_of(epoch, QueueCreated(1, "q"), ProducerRegistered(1, "p")))
        return epoch

    def test_a_new_store_is_empty(self, store: Store) -> None:
        assert store.meta() == Meta()
        assert list(store.queues()) == []
        assert store.queue("q") is None
        assert store.producer("p") is None
        assert store.outcome(make_txn_id(1, 1)) is False
        assert list(store.messages(1, 0, 10, NO_LIMIT)) == []
        assert list(store.log(0, 10)) == []
        assert store.log_range() == (1, 0)
        assert store.trim_log(10, 10) == 0
        assert store.prune(NOW_US) == 0

    def test_every_epoch_is_one_more_than_the_last_and_begins_the_log_of_its_own(self, store: Store) -> None:
        assert store.begin_epoch("broker-1", NOW_US).epoch == 1
        assert store.begin_epoch("broker-2", NOW_US + 5) == store.meta()
        assert store.meta() == Meta(2, log_position=2, steady_us=NOW_US, outcomes_forgotten_us=FORGOTTEN_US)
        (_, first), (_, second) = store.log(0, 10)
        assert (first.epoch, first.time_us, first.facts) == (1, NOW_US, [EpochBegan("broker-1")])
        assert (second.epoch, second.time_us, second.facts) == (2, NOW_US + 5, [EpochBegan("broker-2")])

    def test_an_epoch_that_is_over_cannot_commit(self, store: Store, epoch: int) -> None:
        store.begin_epoch("broker-2", NOW_US)
        before = store.meta()
        with pytest.raises(FencedError):
            store.commit(batch_of(epoch, stored(1)))
        assert waiting(store) == []
        assert store.meta() == before

    def test_an_epoch_that_has_not_begun_cannot_commit(self, store: Store, epoch: int) -> None:
        with pytest.raises(FencedError):
            store.commit(batch_of(epoch + 1, stored(1)))

    def test_messages_are_kept_in_order_with_their_bodies(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, *[stored(seq) for seq in range(1, 400)]))
        store.commit(batch_of(epoch, *[stored(seq) for seq in (400, 402, 500)]))
        expected = [as_stored(seq) for seq in [*range(1, 401), 402, 500]]
        assert list(store.messages(1, 0, NO_LIMIT, NO_LIMIT)) == expected
        assert list(store.messages(1, 399, NO_LIMIT, NO_LIMIT)) == expected[399:]
        assert list(store.messages(1, 401, NO_LIMIT, NO_LIMIT)) == expected[400:]
        assert list(store.messages(1, 500, NO_LIMIT, NO_LIMIT)) == []

    def test_bodies_of_any_size_come_back_as_they_were(self, store: Store, epoch: int) -> None:
        sizes = [0, 1, 100, 2_000, 4_000, 15_000, 16_000, 20_000, 1_000_000, 3, 0]
        facts = [stored(seq, size=size) for seq, size in enumerate(sizes, 1)]
        store.commit(batch_of(epoch, *facts))
        found = store.messages(1, 0, NO_LIMIT, NO_LIMIT)
        assert [message.body for message in found] == [body_of(seq, size) for seq, size in enumerate(sizes, 1)]

    def test_queues_do_not_see_one_another(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, QueueCreated(2, "r"), QueueCreated(7, "s")))
        store.commit(batch_of(epoch, stored(1), stored(1, queue=7), stored(2, queue=7), stored(2), stored(1, queue=2)))
        store.commit(batch_of(epoch, consumed(1, queue=7), consumed(2, queue=1)))
        assert (waiting(store, 1), waiting(store, 2), waiting(store, 7)) == ([1], [1], [2])

    def test_a_message_stored_below_the_last_one_takes_its_place(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, stored(10), stored(20), stored(30)))
        store.commit(batch_of(epoch, stored(15), stored(5), stored(31), stored(7)))
        store.commit(batch_of(epoch, consumed(20), stored(6)))
        expected = [as_stored(seq) for seq in (5, 6, 7, 10, 15, 30, 31)]
        assert list(store.messages(1, 0, NO_LIMIT, NO_LIMIT)) == expected

    def test_reading_stops_at_the_limits_but_gives_at_least_one_message(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, *[stored(seq, size=1000) for seq in range(1, 101)]))
        assert [message.seq for message in store.messages(1, 5, 3, NO_LIMIT)] == [6, 7, 8]
        assert [message.seq for message in store.messages(1, 0, 100, 2_500)] == [1, 2, 3]
        assert [message.seq for message in store.messages(1, 0, 100, 2_000)] == [1, 2, 3]
        assert [message.seq for message in store.messages(1, 0, 100, 0)] == [1]
        assert list(store.messages(1, 0, 0, NO_LIMIT)) == []

    def test_consumed_messages_are_gone_wherever_they_were(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, *[stored(seq) for seq in range(1, 1001)]))
        gone = [*range(1, 130), 200, 202, *range(300, 700), 999, 1000]
        store.commit(batch_of(epoch, *[consumed(seq) for seq in reversed(gone)]))
        assert waiting(store) == [seq for seq in range(1, 1001) if seq not in set(gone)]

    def test_a_queue_consumed_one_by_one_ends_empty(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, *[stored(seq) for seq in range(1, 31)]))
        for seq in [*range(2, 31, 2), *range(29, 0, -2)]:
            store.commit(batch_of(epoch, consumed(seq)))
        assert waiting(store) == []

    def test_a_message_stored_and_consumed_in_one_batch_is_counted_but_not_there(
        self, store: Store, epoch: int
    ) -> None:
        store.commit(batch_of(epoch, stored(1), MessageReturned(1, 1, 1, True, 1, "rollback"), consumed(1), stored(2)))
        assert waiting(store) == [2]
        assert store.queue("q") == QueueRecord(1, "q", last_seq=2, stored=2, consumed=1, bytes=20)

    def test_a_queue_counts_what_happened_to_it(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, *[stored(seq) for seq in range(1, 11)], DispatchMarked(1, 5)))
        store.commit(batch_of(epoch, consumed(1), consumed(2), DispatchMarked(1, 3), stored(14)))
        assert store.queue("q") == QueueRecord(1, "q", last_seq=14, dispatch_mark=5, stored=11, consumed=2, bytes=180)

    def test_the_dispatch_mark_never_goes_back(self, store: Store, epoch: int) -> None:
        for seq in (1_000, 3_000, 2_000):
            store.commit(batch_of(epoch, DispatchMarked(1, seq)))
        record = store.queue("q")
        assert record is not None
        assert record.dispatch_mark == 3_000

    def test_a_dead_letter_moves(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, QueueCreated(2, "dead"), stored(1), stored(2)))
        moved = MessageStored(2, 1, 20, "ID:1-1", origin=(1, 1))
        facts: list[AnyFact] = [MessageDeadLettered(1, 1, 1, "count", 2, 1), moved]
        store.commit(Batch(epoch, NOW_US, facts, [body_of(1)]))
        assert (waiting(store, 1), waiting(store, 2)) == ([2], [1])
        assert store.queue("q") == QueueRecord(1, "q", last_seq=2, stored=2, consumed=1, bytes=20)
        assert store.queue("dead") == QueueRecord(2, "dead", last_seq=1, stored=1, bytes=20)

    def test_a_message_stored_and_dead_lettered_in_one_batch_is_only_among_the_dead(
        self, store: Store, epoch: int
    ) -> None:
        store.commit(batch_of(epoch, QueueCreated(2, "dead")))
        facts: list[AnyFact] = [stored(1), MessageDeadLettered(1, 1, 1, "size", 2, 1), stored(1, queue=2), stored(2)]
        store.commit(batch_of(epoch, *facts))
        assert (waiting(store, 1), waiting(store, 2)) == ([2], [1])

    def test_failed_deliveries_stay_with_their_message_and_go_with_it(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, *[stored(seq) for seq in range(1, 7)]))
        store.commit(
            batch_of(
                epoch,
                MessageReturned(1, 2, 3, False, 1, "modified"),
                MessageReturned(1, 3, 1, True, 1, "disconnect"),
                MessagePresented(1, 3, 1),
                MessagePresented(1, 4, 1),
                MessageReturned(1, 6, 9, True, 1, "rollback"),
            )
        )
        store.commit(batch_of(epoch, MessagePresented(1, 2, 1), MessageReturned(1, 6, 10, False, 1, "rollback")))
        found = {message.seq: (message.count, message.flagged) for message in store.messages(1, 1, 10, NO_LIMIT)}
        assert found == {2: (3, True), 3: (1, True), 4: (0, True), 5: (0, False), 6: (10, False)}
        store.commit(batch_of(epoch, consumed(3), consumed(2), consumed(1)))
        store.commit(batch_of(epoch, stored(3), stored(2)))
        again = {message.seq: (message.count, message.flagged) for message in store.messages(1, 0, 10, NO_LIMIT)}
        assert again == {2: (0, False), 3: (0, False), 4: (0, True), 5: (0, False), 6: (10, False)}

    def test_a_delivery_of_a_message_that_is_not_there_leaves_no_trace(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, stored(1), stored(3)))
        facts: Sequence[AnyFact] = [
            consumed(1),
            MessageReturned(1, 1, 1, True, 1, "rollback"),
            MessageReturned(1, 2, 1, True, 1, "rollback"),
            MessagePresented(1, 9, 1),
        ]
        store.commit(batch_of(epoch, *facts))
        store.commit(batch_of(epoch, stored(1), stored(2), stored(9)))
        found = store.messages(1, 0, 10, NO_LIMIT)
        assert [(m.seq, m.count, m.flagged) for m in found] == [(seq, 0, False) for seq in (1, 2, 3, 9)]

    def test_producers_remember_their_last_number_and_the_refused_ones(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, stored(1, producer=1, number=5), steady_us=NOW_US + 1))
        store.commit(batch_of(epoch, NumberRefused(1, 7), NumberRefused(1, 6), stored(2, producer=1, number=4)))
        record = store.producer("p")
        assert record is not None
        assert (record.last_number, [*RefusedNumbers.of(record)], record.seen_us) == (7, [6, 7], NOW_US + 1)
        store.commit(batch_of(epoch, stored(3, producer=1, number=6), NumberRefused(1, 8), steady_us=NOW_US + 2))
        record = store.producer("p")
        assert record is not None
        assert (record.last_number, [*RefusedNumbers.of(record)], record.seen_us) == (8, [7, 8], NOW_US + 2)

    def test_of_a_number_refused_and_stored_in_one_batch_the_last_word_counts(self, store: Store, epoch: int) -> None:
        store.commit(
            batch_of(
                epoch,
                NumberRefused(1, 1),
                stored(1, producer=1, number=1),
                stored(2, producer=1, number=2),
                NumberRefused(1, 2),
            )
        )
        record = store.producer("p")
        assert record is not None
        assert (record.last_number, [*RefusedNumbers.of(record)]) == (2, [2])

    def test_refused_numbers_far_behind_are_not_kept(
        self, store: Store, epoch: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "REFUSED_NUMBERS_KEPT", 8)
        store.commit(batch_of(epoch, *[NumberRefused(1, number) for number in range(1, 100, 2)]))
        store.commit(batch_of(epoch, stored(1, producer=1, number=100)))
        record = store.producer("p")
        assert record is not None
        assert ([*RefusedNumbers.of(record)], record.refused_forgotten) == ([93, 95, 97, 99], 91)
        store.commit(batch_of(epoch, stored(2, producer=1, number=1000)))
        record = store.producer("p")
        assert record is not None
        assert (record.refused_bits, record.refused_forgotten) == (b"", 99)

    def test_a_producer_registered_again_keeps_its_numbers(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, stored(1, producer=1, number=5)))
        store.commit(batch_of(epoch, ProducerRegistered(1, "p"), steady_us=NOW_US + 9))
        record = store.producer("p")
        assert record is not None
        assert (record.last_number, record.seen_us) == (5, NOW_US + 9)

    def test_a_forgotten_producer_is_unknown_and_its_stragglers_are_stored(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, stored(1, producer=1, number=1), ProducerForgotten(1, "p")))
        store.commit(batch_of(epoch, stored(2, producer=1, number=2), NumberRefused(1, 3)))
        assert store.producer("p") is None
        assert waiting(store) == [1, 2]
        store.commit(batch_of(epoch, ProducerRegistered(2, "p")))
        record = store.producer("p")
        assert record is not None
        assert (record.producer, record.last_number) == (2, 0)

    def test_numbers_are_never_given_twice(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, QueueCreated(5, "r"), ConsumerAttached(9, 1, "c"), ProducerRegistered(3, "o")))
        store.commit(batch_of(epoch, ConsumerAttached(4, 1, "c"), ProducerForgotten(3, "o")))
        meta = store.begin_epoch("broker-2", NOW_US)
        assert (meta.next_queue, meta.next_producer, meta.next_consumer) == (6, 4, 10)

    def test_queues_of_any_name_are_found(self, store: Store, epoch: int) -> None:
        names = ["", "Fluß/ü", "x" * 500, "x" * 501, "x" * 5_000, "x" * 4_999 + "y"]
        facts = [QueueCreated(number, name) for number, name in enumerate(names, 2)]
        store.commit(batch_of(epoch, *facts))
        for number, name in enumerate(names, 2):
            assert store.queue(name) == QueueRecord(number, name)
        assert store.queue("x") is None
        assert [record.name for record in store.queues()] == ["q", *names]

    def test_outcomes_of_committed_transactions_are_known(self, store: Store, epoch: int) -> None:
        first, second, third = (make_txn_id(epoch, counter) for counter in (1, 2, 3))
        store.commit(batch_of(epoch, TransactionCommitted(first, 1, 0), TransactionRolledBack(second, 1, 1, "client")))
        store.commit(batch_of(epoch, TransactionCommitted(third, 0, 1)))
        assert [store.outcome(txn) for txn in (first, second, third)] == [True, False, True]
        assert [store.outcome(txn) for txn in (b"", b"x", b"x" * 2_000)] == [False, False, False]

    @pytest.mark.parametrize(
        "facts",
        [
            [stored(1), MessageStored(2, 1, 20, "ID:2-1")],
            [stored(1), MessageConsumed(3, 1, 1, 1, 1)],
            [stored(1), MessagePresented(3, 1, 1)],
            [stored(1), DispatchMarked(3, 1)],
            [stored(1), QueueCreated(1, "other")],
            [stored(1), QueueCreated(2, "q")],
        ],
    )
    def test_a_batch_that_contradicts_the_state_leaves_it_as_it_was(
        self, store: Store, epoch: int, facts: list[AnyFact]
    ) -> None:
        before = store.meta(), list(store.queues())
        with pytest.raises(StoreError):
            store.commit(batch_of(epoch, *facts))
        assert (store.meta(), list(store.queues())) == before
        assert waiting(store) == []
        store.commit(batch_of(epoch, stored(1)))
        assert waiting(store) == [1]

    @pytest.mark.parametrize("bodies", [[], [b"x" * 19], [b"x" * 21], [b"x" * 20, b""]])
    def test_bodies_must_be_those_of_the_facts(self, store: Store, epoch: int, bodies: list[bytes]) -> None:
        with pytest.raises(StoreError):
            store.commit(Batch(epoch, NOW_US, [stored(1)], bodies))
        assert waiting(store) == []

    def test_every_commit_is_one_log_record_without_gaps(self, store: Store, epoch: int) -> None:
        last = store.meta().log_position
        facts: list[AnyFact] = [stored(1), DuplicateDropped(1, 1), QueueMarked(1, 1, 1, 0)]
        assert store.commit(batch_of(epoch, *facts, time_us=NOW_US + 7)) == last + 1
        assert store.commit(batch_of(epoch)) == last + 2
        (position, record), (_, empty) = store.log(last, 10)
        assert (position, record.epoch, record.time_us, record.facts) == (last + 1, epoch, NOW_US + 7, facts)
        assert empty.facts == []
        assert store.log_range() == (1, last + 2)
        assert [position for position, _ in store.log(1, 2)] == [2, 3]

    def test_the_log_is_trimmed_from_its_begin_and_positions_go_on(self, store: Store, epoch: int) -> None:
        for seq in range(1, 9):
            store.commit(batch_of(epoch, stored(seq)))
        assert store.log_range() == (1, 10)
        assert store.trim_log(through=5, limit=3) == 3
        assert store.log_range() == (4, 10)
        assert store.trim_log(through=5, limit=3) == 2
        assert store.trim_log(through=5, limit=3) == 0
        assert [position for position, _ in store.log(0, 2)] == [6, 7]
        assert store.trim_log(through=99, limit=99) == 5
        assert store.log_range() == (11, 10)
        assert store.commit(batch_of(epoch)) == 11
        assert store.log_range() == (11, 11)
        assert waiting(store) == list(range(1, 9))

    def test_outcomes_are_forgotten_after_their_retention_by_the_steady_clock(
        self, store: Store, epoch: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "OUTCOMES_KEPT", 0)
        old, new = make_txn_id(epoch, 1), make_txn_id(epoch, 2)
        later_us = NOW_US + 10 * SECOND_US
        store.commit(batch_of(epoch, TransactionCommitted(old, 1, 1)))
        store.commit(batch_of(epoch, TransactionCommitted(new, 1, 1), time_us=1, steady_us=later_us))
        retention_us = limits.OUTCOME_RETENTION_S * SECOND_US
        store.commit(batch_of(epoch, time_us=2, steady_us=NOW_US + retention_us))
        assert store.prune(NOW_US) == 0
        store.commit(batch_of(epoch, time_us=3, steady_us=NOW_US + retention_us + 1))
        assert store.prune(NOW_US) == 1
        assert store.prune(NOW_US) == 0
        assert (store.outcome(old), store.outcome(new)) == (False, True)
        assert store.outcomes_forgotten_us() == store.meta().outcomes_forgotten_us == NOW_US

    def test_the_last_outcomes_are_kept_however_old(
        self, store: Store, epoch: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "OUTCOMES_KEPT", 2)
        retention_us = limits.OUTCOME_RETENTION_S * SECOND_US
        before_us = store.outcomes_forgotten_us()
        assert before_us == NOW_US - retention_us
        txns = [make_txn_id(epoch, number) for number in range(1, 4)]
        for number, txn in enumerate(txns):
            assert store.prune(NOW_US) == 0
            assert store.outcomes_forgotten_us() == before_us
            store.commit(batch_of(epoch, TransactionCommitted(txn, 1, 1), steady_us=NOW_US + number))
        store.commit(batch_of(epoch, steady_us=NOW_US + 9 * retention_us))
        assert store.prune(NOW_US) == 1
        assert store.prune(NOW_US) == 0
        assert [store.outcome(txn) for txn in txns] == [False, True, True]
        assert store.outcomes_forgotten_us() == NOW_US

    @pytest.mark.parametrize("jump_us", [25 * 3600 * SECOND_US, 8 * 86_400 * SECOND_US, -25 * 3600 * SECOND_US])
    def test_no_wall_clock_makes_a_store_forget(self, store: Store, epoch: int, jump_us: int) -> None:
        txn = make_txn_id(epoch, 1)
        store.commit(batch_of(epoch, TransactionCommitted(txn, 1, 1)))
        store.commit(batch_of(epoch, stored(1, producer=1, number=1), time_us=NOW_US + jump_us))
        assert store.prune(NOW_US + jump_us) == 0
        epoch = store.begin_epoch("broker-2", NOW_US + jump_us).epoch
        store.commit(batch_of(epoch, time_us=NOW_US + jump_us))
        assert store.prune(NOW_US + 2 * jump_us) == 0
        assert store.outcome(txn)
        assert store.producer("p") == ProducerRecord(1, "p", 1, seen_us=NOW_US)

    def test_the_steady_clock_is_stored_with_each_commit_and_never_goes_back(self, store: Store, epoch: int) -> None:
        assert store.meta().steady_us == NOW_US
        store.commit(batch_of(epoch, time_us=1, steady_us=NOW_US + 7))
        store.commit(batch_of(epoch, time_us=1, steady_us=NOW_US + 6))
        store.commit(batch_of(epoch, time_us=1))
        assert store.begin_epoch("broker-2", 2 * NOW_US).steady_us == NOW_US + 7

    def test_producers_are_read_by_number(self, store: Store, epoch: int) -> None:
        for number in (4, 2, 3):
            store.commit(batch_of(epoch, ProducerRegistered(number, f"p{number}"), steady_us=NOW_US + number))
        store.commit(batch_of(epoch, ProducerForgotten(3, "p3")))
        assert store.producers_count() == 3
        assert [record.producer for record in store.producers(0, 2)] == [1, 2]
        assert [(record.name, record.seen_us) for record in store.producers(2, 2)] == [("p4", NOW_US + 4)]

    def test_a_producer_that_is_forgotten_leaves_another_one_of_its_name(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, ProducerForgotten(1, "p"), ProducerRegistered(2, "p")))
        store.commit(batch_of(epoch, stored(1, producer=2, number=7)))
        record = store.producer("p")
        assert record is not None
        assert (record.producer, record.last_number) == (2, 7)

    def test_reads_give_copies(self, store: Store, epoch: int) -> None:
        store.commit(batch_of(epoch, stored(1)))
        record, producer, meta = store.queue("q"), store.producer("p"), store.meta()
        assert record is not None
        assert producer is not None
        record.stored = producer.last_number = meta.epoch = 99
        store.messages(1, 0, 1, NO_LIMIT)[0].count = 99
        again, producer_again = store.queue("q"), store.producer("p")
        assert again is not None
        assert producer_again is not None
        assert (again.stored, producer_again.last_number, store.meta().epoch) == (1, 0, epoch)
        assert store.messages(1, 0, 1, NO_LIMIT)[0].count == 0

    def test_reads_in_another_thread_see_whole_commits(self, store: Store, epoch: int) -> None:
        torn: list[object] = []
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                seqs = waiting(store)
                if len(seqs) not in (0, 10):
                    torn.append(seqs)

        reader = threading.Thread(target=read)
        reader.start()
        for first in range(1, 501, 10):
            store.commit(batch_of(epoch, *[stored(seq) for seq in range(first, first + 10)]))
            store.commit(batch_of(epoch, *[consumed(seq) for seq in range(first, first + 10)]))
        stop.set()
        reader.join()
        assert torn == []

    def test_usage_grows_with_what_is_stored(self, store: Store, epoch: int) -> None:
        before = store.usage()
        store.commit(batch_of(epoch, *[stored(seq, size=10_000) for seq in range(1, 101)]))
        after = store.usage()
        assert after.used_bytes - before.used_bytes >= 1_000_000
        assert 0 < after.used_bytes < after.capacity_bytes
        assert after.free_disk_bytes > 0

    def test_the_log_has_a_size_that_trimming_gives_back(self, store: Store, epoch: int) -> None:
        for first in range(1, 101, 10):
            store.commit(batch_of(epoch, *[stored(seq) for seq in range(first, first + 10)]))
        full = store.log_bytes()
        assert full > 1_000
        store.trim_log(through=1_000, limit=1_000)
        assert store.log_bytes() == 0
