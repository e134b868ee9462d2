"""The router: puts messages into queues and topics, and moves or drops them.

Publishing, commits of transactions, dead letters, expiry, schedules and administration all go through here.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from legato.core.changes import Gone, Moved, Placed, Published, PublishedRun
from legato.core.directory import Directory
from legato.core.dispatch_modes import DispatchModes
from legato.core.facts import (
    Kind,
    MessageMoved,
    MessageOfFlow,
    MessagePublished,
    MessageReturned,
    MessageStored,
    MessageTaken,
    QueueGrouped,
)
from legato.core.kernel import Kernel
from legato.core.message import Message, MessageRun
from legato.core.message_states import LEAVE, enter
from legato.core.outgoing import Outgoing
from legato.core.queues import Queue
from legato.core.schedule import SCHEDULE_NAME, Schedule, Scheduled, wrap
from legato.core.topics import Node, Topic
from legato.core.traits import FlowCall, Traits, kept_expiry_us

EXPIRED = "expired"
"""Cause of a `MessageMoved`."""
_GOES_ON = ("due", "moved")
"""A message that moves for one of these causes is still to be worked on."""


class Router:
    """Enqueues, moves and drops messages."""

    __slots__ = ("_directory", "_kernel", "_modes", "_schedule")

    def __init__(self, kernel: Kernel, directory: Directory, modes: DispatchModes) -> None:
        self._kernel = kernel
        self._directory = directory
        self._modes = modes
        self._schedule: Schedule | None = None

    def enqueue(self, node: Node, outgoing: Outgoing, reserved: int = 0) -> tuple[int, int]:
        """Add a message; returns the number and sequence of its place.

        Args:
            reserved: its place in the schedule, if `reserve` gave it one.
        """
        if reserved or outgoing.traits.deliver_us > self._kernel.now_us:
            return self._schedule_message(node, outgoing, outgoing.traits.deliver_us, reserved)
        if isinstance(node, Topic):
            return self._fan_out(node, outgoing)
        if node.topic is not None:
            return self._fan_out(node.topic, outgoing, only=node)
        lane = node.lane_for(outgoing.traits.priority)
        lane.last_seq = seq = lane.last_seq + 1
        commit = self._kernel.gathering
        body = outgoing.body
        fact = MessageStored(
            node.id,
            seq,
            len(body),
            outgoing.message_id,
            outgoing.producer,
            outgoing.number,
            outgoing.txn,
            outgoing.origin,
            outgoing.traits.expires_us,
        )
        commit.facts.append(fact)
        commit.bodies.append(body)
        commit.body_bytes += len(body)
        commit.stored.append(self._copy(node, seq, outgoing, outgoing.token, fact))
        if outgoing.traits.flows:
            self._note_flows(node.id, seq, outgoing.traits.flows)
        return node.id, seq

    def _note_flows(self, queue: int, seq: int, flows: tuple[FlowCall, ...]) -> None:
        self._kernel.gathering.facts += [MessageOfFlow(queue, seq, *call) for call in flows]

    def _fan_out(self, topic: Topic, outgoing: Outgoing, only: Queue | None = None) -> tuple[int, int]:
        """Publish to all subscriptions that want it, or to one of them; the body is stored once."""
        body = outgoing.body
        queues = [only] if only is not None else matching_subscriptions(topic, outgoing)
        seq = topic.next_seq(outgoing.traits.priority)
        commit = self._kernel.gathering
        fact = MessagePublished(
            topic.id,
            seq,
            len(body),
            outgoing.message_id,
            [queue.id for queue in queues],
            outgoing.producer,
            outgoing.number,
            outgoing.txn,
            outgoing.origin,
            outgoing.traits.expires_us,
        )
        commit.facts.append(fact)
        if queues:
            commit.bodies.append(body)
            commit.body_bytes += len(body)
            topic.stored += 1
        copies = []
        for queue in queues:
            queue.lane_for(outgoing.traits.priority).last_seq = seq
            copies.append(self._copy(queue, seq, outgoing, None))
        commit.changes.append(Published(fact, topic, outgoing.token, copies))
        if outgoing.traits.flows:
            self._note_flows(topic.id, seq, outgoing.traits.flows)
        return topic.id, seq

    def fan_out_run(
        self,
        topic: Topic,
        content: bytes,
        ends: array[int],
        ids: bytes,
        tokens: Sequence[Any] | None,
        producer: int,
        number: int,
        container: str,
    ) -> None:
        """Publish messages that ask for nothing to all subscriptions of a topic that takes runs.

        The facts are those of single messages, which are one for all of their copies. The copies are a run in each
        subscription, all of the same bytes, be they told apart or not. Arguments are those of `Publisher.publish_run`.
        """
        queues = [queue for queue in topic.subscriptions.values() if not is_own(queue, container)]
        subscriptions = [queue.id for queue in queues]
        count = len(ends)
        seq = topic.next_seqs(count)
        bodies = [content[begin:end] for begin, end in pairwise((0, *ends))]
        names, width = ids.decode("ascii"), len(ids) // count
        step = 1 if producer else 0
        facts = [
            MessagePublished(
                topic.id,
                seq + place,
                len(body),
                names[width * place : width * (place + 1)],
                subscriptions,
                producer,
                number + place * step,
            )
            for place, body in enumerate(bodies)
        ]
        commit = self._kernel.gathering
        commit.facts += facts
        copies: list[MessageRun] = []
        if queues:
            commit.bodies += bodies
            commit.body_bytes += ends[-1]
            topic.stored += count
        for queue in queues:
            # By themselves: in the windows of subscriptions where they are told apart they take room once, too.
            copies.append(MessageRun(queue, seq, bodies, ends))
            queue.main.last_seq = seq + count - 1
            queue.stored += count
            queue.bytes += ends[-1]
            commit.queues.add(queue)
        commit.changes.append(PublishedRun(facts, topic, tokens, copies))

    def _copy(
        self, queue: Queue, seq: int, outgoing: Outgoing, token: Any, fact: MessageStored | None = None
    ) -> Message:
        size = len(outgoing.body)
        queue.stored += 1
        queue.bytes += size
        self._kernel.gathering.queues.add(queue)
        message = Message(queue, seq, outgoing.body, size, token, fact)
        message.expires_us = outgoing.traits.expires_us
        if outgoing.count:
            message.count = outgoing.count
            self._kernel.record(MessageReturned(queue.id, seq, outgoing.count, False, 0, "carried"))
        if outgoing.traits.group and not queue.grouped:
            queue.grouped = True
            self._kernel.record(QueueGrouped(queue.id))
            self._modes.review(queue)
        return message

    # -- later ---------------------------------------------------------------------------------------------------

    @property
    def schedule(self) -> Schedule:
        """The schedule, made when it is first needed."""
        if self._schedule is None:
            directory = self._directory
            queue = directory.find_queue(SCHEDULE_NAME)
            if queue is None:
                adopted = directory.adopt(directory.new_record(SCHEDULE_NAME, Kind.SCHEDULE, needed=True))
                assert isinstance(adopted, Queue)
                queue = adopted
            self._schedule = Schedule(queue, self._kernel.archive)
        return self._schedule

    @property
    def open_schedule(self) -> Schedule | None:
        """The schedule, if it was needed in this epoch."""
        return self._schedule

    def reserve(self, outgoing: Outgoing) -> int:
        """Look for a place in the schedule for a message that is for later; 0 if it is for now."""
        due_us = outgoing.traits.deliver_us
        return self.schedule.place(due_us) if due_us > self._kernel.now_us else 0

    def give_up(self, reserved: int) -> None:
        """The message that got the place does not come."""
        if reserved:
            self.schedule.not_stored(reserved)

    def _schedule_message(self, node: Node, outgoing: Outgoing, due_us: int, reserved: int = 0) -> tuple[int, int]:
        """The message waits in the schedule until it is due, and goes to `node` then."""
        traits = outgoing.traits
        scheduled = Scheduled(
            node.id,
            outgoing.message_id,
            traits.priority,
            traits.expires_us,
            traits.group,
            traits.closes_group,
            outgoing.container,
            outgoing.count,
            outgoing.body,
        )
        schedule = self.schedule
        queue = schedule.queue
        seq = reserved or schedule.place(due_us)
        body = wrap(scheduled)
        commit = self._kernel.gathering
        fact = MessageStored(
            queue.id,
            seq,
            len(body),
            outgoing.message_id,
            outgoing.producer,
            outgoing.number,
            outgoing.txn,
            outgoing.origin,
        )
        commit.facts.append(fact)
        commit.bodies.append(body)
        commit.body_bytes += len(body)
        queue.stored += 1
        queue.bytes += len(body)
        commit.stored.append(Message(queue, seq, body, len(body), outgoing.token, fact))
        commit.queues.add(queue)
        commit.changes.append(Placed(schedule, seq))
        return queue.id, seq

    def copy_of(self, message: Message) -> Outgoing:
        """The message as it goes to another place with its delivery count."""
        body = message.queue.body(message, self._kernel.archive)
        group, closes = self._kernel.bodies.group(body)
        priority = message.queue.lane(message.seq).priority
        traits = Traits(priority, kept_expiry_us(message.expires_us), 0, group, closes)
        return Outgoing(body, traits=traits, count=message.count)

    # -- leaving -------------------------------------------------------------------------------------------------

    def account_departure(self, message: Message) -> None:
        """The message is no longer its queue's."""
        queue = message.queue
        enter(message, LEAVE)
        queue.consumed += 1
        queue.bytes -= message.size
        message.consumer = None
        message.waiting = False
        if message.count or message.flagged:
            # Who still holds it must not be told that its acknowledgement counted (promise 5).
            queue.remember_taken(message.seq, "", "")
            self._kernel.record(MessageTaken(queue.id, message.seq, "", ""))
        if queue.claims:
            self._kernel.change(Gone(queue, message.seq))

    def drop(self, message: Message, cause: str) -> None:
        """The message leaves its queue for nowhere."""
        self.account_departure(message)
        self._kernel.record(MessageMoved(message.queue.id, message.seq, cause, expired_us=self._expired_us(cause)))

    def _expired_us(self, cause: str) -> int:
        """The clock may be set back before the commit: the ledger shows by which time a message was judged."""
        return self._kernel.now_us if cause == EXPIRED else 0

    def move(self, message: Message, cause: str, to: Node, outgoing: Outgoing, due_us: int = 0) -> None:
        """The message leaves its queue for `to`, or for the schedule until it is due there."""
        outgoing.origin = (message.queue.id, message.seq)
        self.account_departure(message)
        facts = self._kernel.gathering.facts
        at = len(facts)
        if due_us:
            place = self._schedule_message(to, outgoing, due_us)
        else:
            place = self.enqueue(to, outgoing)
            if cause in _GOES_ON:
                self._note_flows(*place, self._kernel.bodies.flows(outgoing.body))
        fact = MessageMoved(message.queue.id, message.seq, cause, *place, self._expired_us(cause))
        facts.insert(at, fact)
        self._kernel.change(Moved(fact, message))

    def expire(self, message: Message) -> None:
        """The message's time is over: it goes to the expiry queue of its address, if there is one."""
        queue = message.queue
        name = queue.settings.expiry_queue.format(address=queue.address)
        to = (
            None
            if not name or name == queue.name
            else self._directory.find_queue(name) or self._directory.create_queue(name, needed=True)
        )
        if to is None:
            self.drop(message, EXPIRED)
            return
        body = self._kernel.bodies.annotate(
            queue.body(message, self._kernel.archive),
            {"JMS_LEGATO_CAUSE": EXPIRED, "JMS_LEGATO_ORIGINAL_DESTINATION": queue.address},
        )
        self.move(message, EXPIRED, to, Outgoing(body))


def is_own(queue: Queue, container: str) -> bool:
    """Whether a subscription wants nothing of a container, as that is its own (no-local)."""
    return queue.no_local and queue.container == container


def matching_subscriptions(topic: Topic, outgoing: Outgoing) -> list[Queue]:
    """The subscriptions that want the message: by selector, and not from their own connection if no-local."""
    return [
        queue
        for queue in topic.subscriptions.values()
        if not is_own(queue, outgoing.container) and (queue.matches is None or queue.matches(outgoing.body))
    ]
