"""One transaction: what it has received and what it will send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from legato.core.consumers import Consumer
from legato.core.message import Message
from legato.core.repeats import Duplicate, First

if TYPE_CHECKING:
    from legato.core.moving import Outgoing
    from legato.core.state import Node


class Transaction:
    """A declared transaction. `owner` is the shell's handle of the connection that declared it.

    `failed` is the reason why it can only roll back, once there is one.
    """

    __slots__ = (
        "bytes",
        "consumed",
        "duplicates",
        "failed",
        "has_ids",
        "id",
        "larges",
        "owner",
        "repeats",
        "sends",
        "told",
        "unsettled",
    )

    def __init__(self, txn_id: bytes, owner: Any) -> None:
        self.id = txn_id
        self.owner = owner
        self.bytes = 0
        self.sends: list[tuple[Node, Outgoing]] = []
        self.larges: list[int] = []
        """Large messages among them."""
        self.consumed: list[tuple[Consumer, Message]] = []
        self.unsettled: list[Any] = []
        """Tokens of sends whose outcome is known, and told, with that of the transaction."""
        self.repeats: list[tuple[Node, Outgoing, bytes, First]] = []
        """Sends that are duplicates, their ids, and the messages that have these."""
        self.duplicates: list[Duplicate] = []
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
