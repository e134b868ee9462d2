"""A transaction: the messages that it has received and will send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from legato.core.consumers import Consumer
from legato.core.duplicate_records import DroppedDuplicate, StoredOriginal
from legato.core.message import Message

if TYPE_CHECKING:
    from legato.core.outgoing import Outgoing
    from legato.core.queues import Queue
    from legato.core.topics import Node


class Disposal(msgspec.Struct, frozen=True):
    """Disposal of a received message by its transaction, other than consuming it (AMQP 4.4.2).

    Attributes:
        rejected: it goes to the dead letters; otherwise back to its place.
        failed: whether the delivery counts as failed; of what goes back.
        text: why, in the words of the receiver's application.
        properties: further ones of the dead letter.
    """

    rejected: bool = False
    failed: bool = False
    text: str = ""
    properties: tuple[tuple[str, str | int], ...] = ()


class Transaction:
    """A declared transaction. `owner` is the shell's handle of the connection that declared it, `realm` its user's.

    `failed` is the reason why it can only roll back, once there is one; `declared_us` is by the machine's clock.
    """

    __slots__ = (
        "buries",
        "bytes",
        "consumed",
        "declared_us",
        "disposals",
        "duplicates",
        "failed",
        "has_ids",
        "id",
        "larges",
        "owner",
        "realm",
        "repeats",
        "sends",
        "told",
        "unsettled",
    )

    def __init__(self, txn_id: bytes, owner: Any, realm: str = "", declared_us: int = 0) -> None:
        self.id = txn_id
        self.owner = owner
        self.realm = realm
        self.declared_us = declared_us
        self.bytes = 0
        self.sends: list[tuple[Node, Outgoing]] = []
        self.larges: list[int] = []
        """Large messages among them."""
        self.consumed: list[tuple[Consumer, Message]] = []
        self.disposals: dict[Message, Disposal] = {}
        """Those of `consumed` that it does something else with."""
        self.buries = False
        """Whether it sends any of them to the dead letters."""
        self.unsettled: list[Any] = []
        """Tokens of sends whose outcome is known, and told, with that of the transaction."""
        self.repeats: list[tuple[Node, Outgoing, bytes, StoredOriginal]] = []
        """Sends that are duplicates, their ids, and the messages that have these."""
        self.duplicates: list[DroppedDuplicate] = []
        """What became of those with its commit."""
        self.told: list[Any] = []
        """Of those, the tokens of the ones whose senders are to be told."""
        self.has_ids = False
        """Whether any of the sends has a duplicate id."""
        self.failed: str | None = None

    @property
    def did_work(self) -> bool:
        """Whether its outcome matters to anybody (CONTRACT B17)."""
        return bool(self.sends or self.consumed or self.repeats)


class OwnTransactions:
    """The open transactions of one connection, the first that was declared first; `bytes` is what they hold."""

    __slots__ = ("by_id", "bytes")

    def __init__(self) -> None:
        self.by_id: dict[bytes, Transaction] = {}
        self.bytes = 0


class OpenTransactions:
    """The transactions that were declared and not discharged, by id.

    There may be millions that do nothing: what happens often looks at those of one owner, or at those that consume.
    """

    __slots__ = ("_by_owner", "by_id", "consuming")

    def __init__(self) -> None:
        self.by_id: dict[bytes, Transaction] = {}
        self.consuming: dict[bytes, Transaction] = {}
        """Those that have received messages."""
        self._by_owner: dict[Any, OwnTransactions] = {}

    def add(self, transaction: Transaction) -> None:
        """It was declared."""
        self.by_id[transaction.id] = transaction
        self._by_owner.setdefault(transaction.owner, OwnTransactions()).by_id[transaction.id] = transaction

    def remove(self, transaction: Transaction) -> None:
        """It was discharged; nothing happens if it was before."""
        if self.by_id.pop(transaction.id, None) is None:
            return
        self.consuming.pop(transaction.id, None)
        own = self._by_owner[transaction.owner]
        del own.by_id[transaction.id]
        own.bytes -= transaction.bytes
        if not own.by_id:
            del self._by_owner[transaction.owner]

    def grow(self, transaction: Transaction, size: int) -> None:
        """It holds so many bytes more."""
        transaction.bytes += size
        if transaction.id in self.by_id:
            self._by_owner[transaction.owner].bytes += size

    def of(self, owner: Any) -> OwnTransactions:
        """Those of a connection."""
        return self._by_owner.get(owner) or OwnTransactions()

    def held_in(self, queue: Queue) -> set[int]:
        """Sequences of messages of the queue that they will consume."""
        return {
            message.seq
            for transaction in self.consuming.values()
            for _, message in transaction.consumed
            if message.queue is queue
        }
