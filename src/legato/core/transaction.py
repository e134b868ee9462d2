"""One transaction: what it has received and what it will send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from legato.core.consumers import Consumer
from legato.core.message import Message

if TYPE_CHECKING:
    from legato.core.moving import Outgoing
    from legato.core.state import Node


class Transaction:
    """A declared transaction. `owner` is the shell's handle of the connection that declared it.

    `failed` is the reason why it can only roll back, once there is one.
    """

    __slots__ = ("bytes", "consumed", "failed", "id", "larges", "owner", "sends")

    def __init__(self, txn_id: bytes, owner: Any) -> None:
        self.id = txn_id
        self.owner = owner
        self.bytes = 0
        self.sends: list[tuple[Node, Outgoing]] = []
        self.larges: list[int] = []
        """Large messages among them."""
        self.consumed: list[tuple[Consumer, Message]] = []
        self.failed: str | None = None

    @property
    def did_work(self) -> bool:
        """Whether its outcome matters to anybody (CONTRACT B17)."""
        return bool(self.sends or self.consumed)
