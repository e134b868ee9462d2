"""Mistakes to plant in the broker: address settings, duplicate ids, lost clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from legato.amqp.engine.link import Link
from legato.core.backpressure import Backpressure, refusal
from legato.core.commit import Commit
from legato.core.consumers import Consumer
from legato.core.dead_letters import NOTHING_MORE, DeadLetters
from legato.core.duplicate_records import DroppedDuplicate
from legato.core.duplicates import Duplicates
from legato.core.effects import Refuse
from legato.core.facts import MessageDeadLettered, MessagePresented
from legato.core.groups import Groups
from legato.core.message import Message
from legato.core.outgoing import Outgoing as Publication
from legato.core.producers import Producer
from legato.core.publishing import Publisher
from legato.core.queues import Queue
from legato.core.receivers import Receivers
from legato.core.records import TakenMessage
from legato.core.reservations import Reservations
from legato.core.router import Router
from legato.core.topics import Node
from legato.core.transaction import Transaction
from legato.core.transactions import Transactions
from legato.server.links.consumers import Consumers
from legato.server.links.link_closing import LinkCloser
from legato.server.links.link_endings import LinkEnding
from legato.store.memory import MemoryStore

_detach = Receivers.detach
_detach_link = Consumers.detach
_review_turn = Queue.review_turn
_give = Groups.give
_pass_over = Duplicates._pass_over
_drop_resent = Duplicates.drop_resent


def all_may_have_a_group(self: Groups[Message], group: str, consumer: Consumer) -> bool:
    """Messages of a group go to whoever is next."""
    return True


def close_all_groups(self: Groups[Message], group: str, consumer: Consumer, *, closes: bool) -> None:
    """A message that closes its group closes all of them."""
    _give(self, group, consumer, closes=closes)
    if closes:
        for other in list(self._owners):
            self._free(other)


def groups_for_good(self: Groups[Message], consumer: Consumer) -> bool:
    """A consumer that leaves keeps its groups."""
    return False


def refresh_all(self: Queue, consumer: Consumer) -> None:
    """All consumers of an exclusive queue receive."""
    settings = self.settings
    self.settings = msgspec.structs.replace(settings, exclusive=False)
    try:
        _review_turn(self, consumer)
    finally:
        self.settings = settings


def refuse_and_store(self: Publisher, node: Node, outgoing: Publication) -> bool:
    """A full address refuses a message, and stores it."""
    why = refusal(node)
    if why is not None:
        self._kernel.emit(Refuse(outgoing.token, *why))
        outgoing.token = None
        self._router.enqueue(node, outgoing)
        return False
    self._router.enqueue(node, outgoing)
    return True


def room_and_no_word(self: Backpressure, node: Node) -> int | None:
    """Who waits for room in a full address is never told of any."""
    return node.room if node.settings.when_full == "block" else None


def expire_into_nothing(self: Router, message: Message) -> None:
    """What expires is dropped, whatever the settings say."""
    self.drop(message, "expired")


def dead_letter_dropped(
    self: DeadLetters,
    message: Message,
    consumer: Consumer,
    cause: str,
    text: str,
    properties: Mapping[str, str | int] = NOTHING_MORE,
) -> None:
    """Dead letters are dropped."""
    self._router.account_departure(message)
    self._kernel.record(MessageDeadLettered(message.queue.id, message.seq, consumer.id, cause, 0, 0))


def no_duplicates(self: Duplicates, node: Node, duplicate_id: bytes) -> None:
    """Addresses remember no duplicate ids."""


def no_duplicates_on_disk(self: MemoryStore, queue: int, duplicate_id: bytes) -> None:
    """Duplicate ids are forgotten as soon as they are durable."""


def duplicates_of_the_lost(self: Duplicates, commit: Commit) -> None:
    """Ids of messages for which the store had no room are remembered."""


def sort_nothing_out(self: Transactions, transaction: Transaction) -> None:
    """What a transaction sends is stored, whatever ids it has."""


def duplicates_untold(self: Duplicates, duplicate: DroppedDuplicate) -> DroppedDuplicate:
    """Senders are not told of duplicates."""
    duplicate.told = False
    return _pass_over(self, duplicate)


def resent_untold(self: Duplicates, node: Node, outgoing: Publication, producer: Producer) -> None:
    """A duplicate that is sent again after a failover is confirmed like a message that is stored."""
    _drop_resent(self, node, outgoing, producer)
    duplicate = self._kernel.gathering.changes[-1]
    assert isinstance(duplicate, DroppedDuplicate)
    duplicate.told = False


def detach_keeping_nothing(self: Receivers, consumer: Consumer, **options: Any) -> None:
    """Nothing is kept for a client that lost its connection."""
    _detach(self, consumer, **(options | {"hold_until_us": 0}))


def keep_for_ever(self: Reservations) -> None:
    """What is kept for a client is kept although it does not come back."""


def nobody_took(self: MemoryStore, queue: int) -> list[TakenMessage]:
    """Who took a message is forgotten with the broker that gave it."""
    return []


def take_nothing_back(self: Reservations, consumer: Consumer, message: Message) -> None:
    """A delivery that goes on after its connection was lost counts as another one."""
    message.flagged = message.presented = True
    self._kernel.record(MessagePresented(message.queue.id, message.seq, consumer.id))


def cut_and_unflagged(self: Consumers, consumer: Consumer, ending: LinkEnding, *, moving: bool = False) -> None:
    """What was on a link that the broker has ended comes again unflagged, though somebody may have seen it."""
    _detach_link(self, consumer, LinkEnding.CLOSED if ending is LinkEnding.CUT else ending, moving=moving)


def end_before_the_answers(self: LinkCloser, link: Link, condition: str, description: str) -> None:
    """Who hears that a link has ended does not hear what became of what was acknowledged over it."""
    self.cut(link, condition, description)
