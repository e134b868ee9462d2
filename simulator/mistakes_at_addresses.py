"""Mistakes to plant in the broker: what settings, duplicate ids and lost clients ask of addresses."""

from __future__ import annotations

from typing import Any

import msgspec

from legato.core.broker import Broker
from legato.core.consumers import Consumer
from legato.core.directory import Node
from legato.core.effects import Refuse
from legato.core.facts import MessageDeadLettered, MessagePresented
from legato.core.groups import Groups
from legato.core.message import Message
from legato.core.producers import Producer
from legato.core.records import TakenMessage
from legato.core.repeats import Duplicate
from legato.core.router import Outgoing as Publication
from legato.core.transaction import Transaction
from legato.store.memory import MemoryStore

_detach = Broker.detach
_refresh = Broker._refresh
_pass_over = Broker._pass_over
_drop_resent = Broker._drop_resent


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
        self.kernel.effects.append(Refuse(outgoing.token, *refusal))
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
    self.kernel.gathering.facts.append(MessageDeadLettered(message.queue.id, message.seq, consumer.id, cause, 0, 0))


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


def resent_untold(self: Broker, node: Node, outgoing: Publication, producer: Producer) -> None:
    """A duplicate that is sent again after a failover is confirmed like a message that is stored."""
    _drop_resent(self, node, outgoing, producer)
    self.kernel.gathering.duplicates[-1].told = False


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
    self.kernel.gathering.facts.append(MessagePresented(message.queue.id, message.seq, consumer.id))
