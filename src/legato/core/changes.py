"""Changes of messages: stored in topics or the schedule, or gone from a queue (`core.outcome.Change`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import msgspec

from legato.core.facts import MessageDeadLettered, MessageMoved, MessagePublished, MessageReleased
from legato.core.lanes import LANE_SHIFT, Lane
from legato.core.message import Message, MessageRun
from legato.core.outcome import Outcome, RefusedCommit, undo_copy, undo_run
from legato.core.queues import Queue
from legato.core.records import Run
from legato.core.schedule import Schedule
from legato.core.topics import Topic


class Published(msgspec.Struct, gc=False):
    """A message for a topic: its copies, and the publisher's token, None if nobody is to be told."""

    fact: MessagePublished
    topic: Topic
    token: Any
    copies: list[Message]

    def durable(self, outcome: Outcome) -> None:
        """The copies come to their places, and the publisher is told."""
        for message in self.copies:
            message.queue.lanes[message.seq >> LANE_SHIFT].append(message)
        if self.token is not None:
            outcome.confirmed.append(self.token)

    def refused(self, refusal: RefusedCommit) -> None:
        """They do not, and the publisher hears of that."""
        for message in self.copies:
            undo_copy(message)
        if self.fact.subscriptions:
            self.topic.stored -= 1
        # What was moved goes back to where it was, and what a transaction sent was not sent.
        if self.fact.origin is None and not self.fact.txn:
            refusal.refuse(self.token, self.fact)


class PublishedRun(msgspec.Struct, gc=False):
    """Messages for a topic that came together: a fact for each, their copies, and the publisher's tokens, if any."""

    facts: list[MessagePublished]
    topic: Topic
    tokens: Sequence[Any] | None
    copies: list[MessageRun]

    def durable(self, outcome: Outcome) -> None:
        """The copies come to their places, and the publisher is told."""
        for run in self.copies:
            run.queue.main.append_run(run)
        if self.tokens is not None:
            outcome.confirmed.append(self.tokens)

    def refused(self, refusal: RefusedCommit) -> None:
        """They do not, and the publisher hears of each."""
        for run in self.copies:
            undo_run(run)
        if self.copies:
            self.topic.stored -= len(self.facts)
        for fact, token in zip(self.facts, self.tokens or repeat(None), strict=False):
            refusal.refuse(token, fact)


class Placed(msgspec.Struct, gc=False):
    """A message has a place in the schedule."""

    schedule: Schedule
    seq: int

    def durable(self, outcome: Outcome) -> None:
        """It is due at its time."""
        self.schedule.committed(self.seq)

    def refused(self, refusal: RefusedCommit) -> None:
        """Its place is free."""
        self.schedule.not_stored(self.seq)


class Released(msgspec.Struct, gc=False):
    """A message that was due leaves the schedule."""

    schedule: Schedule
    seq: int

    def durable(self, outcome: Outcome) -> None:
        """The next ones may be due."""
        self.schedule.releasing.discard(self.seq)
        self.schedule.due_us = 0

    def refused(self, refusal: RefusedCommit) -> None:
        """It is due again if there was no room where it goes; else it leaves all the same."""
        if refusal.stays(self.schedule.queue.id, self.seq):
            self.schedule.releasing.discard(self.seq)
        else:
            refusal.retry(self)


class Moved(msgspec.Struct, gc=False):
    """A message goes somewhere else, or to the dead letters."""

    fact: MessageMoved | MessageDeadLettered
    message: Message

    def durable(self, outcome: Outcome) -> None:
        """It is stored where it went."""

    def refused(self, refusal: RefusedCommit) -> None:
        """There was no room where it goes: it returns to its place."""
        message = self.message
        message.queue.consumed -= 1
        message.queue.bytes += message.size
        refusal.replace(self.fact)
        if message.queue.is_schedule:
            return
        # Its application may have had it, and rejected it.
        message.flagged = message.flagged or message.presented
        message.presented = False
        refusal.give_back(message)
        if refusal.detailed and isinstance(self.fact, MessageDeadLettered):
            # Nothing else says that its consumer does not have it any more.
            flagged = message.flagged or message.count > 0
            refusal.replace(self.fact, MessageReleased(self.fact.queue, self.fact.seq, self.fact.consumer, flagged))


class Gone(msgspec.Struct, gc=False):
    """A message leaves a queue with claims."""

    queue: Queue
    seq: int

    def durable(self, outcome: Outcome) -> None:
        """It is not on disk any more."""
        self.queue.unclaim(self.seq)

    def refused(self, refusal: RefusedCommit) -> None:
        """It leaves all the same, unless it was moved and found no room, or its transaction is rolled back."""
        if not refusal.stays(self.queue.id, self.seq):
            refusal.retry(self)


class RunGone(msgspec.Struct, gc=False):
    """A run of messages leaves a queue for an assignment, and is claimed until then."""

    lane: Lane
    run: Run

    def durable(self, outcome: Outcome) -> None:
        """It is not on disk any more."""
        self.lane.release_run(self.run)

    def refused(self, refusal: RefusedCommit) -> None:
        """It leaves all the same."""
        refusal.retry(self)


class Marked(msgspec.Struct, gc=False):
    """A queue's dispatch mark rises."""

    queue: Queue
    seq: int

    def durable(self, outcome: Outcome) -> None:
        """Raise the mark: messages below it may be given to consumers."""
        lane = self.queue.lane(self.seq)
        lane.mark = max(lane.mark, self.seq)
        outcome.touched.add(self.queue)

    def refused(self, refusal: RefusedCommit) -> None:
        """It rises all the same."""
        refusal.retry(self)
