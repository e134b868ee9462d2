"""Faults to plant: production functions with a mistake in them, to prove that the simulator sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from legato.client.channel import Channel
from legato.client.deliveries import AckBatch, Delivery, DeliveryState, Incoming
from legato.client.endings import Query
from legato.client.session_state import AcknowledgementOutcome, Outgoing
from legato.core import moving
from legato.core.broker import Broker
from legato.core.consumers import Consumer
from legato.core.effects import Confirm, Discharged, Refuse
from legato.core.facts import MessageDeadLettered, MessagePresented
from legato.core.groups import Groups
from legato.core.lanes import Lane
from legato.core.message import Message
from legato.core.moving import Outgoing as Publication
from legato.core.producers import Producer
from legato.core.queues import Queue
from legato.core.records import Archive, Batch, StoredMessage, TakenMessage
from legato.core.repeats import Duplicate
from legato.core.schedule import Schedule, Scheduled
from legato.core.state import Node
from legato.core.tick import Tick
from legato.core.topics import Topic
from legato.core.transaction import Transaction
from legato.errors import JMSError
from legato.server import executor
from legato.store.memory import MemoryStore

_take_batch = Broker.take_batch
_detach = Broker.detach
_acknowledge = Broker.acknowledge
_attach = Broker.attach
_give_up = Broker._give_up
_commit = Broker._commit
_fail = Broker._fail
_restored = Lane.restored
_claim = Lane.claim
_refresh = Broker._refresh
_pass_over = Broker._pass_over
_answer = Query.answer
_connection_lost = Outgoing.connection_lost
_takers = moving._takers


def commit_in_any_epoch(self: MemoryStore, batch: Batch) -> int:
    """The store does not look whose epoch it is."""
    with self._lock:
        self._state.apply(batch)
        return self._append(batch.time_us, batch.facts)


def confirm_before_commit(self: Broker, now_us: int) -> Batch | None:
    """Producers hear of a message before it is durable."""
    batch = _take_batch(self, now_us)
    if batch is not None and self._in_flight is not None:
        told = [message for message in self._in_flight.stored if message.token is not None]
        self._effects.append(Confirm([message.token for message in told]))
        for message in told:
            message.token = None
    return batch


def deliver_before_commit(self: Broker, now_us: int) -> Batch | None:
    """Consumers are given a message before it is durable."""
    batch = _take_batch(self, now_us)
    if batch is not None and self._in_flight is not None:
        for message in self._in_flight.stored:
            lane = message.queue.lane(message.seq)
            lane.mark = max(lane.mark, message.seq)
            lane.append(message)
            self._dispatch(message.queue)
    return batch


def is_never_a_duplicate(self: Producer, number: int) -> bool:
    """The broker forgets producers' numbers."""
    return False


def restored_unflagged(self: Lane, stored: StoredMessage) -> Message:
    """What may have been seen before a crash is not flagged: the dispatch mark is ignored."""
    message = _restored(self, stored)
    message.flagged = False
    return message


def without_header(data: bytes, message: Message, exact: bool) -> bytes:
    """Redelivered messages go out as if they were new."""
    return data


def detach_counting_all(self: Broker, consumer: Consumer, **options: Any) -> None:
    """What waited in a prefetch buffer counts as delivered."""
    for message in consumer.unsettled.values():
        message.presented = True
    _detach(self, consumer, **options)


def fail_twice(self: Broker, message: Message, *arguments: Any, **options: Any) -> None:
    """A failed delivery counts twice."""
    message.count += 1
    _fail(self, message, *arguments, **options)


def attach_hiding_who_has_it(self: Broker, queue: Queue, *arguments: Any, **options: Any) -> tuple[Consumer, list[int]]:
    """A returning consumer is not told that others have what it held."""
    consumer, _ = _attach(self, queue, *arguments, **options)
    return consumer, []


def acknowledge_nothing(self: Broker, consumer: Consumer, message: Message, *, confirm: bool) -> bool:
    """One acknowledgement in eight is confirmed and forgotten."""
    if message.seq % 8 == 5 and message.consumer is consumer:
        message.consumer = None
        del consumer.unsettled[message.seq]
        if confirm:
            self._tick.acknowledged.append((consumer, message))
        return True
    return _acknowledge(self, consumer, message, confirm=confirm)


def begin_selecting_forgetful(self: Broker, queue: Queue) -> None:
    """When selecting begins, what consumers have already is not passed over."""
    queue.selecting = queue.claims = True
    for lane in queue.order:
        lane.unload()
        lane.wanted = 0


def claim_all_that_is_read(self: Lane, seqs: set[int], archive: Archive) -> dict[int, Message]:
    """A returning consumer is given what it held even if another one has it now."""
    claimed = _claim(self, seqs, archive)
    for seq in seqs - claimed.keys():
        found = archive.messages(self.queue.id, seq - 1, 1, 0)
        if found and found[0].seq == seq:
            claimed[seq] = self.restored(found[0])
    return claimed


def give_nothing_back(self: Tick, message: Message) -> None:
    """A message that comes back is forgotten."""


def give_up_and_consume(self: Broker, transaction: Transaction, cause: str) -> None:
    """What a transaction received stays consumed although it is rolled back."""
    for consumer, message in transaction.consumed:
        self._consume(consumer, message, b"", self._tick)
    transaction.consumed = []
    _give_up(self, transaction, cause)


def give_up_and_publish(self: Broker, transaction: Transaction, cause: str) -> None:
    """What a transaction sent is stored although it is rolled back."""
    for node, outgoing in transaction.sends:
        outgoing.txn = b""
        self._enqueue(node, outgoing)
    _give_up(self, transaction, cause)


def commit_all_but_the_first(self: Broker, transaction: Transaction, token: Any) -> None:
    """A commit forgets the first message that its transaction received."""
    transaction.consumed = transaction.consumed[1:]
    _commit(self, transaction, token)


def no_outcome(self: MemoryStore, txn: bytes) -> bool:
    """Outcomes of transactions are forgotten at a takeover."""
    return False


def always_committed(self: Broker, txn_id: bytes, fail: bool, token: Any) -> None:
    """Who asks for the outcome of a commit that was cut off hears that all went well."""
    self._effects.append(Discharged(token))


def takers_but_one(topic: Topic, outgoing: Publication) -> list[Queue]:
    """One of the subscriptions does not get its copy."""
    return _takers(topic, outgoing)[1:]


def nothing_due(self: Schedule, now_us: int, limit: int) -> list[tuple[Message, Scheduled]]:
    """What was put off never comes."""
    return []


def resend_as_new(self: Outgoing) -> int:
    """The client numbers anew what it sends again."""
    resent = _connection_lost(self)
    for send in self.waiting:
        self.last_number += 1
        send.number = self.last_number
    return resent


def resend_nothing(self: Outgoing) -> int:
    """The client does not send again what was not confirmed."""
    self.unconfirmed.clear()
    return _connection_lost(self)


def all_acknowledged(self: Incoming) -> list[Delivery]:
    """The client takes for acknowledged whatever does not come again."""
    if self._awaited != 0:
        return []
    self._awaited = -1
    missing = [delivery for delivery in self.outstanding.values() if delivery.link != self.link]
    return self._close(missing, DeliveryState.ACKNOWLEDGED)


def all_may_have_a_group(self: Groups, group: str, consumer: Consumer, now_us: int) -> bool:
    """Messages of a group go to whoever is next."""
    return True


def groups_for_good(self: Groups, consumer: Consumer) -> bool:
    """A consumer that leaves keeps its groups."""
    return False


def refresh_all(self: Broker, consumer: Consumer) -> None:
    """All consumers of an exclusive queue receive."""
    queue = consumer.queue
    settings = queue.settings
    queue.settings = msgspec.structs.replace(settings, exclusive=False)
    try:
        _refresh(self, consumer)
    finally:
        queue.settings = settings


def refuse_and_store(self: Broker, node: Node, outgoing: Publication) -> bool:
    """A full address refuses a message, and stores it."""
    refusal = self._refusal(node)
    if refusal is not None:
        self._effects.append(Refuse(outgoing.token, *refusal))
        outgoing.token = None
        self._enqueue(node, outgoing)
        return False
    self._enqueue(node, outgoing)
    return True


def room_and_no_word(self: Broker, node: Node) -> int | None:
    """Who waits for room in a full address is never told of any."""
    return node.room if node.settings.when_full == "block" else None


def expire_into_nothing(self: Broker, message: Message) -> None:
    """What expires is dropped, whatever the settings say."""
    self._drop(message, "expired")


def dead_letter_dropped(self: Broker, message: Message, consumer: Consumer, cause: str, text: str) -> None:
    """Dead letters are dropped."""
    self._left(message)
    self._tick.facts.append(MessageDeadLettered(message.queue.id, message.seq, consumer.id, cause, 0, 0))


def no_duplicates(self: Broker, node: Node, duplicate_id: bytes) -> None:
    """Addresses remember no duplicate ids."""


def no_duplicates_on_disk(self: MemoryStore, queue: int, duplicate_id: bytes) -> None:
    """Duplicate ids are forgotten as soon as they are durable."""


def duplicates_of_the_lost(self: Broker, ids: list[Any]) -> None:
    """Ids of messages for which the store had no room are remembered."""


def sort_nothing_out(self: Broker, transaction: Transaction) -> None:
    """What a transaction sends is stored, whatever ids it has."""


def duplicates_untold(self: Broker, duplicate: Duplicate) -> Duplicate:
    """Senders are not told of duplicates."""
    duplicate.told = False
    return _pass_over(self, duplicate)


def detach_keeping_nothing(self: Broker, consumer: Consumer, **options: Any) -> None:
    """Nothing is kept for a client that lost its connection."""
    _detach(self, consumer, **(options | {"hold_until_us": 0}))


def keep_for_ever(self: Broker) -> None:
    """What is kept for a client is kept although it does not come back."""


def nobody_took(self: MemoryStore, queue: int) -> list[TakenMessage]:
    """Who took a message is forgotten with the broker that gave it."""
    return []


def take_nothing_back(self: Broker, consumer: Consumer, message: Message) -> None:
    """A delivery that goes on after its connection was lost counts as another one."""
    message.flagged = message.presented = True
    self._tick.facts.append(MessagePresented(message.queue.id, message.seq, consumer.id))


def all_accepted(self: AckBatch, delivery: Delivery) -> AcknowledgementOutcome:
    """Every acknowledgement counted, as the client tells it."""
    return AcknowledgementOutcome.ACCEPTED


def never_committed(self: Query, outcome: Any) -> None:
    """Whoever asks what became of a commit hears that it was rolled back."""
    _answer(self, outcome)
    self.committed = False


def no_abort(self: Channel, failure: JMSError, cause: JMSError) -> None:
    """Applications do not hear of what a failover aborted."""


class Fault:
    """One of them: `replacement` in the place of `owner.name`."""

    def __init__(self, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
        self.owner = owner
        self.name = name
        self.replacement = replacement

    @property
    def title(self) -> str:
        """What it is called on the command line."""
        return self.replacement.__name__.replace("_", "-")

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The fault is there for a while."""
        with ExitStack() as stack:
            stack.enter_context(patch.object(self.owner, self.name, self.replacement))
            yield


FAULTS = [
    Fault(MemoryStore, "commit", commit_in_any_epoch),
    Fault(Broker, "take_batch", confirm_before_commit),
    Fault(Broker, "take_batch", deliver_before_commit),
    Fault(Producer, "is_duplicate", is_never_a_duplicate),
    Fault(Lane, "restored", restored_unflagged),
    Fault(executor, "_redelivered", without_header),
    Fault(Broker, "detach", detach_counting_all),
    Fault(Broker, "_fail", fail_twice),
    Fault(Broker, "attach", attach_hiding_who_has_it),
    Fault(Broker, "acknowledge", acknowledge_nothing),
    Fault(Broker, "_begin_selecting", begin_selecting_forgetful),
    Fault(Lane, "claim", claim_all_that_is_read),
    Fault(Tick, "give_back", give_nothing_back),
    Fault(Broker, "_give_up", give_up_and_consume),
    Fault(Broker, "_give_up", give_up_and_publish),
    Fault(Broker, "_commit", commit_all_but_the_first),
    Fault(MemoryStore, "outcome", no_outcome),
    Fault(Broker, "_discharge_again", always_committed),
    Fault(moving, "_takers", takers_but_one),
    Fault(Schedule, "due", nothing_due),
    Fault(Outgoing, "connection_lost", resend_as_new),
    Fault(Outgoing, "connection_lost", resend_nothing),
    Fault(Incoming, "claims_came", all_acknowledged),
    Fault(AckBatch, "outcome", all_accepted),
    Fault(Query, "answer", never_committed),
    Fault(Channel, "_report_abort", no_abort),
    Fault(Groups, "may_have", all_may_have_a_group),
    Fault(Groups, "release", groups_for_good),
    Fault(Broker, "_refresh", refresh_all),
    Fault(Broker, "_publish_closely", refuse_and_store),
    Fault(Broker, "room", room_and_no_word),
    Fault(Broker, "_expire", expire_into_nothing),
    Fault(Broker, "_dead_letter", dead_letter_dropped),
    Fault(Broker, "detach", detach_keeping_nothing),
    Fault(Broker, "_release_overdue", keep_for_ever),
    Fault(MemoryStore, "taken", nobody_took),
    Fault(Broker, "_take_back", take_nothing_back),
    Fault(Broker, "_first_of", no_duplicates),
    Fault(MemoryStore, "duplicate", no_duplicates_on_disk),
    Fault(Broker, "_lose_ids", duplicates_of_the_lost),
    Fault(Broker, "_sort_out", sort_nothing_out),
    Fault(Broker, "_pass_over", duplicates_untold),
]
