"""How a commit ends, without a broker: what is seen of one that is durable, and what is left of one that is refused."""

from typing import Any, get_args

import msgspec
import pytest

from legato.core.commit import Commit
from legato.core.consumers import Consumer
from legato.core.effects import Confirm, ConfirmAcknowledged, ConfirmDuplicates, Discharged, Effect, Refuse
from legato.core.facts import (
    AnyFact,
    BatchPublished,
    DuplicateDropped,
    DuplicateIdKept,
    MessageConsumed,
    MessageDeadLettered,
    MessageMoved,
    MessageOfFlow,
    MessagePublished,
    MessageReturned,
    MessagesStored,
    MessageStored,
    MessageTaken,
    NumberRefused,
    QueueMarked,
    RunStored,
    TransactionCommitted,
)
from legato.core.message import Message
from legato.core.message_states import AVAILABLE, DELIVERED, KEPT, LEAVING, RETURNING
from legato.core.outcome import Outcome
from legato.core.queues import Queue
from legato.core.records import QueueRecord
from legato.core.refusals import FULL
from legato.store.memory import MemoryStore
from tests.support.commits import Refusal, change_of

NEEDS_ROOM = {
    MessageStored,
    MessagesStored,
    MessagePublished,
    RunStored,
    BatchPublished,
    DuplicateIdKept,
    MessageOfFlow,
    QueueMarked,
}


def queue_with(*messages: bytes) -> tuple[Queue, list[Message]]:
    """A queue, and messages that were published to it and are not durable yet."""
    queue = Queue(QueueRecord(1, "q"), "q")
    queue.stored, queue.bytes = len(messages), sum(map(len, messages))
    queue.main.last_seq = len(messages)
    return queue, [
        Message(queue, seq, body, len(body), body, MessageStored(1, seq, len(body), body.decode()))
        for seq, body in enumerate(messages, 1)
    ]


# -- durable -------------------------------------------------------------------------------------------------------


def test_messages_become_visible_and_their_publishers_tokens_are_told() -> None:
    queue, messages = queue_with(b"one", b"two")
    messages[1].token = None
    commit = Commit()
    commit.stored, commit.queues = [*messages], {queue}
    effects: list[Effect] = []
    outcome = Outcome(effects, commit.queues)
    commit.become_visible(outcome)
    outcome.confirm()
    assert effects == [Confirm([b"one"])]
    assert queue.main.visible_seq == 2
    assert outcome.touched == {queue}
    assert [(message.fact, message.token) for message in messages] == [(None, None), (None, None)]


def test_changes_come_before_the_messages_stored_by_themselves() -> None:
    """A window that reaches up to a message would pass over a staged run before it."""
    queue, messages = queue_with(b"one")
    seen: list[int] = []
    commit = Commit()
    commit.stored = [*messages]
    commit.changes.append(change_of(durable=lambda outcome: seen.append(queue.main.visible_seq)))
    commit.become_visible(Outcome([], ()))
    assert (seen, queue.main.visible_seq) == ([0], 1)


def test_messages_come_back_to_their_places_or_stay_with_their_consumers() -> None:
    (queue, (returned,)), (other, (kept,)) = queue_with(b"one"), queue_with(b"two")
    store = MemoryStore()
    returned.state = kept.state = DELIVERED
    commit = Commit()
    commit.give_back(returned)
    commit.keep_back(kept)
    assert (returned.state, kept.state) == (RETURNING, KEPT)
    assert (queue.returning, other.returning) == (1, 1)
    outcome = Outcome([], ())
    commit.become_visible(outcome)
    assert (returned.state, queue.main.head(store), other.main.head(store)) == (AVAILABLE, returned, None)
    assert (queue.returning, other.returning) == (0, 0)
    assert outcome.touched == {queue, other}


def test_acknowledgements_are_confirmed_to_those_who_asked() -> None:
    queue, (message,) = queue_with(b"one")
    consumer = Consumer(1, queue, None, "c", False)
    commit = Commit()
    commit.acknowledged.append((consumer, message))
    effects: list[Effect] = []
    outcome = Outcome(effects, ())
    commit.become_visible(outcome)
    outcome.confirm()
    assert effects == [ConfirmAcknowledged([(consumer, message)])]


def test_answers_follow_confirmations_and_what_was_emitted_precedes_them() -> None:
    queue, (message,) = queue_with(b"one")
    consumer = Consumer(1, queue, None, "c", False)
    effects: list[Effect] = []
    outcome = Outcome(effects, ())
    outcome.answers.append(Discharged("answered"))
    outcome.acknowledged = [(consumer, message)]
    outcome.repeated.append("repeated")
    outcome.confirmed.append("published")
    outcome.stored.append("stored")
    outcome.passed_over.append("passed over")
    outcome.emit(Discharged("emitted"))
    outcome.confirm()
    assert effects == [
        Discharged("emitted"),
        Confirm(["passed over", "stored", "published"]),
        ConfirmDuplicates(["repeated"]),
        ConfirmAcknowledged([(consumer, message)]),
        Discharged("answered"),
    ]


def test_nobody_is_told_of_a_commit_that_nobody_waits_for() -> None:
    effects: list[Effect] = []
    Outcome(effects, ()).confirm()
    assert effects == []


# -- refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", get_args(AnyFact), ids=lambda kind: kind.__name__)
def test_what_needs_room_is_not_tried_again_and_all_else_is(kind: type[AnyFact]) -> None:
    fact = any_fact(kind)
    refusal = Refusal([fact]).commit
    assert refusal.facts() == ([] if kind in NEEDS_ROOM else [fact])


def test_a_transaction_that_is_rolled_back_consumes_nothing_and_does_not_commit() -> None:
    consumed, other = MessageConsumed(1, 1, 1, 0, 1, b"mine"), MessageConsumed(1, 2, 1, 0, 1, b"other")
    taken, taken_other = MessageTaken(1, 1, "c", "l"), MessageTaken(1, 2, "c", "l")
    ended, ended_other = TransactionCommitted(b"mine", 1, 1), TransactionCommitted(b"other", 1, 0)
    facts: list[AnyFact] = [consumed, taken, ended, other, taken_other, ended_other]
    refusal = Refusal(facts, rolled_back={b"mine": change_of()}).commit
    assert refusal.facts() == [other, taken_other, ended_other]
    assert (refusal.stays(1, 1), refusal.stays(1, 2)) == (True, False)


def test_what_was_to_be_moved_stays_unless_it_was_dropped() -> None:
    moved, dropped = MessageMoved(1, 1, "moved", 2, 7), MessageMoved(1, 2, "expired")
    dead, discarded = MessageDeadLettered(1, 3, 1, "rejected", 2, 8), MessageDeadLettered(1, 4, 1, "rejected", 0, 0)
    refusal = Refusal([moved, dropped, dead, discarded]).commit
    assert [seq for seq in range(1, 5) if refusal.stays(1, seq)] == [1, 3]


def test_a_count_that_a_moved_message_carries_is_not_recorded() -> None:
    carried, failed = MessageReturned(2, 1, 3, True, 0, "carried"), MessageReturned(1, 1, 3, True, 0, "modified")
    assert Refusal([carried, failed]).commit.facts() == [failed]


def test_a_stored_message_is_not_and_its_publisher_hears_why() -> None:
    queue, messages = queue_with(b"one", b"two")
    refusal = Refusal([message.fact for message in messages if message.fact])
    refusal.commit.undo_stored([*messages])
    assert (queue.stored, queue.bytes, queue.main.visible_seq) == (0, 0, 2)
    assert refusal.effects == [Refuse(b"one", FULL, "no room"), Refuse(b"two", FULL, "no room")]
    assert refusal.commit.facts() == []


def test_a_message_that_a_transaction_sent_or_that_was_moved_is_undone_in_silence() -> None:
    queue, (sent, moved) = queue_with(b"one", b"two")
    assert sent.fact is not None
    assert moved.fact is not None
    sent.fact.txn, moved.fact.origin = b"txn", (9, 9)
    refusal = Refusal([sent.fact, moved.fact])
    refusal.commit.undo_stored([sent, moved])
    assert (queue.stored, refusal.effects, refusal.commit.facts()) == (0, [], [])


def test_the_number_of_a_message_that_finds_no_room_is_refused_in_its_place() -> None:
    _, (message,) = queue_with(b"one")
    assert message.fact is not None
    message.fact.producer, message.fact.number = 4, 17
    later = MessageConsumed(1, 1, 1, 0, 1)
    refusal = Refusal([message.fact, later])
    refusal.commit.undo_stored([message])
    assert refusal.commit.facts() == [NumberRefused(4, 17), later]
    assert refusal.producers.lost == [(4, 17)]


def test_a_duplicate_that_nobody_waits_for_is_refused_in_silence() -> None:
    fact = DuplicateDropped(4, 17)
    refusal = Refusal([fact])
    refusal.commit.refuse(None, fact)
    assert (refusal.effects, refusal.commit.facts()) == ([], [NumberRefused(4, 17)])


def test_what_is_tried_again_joins_the_next_commit() -> None:
    _, (message,) = queue_with(b"one")
    message.state = LEAVING
    change = change_of()
    refusal = Refusal()
    refusal.commit.retry(change)
    refusal.commit.await_end()
    refusal.commit.give_back(message)
    assert (refusal.next.changes, refusal.next.awaited, refusal.next.returned) == ([change], True, [message])


def any_fact(kind: type[AnyFact]) -> AnyFact:
    """A fact of a kind, with ones and empty texts where a value is needed."""
    values: dict[type, Any] = {int: 1, bool: False, bytes: b"", str: "", list[int]: []}
    needed = [field for field in msgspec.structs.fields(kind) if field.required]
    return kind(**{field.name: values[field.type] for field in needed})
