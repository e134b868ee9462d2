"""Who receives: consumers that take messages, browsers that only look."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from legato import limits

if TYPE_CHECKING:
    from legato.core.message import Message
    from legato.core.queues import Queue


class Consumer:
    """A receiving link on a queue. `port` is the shell's own; the core only hands it back in effects.

    `reports_presented` says that it tells us which messages reached its application (promise 4); of others we
    must assume that any delivered message may have been seen.
    """

    __slots__ = (
        "blocked",
        "container",
        "credit",
        "draining",
        "first",
        "id",
        "port",
        "queue",
        "reports_presented",
        "unsent_bytes",
        "unsettled",
        "window",
    )

    def __init__(self, number: int, queue: Queue, port: Any, container: str, reports_presented: bool) -> None:
        self.id = number
        self.queue = queue
        self.port = port
        self.container = container
        self.reports_presented = reports_presented
        self.credit = 0
        self.window = 0
        """The most credit it ever gave: what it will give again as it acknowledges."""
        self.draining = False
        self.blocked = False
        self.unsent_bytes = 0
        """Given since its socket was last known to take more."""
        self.unsettled: dict[int, Message] = {}
        self.first: deque[Message] = deque()
        """Messages its application already holds (names.HELD): they come before all others."""

    @property
    def ready(self) -> bool:
        """Whether it can be given a message now."""
        return self.credit > 0 and not self.blocked and self.unsent_bytes < limits.DELIVERY_BYTES_IN_ONE_GO


class Browser:
    """Looks at the messages that wait when it comes, without consuming (Jakarta Messaging 6.1.8: a snapshot)."""

    __slots__ = ("after", "blocked", "credit", "draining", "port", "queue", "until")

    def __init__(self, queue: Queue, port: Any) -> None:
        self.queue = queue
        self.port = port
        self.after = 0
        self.until = queue.visible_seq
        self.credit = 0
        self.draining = False
        self.blocked = False
