"""Every change of a commit, without a broker: what it means once it is durable, and what undoes it if it is refused."""

import importlib
import inspect
import pkgutil
from array import array
from types import SimpleNamespace
from typing import Any, cast

import pytest

from legato import core
from legato.core.administration import Administration, CameBack, Ended, Job, Worked
from legato.core.assignments import Assignment, Release
from legato.core.changes import Gone, Marked, Moved, Placed, Published, PublishedRun, Released, RunGone
from legato.core.deletion import Deleted
from legato.core.directory import Directory
from legato.core.duplicate_records import DroppedDuplicate, IdKept, IdWindow, StoredOriginal
from legato.core.duplicates import Duplicates
from legato.core.effects import (
    Discharged,
    DischargeRefused,
    Finished,
    Refuse,
    SettleSends,
    StagePublished,
    StageRefused,
)
from legato.core.facts import (
    DuplicateDropped,
    DuplicateIdDropped,
    Kind,
    MessageDeadLettered,
    MessageMoved,
    MessagePublished,
    MessageReleased,
    NumberRefused,
    RunStored,
)
from legato.core.message import Message, MessageRun
from legato.core.message_states import DELIVERED, ENLISTED, LEAVING, RETURNING
from legato.core.numbered_producers import Detached, Forgotten, NumberedProducers
from legato.core.outcome import Change, Outcome
from legato.core.producers import Producer
from legato.core.queues import Queue
from legato.core.records import ProducerRecord, QueueRecord, Run
from legato.core.refusals import FULL
from legato.core.schedule import Schedule
from legato.core.staged_batches import Stage
from legato.core.topics import Topic
from legato.core.transaction import Transaction
from legato.core.transactions import ROLLED_BACK, Discharge, Transactions
from legato.store.memory import MemoryStore
from tests.support.commits import Refusal, change_of
from tests.support.scenario import Scenario

TESTED = {
    Published,
    PublishedRun,
    Placed,
    Released,
    Moved,
    Gone,
    RunGone,
    Marked,
    Release,
    CameBack,
    Worked,
    Ended,
    DroppedDuplicate,
    IdKept,
    Detached,
    Forgotten,
    Deleted,
    Stage,
    Discharge,
}


def test_no_change_is_forgotten_here() -> None:
    modules = [importlib.import_module(f"legato.core.{found.name}") for found in pkgutil.iter_modules(core.__path__)]
    changes = {
        member
        for module in modules
        for _, member in inspect.getmembers(module, inspect.isclass)
        if hasattr(member, "durable") and hasattr(member, "refused") and not getattr(member, "_is_protocol", False)
    }
    assert changes == TESTED


def queue_with(depth: int, *, kind: Kind = Kind.QUEUE) -> Queue:
    """A queue in which so many messages of 3 bytes wait."""
    return Queue(QueueRecord(1, "q", last_seq=depth, stored=depth, bytes=3 * depth, kind=kind), "q")


# -- topics and the schedule ---------------------------------------------------------------------------------------


def published(token: Any = "token", **fact: Any) -> tuple[Published, Queue]:
    """A publication to a topic with one subscription, which it has announced to both."""
    topic, queue = Topic(QueueRecord(2, "topic://t", stored=1)), queue_with(1)
    queue.main.visible_seq = 0
    message = Message(queue, 1, b"tea", 3)
    return Published(MessagePublished(2, 1, 3, "m", [1], **fact), topic, token, [message]), queue


def test_a_publication_comes_to_its_subscriptions() -> None:
    change, queue = published()
    outcome = Outcome([], ())
    change.durable(outcome)
    assert (queue.main.visible_seq, outcome.confirmed) == (1, ["token"])


def test_a_publication_whose_publisher_waits_for_nothing_confirms_nothing() -> None:
    change, _ = published(token=None)
    outcome = Outcome([], ())
    change.durable(outcome)
    assert outcome.confirmed == []


def test_a_refused_publication_has_no_copies_and_its_publisher_hears_of_it() -> None:
    change, queue = published()
    refusal = Refusal([change.fact])
    change.refused(refusal.commit)
    assert (queue.stored, queue.bytes, queue.main.visible_seq, change.topic.stored) == (0, 0, 1, 0)
    assert refusal.effects == [Refuse("token", FULL, "no room")]
    assert (refusal.commit.facts(), refusal.next.changes) == ([], [])


def published_run(tokens: tuple[Any, ...] | None, producer: int = 0) -> tuple[PublishedRun, Queue]:
    """Two publications that came together, to a topic with one subscription, which they have announced to both."""
    topic, queue = Topic(QueueRecord(2, "topic://t", stored=2)), queue_with(2)
    queue.main.visible_seq = 0
    facts = [MessagePublished(2, seq, 3, f"m{seq}", [1], producer, seq * bool(producer)) for seq in (1, 2)]
    return PublishedRun(facts, topic, tokens, [MessageRun(queue, 1, b"teapot", array("I", [3, 6]))]), queue


@pytest.mark.parametrize(("tokens", "confirmed"), [(("one", "two"), [("one", "two")]), (None, [])])
def test_publications_that_came_together_come_to_their_subscriptions(
    tokens: tuple[Any, ...] | None, confirmed: list[Any]
) -> None:
    change, queue = published_run(tokens)
    outcome = Outcome([], ())
    change.durable(outcome)
    assert (queue.main.visible_seq, outcome.confirmed) == (2, confirmed)


@pytest.mark.parametrize("tokens", [("one", "two"), None])
def test_refused_publications_that_came_together_have_no_copies_and_each_is_told(
    tokens: tuple[Any, ...] | None,
) -> None:
    change, queue = published_run(tokens, producer=7)
    refusal = Refusal(change.facts)
    change.refused(refusal.commit)
    assert (queue.stored, queue.bytes, queue.main.visible_seq, change.topic.stored) == (0, 0, 2, 0)
    assert refusal.effects == [Refuse(token, FULL, "no room") for token in tokens or ()]
    assert (refusal.commit.facts(), refusal.producers.lost) == (
        [NumberRefused(7, 1), NumberRefused(7, 2)],
        [(7, 1), (7, 2)],
    )


@pytest.mark.parametrize("why", [{"txn": b"txn"}, {"origin": (9, 9)}])
def test_a_refused_publication_of_a_transaction_or_from_elsewhere_is_undone_in_silence(why: dict[str, Any]) -> None:
    change, queue = published(**why)
    refusal = Refusal([change.fact])
    change.refused(refusal.commit)
    assert (queue.stored, change.topic.stored, refusal.effects) == (0, 0, [])


def schedule() -> Schedule:
    return Schedule(queue_with(0, kind=Kind.SCHEDULE), MemoryStore())


def test_a_message_in_the_schedule_is_due_at_its_time() -> None:
    places = schedule()
    places.due_us = 1 << 62
    seq = places.place(5_000_000)
    Placed(places, seq).durable(Outcome([], ()))
    assert places.due_us == 5_000_000


def test_a_refused_place_in_the_schedule_is_free_again() -> None:
    places, refusal = schedule(), Refusal()
    first, second = places.place(5_000_000), places.place(5_000_000)
    Placed(places, first).refused(refusal.commit)
    assert (places.uncommitted, refusal.next.changes) == ({second}, [])


def released() -> Released:
    places = schedule()
    places.releasing, places.due_us = {7, 8}, 1
    return Released(places, 7)


def test_what_was_due_makes_way_for_the_next() -> None:
    change = released()
    change.durable(Outcome([], ()))
    assert (change.schedule.releasing, change.schedule.due_us) == ({8}, 0)


def test_what_was_due_and_found_no_room_is_due_again() -> None:
    change = released()
    refusal = Refusal([MessageMoved(1, 7, "due", 2, 1)])
    change.refused(refusal.commit)
    assert (change.schedule.releasing, refusal.next.changes) == ({8}, [])


def test_what_was_due_and_expired_leaves_all_the_same() -> None:
    change = released()
    refusal = Refusal([MessageMoved(1, 7, "expired")])
    change.refused(refusal.commit)
    assert (change.schedule.releasing, refusal.next.changes) == ({7, 8}, [change])


# -- what leaves a queue -------------------------------------------------------------------------------------------


def moved(queue: Queue, fact: MessageMoved | MessageDeadLettered) -> Moved:
    """Message 1 of the queue is on its way elsewhere, after a consumer had it."""
    queue.consumed, queue.bytes = 1, 0
    return Moved(fact, Message(queue, 1, b"tea", 3, state=LEAVING, presented=True))


def test_a_moved_message_that_finds_no_room_returns_flagged_if_it_was_presented() -> None:
    queue = queue_with(1)
    change = moved(queue, MessageMoved(1, 1, "moved", 2, 1))
    refusal = Refusal([change.fact])
    change.refused(refusal.commit)
    message = change.message
    assert (queue.consumed, queue.bytes, queue.returning) == (0, 3, 1)
    assert (message.state, message.flagged, message.presented) == (RETURNING, True, False)
    assert (refusal.next.returned, refusal.commit.facts()) == ([message], [])


def test_a_message_of_the_schedule_that_finds_no_room_has_its_place_still() -> None:
    queue = queue_with(1, kind=Kind.SCHEDULE)
    change = moved(queue, MessageMoved(1, 1, "due", 2, 1))
    refusal = Refusal([change.fact])
    change.refused(refusal.commit)
    assert (queue.consumed, queue.bytes, queue.returning) == (0, 3, 0)
    assert (refusal.next.returned, refusal.commit.facts()) == ([], [])


def test_a_detailed_ledger_hears_that_a_rejected_message_left_its_consumer() -> None:
    change = moved(queue_with(1), MessageDeadLettered(1, 1, 5, "rejected", 2, 1))
    refusal = Refusal([change.fact], detailed=True)
    change.refused(refusal.commit)
    assert refusal.commit.facts() == [MessageReleased(1, 1, 5, True)]


def test_a_moved_message_that_found_room_leaves_nothing_to_do() -> None:
    queue = queue_with(1)
    moved(queue, MessageMoved(1, 1, "moved", 2, 1)).durable(Outcome([], ()))
    assert queue.consumed == 1


def test_a_claim_ends_when_its_message_is_gone() -> None:
    queue = queue_with(3)
    queue.main.claimed = {1, 2}
    Gone(queue, 1).durable(Outcome([], ()))
    assert queue.main.claimed == {2}


def test_a_claim_is_kept_if_its_message_stays_and_tried_again_if_not() -> None:
    queue = queue_with(3)
    queue.main.claimed = {1, 2}
    stays, leaves = Gone(queue, 1), Gone(queue, 2)
    refusal = Refusal([MessageMoved(1, 1, "moved", 2, 1)])
    stays.refused(refusal.commit)
    leaves.refused(refusal.commit)
    assert (queue.main.claimed, refusal.next.changes) == ({1, 2}, [leaves])


def test_the_claims_of_a_run_end_when_it_is_gone() -> None:
    queue = queue_with(5)
    queue.main.claimed = {1, 2, 3, 4}
    change = RunGone(queue.main, Run(2, 2, 6))
    refusal = Refusal()
    change.refused(refusal.commit)
    assert (queue.main.claimed, refusal.next.changes) == ({1, 2, 3, 4}, [change])
    change.durable(Outcome([], ()))
    assert queue.main.claimed == {1, 4}


def test_a_dispatch_mark_rises_and_never_falls() -> None:
    queue = queue_with(5)
    outcome = Outcome([], ())
    Marked(queue, 4).durable(outcome)
    Marked(queue, 2).durable(outcome)
    assert (queue.main.mark, outcome.touched) == (4, {queue})


def test_a_refused_dispatch_mark_is_tried_again_and_did_not_rise() -> None:
    queue = queue_with(5)
    change, refusal = Marked(queue, 4), Refusal()
    change.refused(refusal.commit)
    assert (queue.main.mark, refusal.next.changes) == (0, [change])


def test_a_release_that_waits_for_what_is_being_assigned_begins_when_that_is_durable() -> None:
    moved: list[tuple[Any, ...]] = []
    administration = cast(Administration, SimpleNamespace(move=lambda *job, above: moved.append((*job, above()))))
    source, held = queue_with(5), queue_with(3, kind=Kind.ASSIGNMENT)
    assignment = Assignment(held, QueueRecord(2, "assignment://p/q", acknowledged=2))
    change, refusal = Release(administration, assignment, source, "token"), Refusal()
    change.refused(refusal.commit)
    assert (moved, refusal.next.changes) == ([], [change])
    change.durable(Outcome([], ()))
    assert moved == [(held, source, "token", 2)]


def test_a_job_that_waits_for_what_comes_back_begins_when_that_is_durable() -> None:
    begun: list[Job] = []
    administration = cast(Administration, SimpleNamespace(begin=begun.append))
    job = Job(queue_with(5), None, None, 9, "token")
    change, refusal = CameBack(administration, job), Refusal()
    change.refused(refusal.commit)
    assert (begun, refusal.next.changes, refusal.next.awaited) == ([], [change], True)
    change.durable(Outcome([], ()))
    assert begun == [job]


def test_a_move_counts_what_is_durable_and_ends_where_there_is_no_room() -> None:
    job = Job(queue_with(5), queue_with(0), None, 9, "token")
    Worked(job, 2).durable(Outcome([], ()))
    refusal = Refusal()
    Worked(job, 3).refused(refusal.commit)
    Ended(job).refused(refusal.commit)
    assert (job.count, job.left, refusal.next.changes, refusal.next.awaited) == (2, 0, [Ended(job)], True)
    outcome = Outcome([], ())
    Ended(job).durable(outcome)
    assert outcome.answers == [Finished("token", 2, "no room")]


def test_a_purge_needs_no_room() -> None:
    job = Job(queue_with(5), None, None, 9, "token")
    change, refusal = Worked(job, 3), Refusal()
    change.refused(refusal.commit)
    assert (job.count, job.left, refusal.next.changes) == (0, 9, [change])


# -- duplicates ----------------------------------------------------------------------------------------------------


def test_the_sender_of_a_duplicate_hears_once_the_first_is_durable() -> None:
    fact = DuplicateDropped(4, 17)
    outcome = Outcome([], ())
    for duplicate in (
        DroppedDuplicate("same", fact),
        DroppedDuplicate("told", fact, told=True),
        DroppedDuplicate(None, fact),
    ):
        duplicate.durable(outcome)
    assert (outcome.passed_over, outcome.repeated) == (["same"], ["told"])


def test_a_duplicate_of_what_is_lost_is_refused_with_it() -> None:
    by_number, by_id = DuplicateDropped(4, 17), DuplicateIdDropped(1, b"id", "m", "first")
    refusal = Refusal([by_number, by_id], lost={(4, 17)})
    DroppedDuplicate("number", by_number).refused(refusal.commit)
    DroppedDuplicate("id", by_id, StoredOriginal("first", 0, 0, lost=True), told=True).refused(refusal.commit)
    assert refusal.effects == [Refuse("number", FULL, "no room"), Refuse("id", FULL, "no room")]
    assert (refusal.commit.facts(), refusal.next.changes) == ([NumberRefused(4, 17)], [])


def test_a_duplicate_of_what_is_durable_is_tried_again() -> None:
    fact = DuplicateDropped(4, 17)
    change, refusal = DroppedDuplicate("token", fact), Refusal([fact], lost={(4, 18), (5, 17)})
    change.refused(refusal.commit)
    assert (refusal.commit.facts(), refusal.next.changes, refusal.effects) == ([fact], [change], [])


def test_a_duplicate_of_a_transaction_that_is_rolled_back_is_none() -> None:
    fact = DuplicateIdDropped(1, b"id", "m", "first", txn=b"txn")
    refusal = Refusal([fact], rolled_back={b"txn": change_of()})
    DroppedDuplicate(None, fact, StoredOriginal("first", 0, 0), told=True).refused(refusal.commit)
    assert (refusal.commit.facts(), refusal.next.changes, refusal.effects) == ([], [], [])


def test_an_id_is_in_the_store_once_it_is_durable() -> None:
    window, first = IdWindow(6), StoredOriginal("m", 0, 0)
    window.pending[b"id"] = first
    IdKept(window, b"id", first).durable(Outcome([], ()))
    assert (window.last, window.pending) == (7, {})


def test_a_refused_id_is_lost_with_its_message() -> None:
    s = Scenario()
    window, first = IdWindow(6), StoredOriginal("m", 0, 0)
    window.pending[b"id"] = first
    change, refusal = IdKept(window, b"id", first), Refusal()
    refusal.next.changes.append(change)
    s.broker.duplicates.lose_ids(refusal.next)
    change.refused(refusal.commit)
    assert (first.lost, window.pending, window.last) == (True, {}, 6)


# -- producers and addresses ---------------------------------------------------------------------------------------


def test_a_producer_without_links_is_let_go_of_once_its_numbers_are_durable() -> None:
    producers = Scenario().broker.producers
    linked = producers.attach("linked")
    for each in (producers.attach("p"), producers.attach("linked")):
        producers.detach(each, forget=False)
        Detached(producers, each).durable(Outcome([], ()))
    assert producers.attached == {"linked": linked}


def test_a_producer_whose_second_link_ended_too_stays_until_what_that_brought_is_durable() -> None:
    """Two losses of the connection, one after the other: the end of the first link was durable before what came over
    the second one was, the producer was read anew from the store, and a message that came again was stored twice."""
    s = Scenario()
    broker = s.broker
    queue, producers = broker.directory.queue("q"), broker.producers

    def send_and_lose(number: int) -> None:
        producer = producers.attach("p")
        broker.publisher.publish_numbered(queue, b"m", "", number, producer, number)
        producers.detach(producer, forget=False)

    send_and_lose(1)
    first = broker.take_batch(0)
    assert first is not None
    s.store.commit(first)
    send_and_lose(2)
    broker.committed(0)
    send_and_lose(2)
    s.run()
    assert queue.stored == 2


def test_a_producer_that_came_back_by_that_name_stays() -> None:
    producers = Scenario().broker.producers
    producers.attached["p"] = again = Producer(ProducerRecord(2, "p"))
    Detached(producers, Producer(ProducerRecord(1, "p"))).durable(Outcome([], ()))
    assert producers.attached == {"p": again}


def forgetting() -> NumberedProducers:
    producers = Scenario().broker.producers
    producers.forgetting = {"p": 1, "q": 3}
    return producers


def test_a_producer_is_forgotten_unless_its_name_is_another_ones() -> None:
    producers = forgetting()
    Forgotten(producers, 1, "p").durable(Outcome([], ()))
    Forgotten(producers, 2, "q").durable(Outcome([], ()))
    assert producers.forgetting == {"q": 3}


def addresses() -> tuple[Directory, Duplicates]:
    broker = Scenario().broker
    queue = broker.directory.queue("q")
    broker.duplicates.windows[queue.id] = IdWindow(0)
    return broker.directory, broker.duplicates


def test_the_number_of_a_deleted_address_is_taken_until_that_is_durable() -> None:
    directory, duplicates = addresses()
    (number,) = directory.by_number
    change, refusal = Deleted(directory, duplicates, number), Refusal()
    change.refused(refusal.commit)
    assert (refusal.next.changes, list(directory.by_number), list(duplicates.windows)) == ([change], [number], [number])
    change.durable(Outcome([], ()))
    assert (directory.by_number, duplicates.windows) == ({}, {})


def test_what_needs_no_room_is_tried_again() -> None:
    producers = forgetting()
    refusal = Refusal()
    detached, forgotten = Detached(producers, producers.attach("r")), Forgotten(producers, 1, "p")
    detached.refused(refusal.commit)
    forgotten.refused(refusal.commit)
    expected: list[Change] = [detached, forgotten]
    assert refusal.next.changes == expected
    assert (producers.forgetting, "r" in producers.attached) == ({"p": 1, "q": 3}, True)


# -- staged batches ------------------------------------------------------------------------------------------------


def staged(number: int) -> tuple[Stage, Queue]:
    """A batch with a run of 3 messages, which the queue has announced behind the 2 that it had."""
    queue = queue_with(5)
    queue.main.visible_seq = 2
    stage = Stage("token", Producer(ProducerRecord(4, "p")), number)
    stage.count = 3
    stage.runs.append((queue, queue.main, RunStored(1, 3, 3, 9, 4, number)))
    return stage, queue


def test_a_staged_batch_is_visible_on_disk() -> None:
    stage, queue = staged(0)
    effects: list[Any] = []
    outcome = Outcome(effects, ())
    stage.durable(outcome)
    assert (queue.main.visible_seq, outcome.touched, outcome.unloaded) == (5, {queue}, {queue})
    assert effects == [StagePublished("token", 3)]


@pytest.mark.parametrize(("number", "refused"), [(0, []), (17, [17])])
def test_nothing_of_a_refused_batch_is_stored(number: int, refused: list[int]) -> None:
    stage, queue = staged(number)
    refusal = Refusal()
    stage.refused(refusal.commit)
    assert (queue.stored, queue.bytes, queue.main.visible_seq) == (2, 6, 5)
    assert (refusal.commit.queues, refusal.effects) == ({queue}, [StageRefused("token", "no room")])
    assert [number for _, number in refusal.producers.refused] == refused


# -- transactions --------------------------------------------------------------------------------------------------


class Undone(SimpleNamespace):
    """Transactions that note which of them is undone."""

    def __init__(self) -> None:
        super().__init__(committing={b"txn"}, undone=[])

    def undo(self, transaction: Transaction) -> None:
        self.undone.append(transaction)


def discharge(undone: Undone, *, commits: bool = True) -> Discharge:
    return Discharge(cast(Transactions, undone), "token", Transaction(b"txn", "owner"), commits)


def test_the_outcome_of_a_transaction_is_told_after_its_sends() -> None:
    undone = Undone()
    change, outcome = discharge(undone), Outcome([], ())
    change.transaction.unsettled, change.transaction.told = ["first", "second"], ["second"]
    change.durable(outcome)
    assert outcome.answers == [SettleSends(b"txn", ["first", "second"], ["second"]), Discharged("token")]
    assert undone.committing == set()


def test_a_refused_transaction_that_only_consumes_is_tried_again() -> None:
    undone = Undone()
    change, refusal = discharge(undone), Refusal()
    change.refused(refusal.commit)
    assert (refusal.next.changes, refusal.next.awaited) == ([change], True)
    assert (undone.undone, refusal.effects) == ([], [])


def test_a_refused_transaction_that_publishes_is_undone_and_its_owner_hears_why() -> None:
    undone = Undone()
    change = discharge(undone)
    refusal = Refusal(rolled_back={b"txn": change})
    change.refused(refusal.commit)
    assert undone.undone == [change.transaction]
    assert (refusal.effects, refusal.next.changes) == ([DischargeRefused("token", FULL, "no room")], [])


def test_who_asks_for_the_outcome_of_a_refused_transaction_hears_that_it_rolled_back() -> None:
    undone = Undone()
    refusal = Refusal(rolled_back={b"txn": discharge(undone)})
    discharge(undone).refused(refusal.commit)
    assert (undone.undone, refusal.effects) == ([], [DischargeRefused("token", ROLLED_BACK, "no room")])


def test_a_transaction_needs_room_if_it_publishes_buries_or_repeats_what_is_lost() -> None:
    lost = {(4, 17)}
    undone = Undone()
    plain, sends, buries, repeats, rolls_back = (discharge(undone, commits=at < 4) for at in range(5))
    for each in (sends, rolls_back):
        each.transaction.sends.append(cast(Any, "a send"))
    buries.transaction.buries = True
    repeats.transaction.duplicates.append(DroppedDuplicate(None, DuplicateDropped(4, 17)))
    every = (plain, sends, buries, repeats, rolls_back)
    assert [each.needs_room(lost) for each in every] == [False, True, True, True, False]


def test_what_an_undone_transaction_consumed_it_did_not() -> None:
    s = Scenario()
    s.publish("q", b"one", b"two")
    consumer = s.consumer("q", 2)
    transaction = s.broker.transactions.find(s.broker.transactions.declare("owner"), "owner")
    assert transaction is not None
    first, second = s.in_hand(consumer)
    assert s.broker.transactions.acknowledge(transaction, consumer, first)
    assert (first.state, second.state) == (ENLISTED, DELIVERED)
    queue = first.queue
    s.broker.settlement.consume(consumer, first, transaction.id, s.broker.kernel.gathering)
    assert (queue.depth, queue.bytes) == (1, 3)
    s.broker.kernel.gathering.facts.clear()
    s.broker.transactions.undo(transaction)
    assert (queue.depth, queue.bytes) == (2, 6)
