"""The record of a run so far, and the check of duplicate detection against it."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from legato.client.messages import BytesMessage
from legato.core.facts import DuplicateDropped, DuplicateIdDropped, DuplicateIdKept
from legato.core.settings import DEFAULT_SETTINGS
from simulator.plan import Plan

MARK = re.compile(rb"<(\d+)>")
"""The number of a message, in its body."""
REPEATED = re.compile(rb"<\d+>#((q\d)-\d+)#")
"""Its duplicate id and the address to which it is sent, if it has one."""

FORGOTTEN = 50
"""An id may be remembered for longer than is promised, as long as it is on its way to the disk."""


def text_of(message: Any) -> str:
    """The text of a message, which may have come as bytes."""
    return str(message.body.decode() if isinstance(message, BytesMessage) else message.text)


def _left_of(remembered: deque[bytes]) -> bytes | None:
    """The id that the next one pushes out."""
    return remembered[0] if len(remembered) == remembered.maxlen else None


class ViolationError(AssertionError):
    """A promise was broken; the text begins with which."""


class Copy:
    """One message in one queue or subscription, wherever it is moved to be delivered there later."""

    def __init__(self) -> None:
        self.presented_us: list[int] = []
        """When applications were given it."""
        self.holders: list[str] = []
        """Containers of those applications, in the same order."""
        self.ended = ""
        """How it left, once it has: `consumed`, `dead`, or the cause of a move."""
        self.ended_epoch = 0
        self.consumer = 0
        self.returned = False
        """Whether a delivery of it failed, as far as is on record."""
        self.sure = 0
        """How many applications died of it after the broker had heard that they had it."""
        self.acknowledged_us = 0
        """When an application was told that its acknowledgement counts."""


class Record:
    """All of it.

    Attributes:
        now_us: tells the virtual time.
        wants: of a subscription's name and a message's number, whether the subscription wants it.
        plan: how addresses are set.
    """

    def __init__(self, now_us: Callable[[], int], wants: Callable[[str, int], bool], plan: Plan) -> None:
        self.now_us = now_us
        self.wants = wants
        self.plan = plan
        self.epoch = 0
        self.names: dict[int, str] = {}
        self.temporary: set[str] = set()
        """Names of queues and subscriptions that do not last."""
        self.topics: dict[int, int] = {}
        """Of each subscription that there is, its topic."""
        self.containers: dict[int, str] = {}
        self.seen_by: dict[tuple[int, int], int] = {}
        """By place: the consumer whose application has the message, as this epoch's broker has put on record."""
        self.recorded: Counter[tuple[int, int, int]] = Counter()
        """By queue, sequence and consumer: how many records that a message was presented are not durable yet."""
        self.outdated: Counter[tuple[int, int, int]] = Counter()
        """How many of these are of deliveries that were given back since."""
        self.away: dict[int, tuple[int, str]] = {}
        """Consumers whose connection was lost and for whom something is kept: since when, their containers."""
        self.originals: Counter[str] = Counter()
        """How often a message that a client sent was stored, by its id."""
        self.copies: dict[tuple[str, int], Copy] = {}
        self.places: dict[tuple[int, int], int] = {}
        """The number of what waits, by queue and sequence."""
        self.burials: dict[tuple[str, int], str] = {}
        """By dead-letter queue and sequence: the name under which `copies` has what died in a subscription that ends
        with its listeners. Those of the topic share one such queue, and a message may die in each of them."""
        self.receives_from: dict[int, str] = {}
        """Of each consumer the name of its queue or subscription."""
        self.void: set[str] = set()
        """Ids of messages whose senders were told that they are not stored."""
        self.remembered: dict[str, deque[bytes]] = {}
        """Duplicate ids that addresses remember or have just forgotten, the oldest first."""
        self.dropped: set[str] = set()
        """Ids of messages that were duplicates."""
        self.sent_with: dict[tuple[int, int], tuple[str, bytes, str]] = {}
        """By producer and number of a message with a duplicate id: its address, that id, its message id."""
        self.holders: dict[tuple[str, bytes], str] = {}
        """By address and duplicate id: the message that had it last."""
        self.resent_late: set[str] = set()
        """Ids of messages that were sent again when their address did not know them by their duplicate ids any more:
        their senders may not hear whether they were duplicates, only that a message of that id is stored."""
        self.asked_for = Counter[tuple[str, str]]()
        """What somebody asked for that takes messages from where they are: the operation and the name."""
        self.done = Counter[tuple[str, str]]()
        """How often it happened, by message or by subscription."""
        self.ever_paused: set[str] = set()
        """Queues that somebody wanted paused."""
        self.durably_paused: set[str] = set()
        """Queues that are, by the last commit."""
        self.paused: set[str] = set()
        """Queues that are, as was told, and that nobody can have resumed."""
        self.resumes: Counter[str] = Counter()
        """Requests to resume a queue that may still come to be done."""
        self.moved_to: set[tuple[int, int]] = set()
        """Places to which administrators, or the end of a pipeline, move messages."""
        self.moved: set[int] = set()
        """Numbers of messages that were moved so: no order is promised of them."""
        self.rows: Counter[int] = Counter()
        """How often a row of a sink was stored."""
        self.ranges: dict[tuple[str, int], int] = {}
        """By assignment and sequence: the number that a pipeline read there."""
        self.stalled_us = 0
        """When trouble was made last that keeps something from going on."""
        self.slow_us = 0
        """When the log that brokers share was slow last, without any trouble: what is committed waits for it."""
        self.durable_us = 0
        """When a commit became durable last."""
        self.fences: dict[str, int] = {}
        """Of assignments, by name: which run of the pipeline has it."""
        self._kept: set[tuple[str, bytes]] = set()
        self._kept_before: set[tuple[str, bytes]] = set()
        """Those of the present batch, and of the one before it, which may not have been durable when this one was made:
        what is on its way to the disk is known however many it is."""
        self._pushed_out: set[tuple[str, bytes]] = set()
        self._pushed_out_before: set[tuple[str, bytes]] = set()
        """The ids that those push out of their windows once they are durable, and not before."""
        self._passed: set[tuple[str, bytes]] = set()
        self._passed_before: set[tuple[str, bytes]] = set()
        """The ids that are behind their windows from then on; the store still has them for a while."""
        self.unreadable: set[Any] = set()
        """Messages whose files cannot be read to their ends."""
        self.ended_links: set[str] = set()
        """The conditions with which brokers have ended links by themselves."""
        self.violation: ViolationError | None = None
        """The first one."""
        self.trace: Callable[[str], None] | None = None
        """Is told of everything, if somebody listens."""
        self.counts: Counter[str] = Counter()

    def broken(self, promise: str) -> ViolationError:
        """What to raise where a promise was broken; the run ends with it even if the client swallows it."""
        self.violation = self.violation or ViolationError(promise)
        return self.violation

    def note(self, *what: object) -> None:
        """Something happened."""
        if self.trace is not None:
            self.trace(" ".join(map(str, what)))

    def copy_name(self, name: str, seq: int) -> str:
        """The name under which `copies` has what is at `seq` in a queue or subscription: its own, but of `burials`."""
        return self.burials.get((name, seq), name)

    def _window_of(self, name: str) -> int:
        address = self.plan.address(name)
        return address.duplicate_window if address is not None else DEFAULT_SETTINGS.duplicate_window

    def _remembers(self, name: str, duplicate_id: bytes) -> bool:
        """Whether an address is bound to know an id."""
        remembered, window = self.remembered.get(name, ()), self._window_of(name)
        return duplicate_id in remembered and list(remembered).index(duplicate_id) >= len(remembered) - window

    def _keep_id(self, name: str, fact: DuplicateIdKept) -> None:
        if self._remembers(name, fact.id):
            raise self.broken(f"E15: {name} stores another message of {fact.id!r}, which it remembers")
        remembered = self.remembered.setdefault(name, deque(maxlen=self._window_of(name) + FORGOTTEN))
        if fact.id in remembered:
            remembered.remove(fact.id)
        if (left := _left_of(remembered)) is not None:
            self._pushed_out.add((name, left))
        remembered.append(fact.id)
        if len(remembered) > (window := self._window_of(name)):
            self._passed.add((name, remembered[-window - 1]))
        self.holders[name, fact.id] = fact.message_id
        self.sent_with[fact.producer, fact.number] = (name, fact.id, fact.message_id)
        self._kept.add((name, fact.id))
        self.counts["duplicate ids kept"] += 1

    def _drop(self, name: str, fact: DuplicateIdDropped) -> None:
        recent = self._kept | self._kept_before | self._pushed_out | self._pushed_out_before
        if (name, fact.id) not in recent and fact.id not in self.remembered.get(name, ()):
            raise self.broken(f"E15: {fact.message_id} is dropped, and {name} remembers no {fact.id!r}")
        if self.originals[fact.message_id]:
            raise self.broken(f"E15: {fact.message_id} is dropped as a duplicate and is stored")
        self.sent_with[fact.producer, fact.number] = (name, fact.id, fact.message_id)
        self.void.add(fact.message_id)
        self.dropped.add(fact.message_id)
        self.counts["duplicates dropped"] += 1

    def _resent(self, fact: DuplicateDropped) -> None:
        """A client sends again what it was not told about."""
        if (fact.producer, fact.number) not in self.sent_with:
            return
        name, duplicate_id, message_id = self.sent_with[fact.producer, fact.number]
        heard = self._remembers(name, duplicate_id) and self.holders[name, duplicate_id] != message_id
        # Another message has or had the id just now, and a broker decides by what it remembers before its commit.
        recent = self._kept | self._kept_before | self._passed | self._passed_before
        was_taken = (name, duplicate_id) in recent and message_id not in self.dropped
        if was_taken or heard != (message_id in self.dropped) or self.plan.disk_fills:
            self.resent_late.add(message_id)

    def _check_id(self, body: bytes) -> None:
        """Whoever stores a message with a duplicate id remembers that in the same commit."""
        found = REPEATED.search(body)
        if found is None:
            return
        name = found[2].decode()
        address = self.plan.address(name)
        assert address is not None
        if address.duplicate_window and (name, found[1]) not in self._kept:
            raise self.broken(f"E15: a message of {found[1]!r} is stored, and {name} does not remember it")
