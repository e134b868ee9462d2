"""Temporary queues, topics and subscriptions of earlier epochs: deleted unless their clients return in time."""

from __future__ import annotations

from collections.abc import Sequence

from legato.core.deletion import Deletion
from legato.core.directory import Directory
from legato.core.kernel import Kernel
from legato.core.queues import Queue
from legato.core.records import QueueRecord
from legato.core.topics import Node


class Temporaries:
    """The temporary nodes of earlier epochs.

    Args:
        reconnect_timeout_s: how long it waits for its clients (CONTRACT B21).
    """

    __slots__ = ("_deletion", "_directory", "_kernel", "_orphans", "_orphans_until_us", "_reconnect_timeout_us")

    def __init__(self, kernel: Kernel, directory: Directory, deletion: Deletion, reconnect_timeout_s: float) -> None:
        self._kernel = kernel
        self._directory = directory
        self._deletion = deletion
        self._orphans: Sequence[QueueRecord] = kernel.archive.temporaries(1 << 30)
        """That for which nobody came back yet."""
        self._orphans_until_us = 0
        """When it goes, by the steady clock; 0: not known yet."""
        self._reconnect_timeout_us = int(reconnect_timeout_s * 1_000_000)

    def reclaim(self, node: Node) -> None:
        """Whose temporary queue or topic it is came back for it: it stays until it is deleted."""
        self._orphans = [record for record in self._orphans if record.queue != node.id]

    def tick(self) -> None:
        """Delete that for which nobody came back in time."""
        now_us = self._kernel.steady.now_us
        if self._orphans_until_us == 0:
            self._orphans_until_us = now_us + self._reconnect_timeout_us
        if now_us < self._orphans_until_us or not self._orphans:
            return
        self._orphans_until_us = now_us + self._reconnect_timeout_us
        in_use = []
        for record in self._orphans:
            node = self._directory.node(record.queue)
            if isinstance(node, Queue) and node.consumers:
                in_use.append(record)
            elif node is not None:
                self._deletion.delete(node)
        self._orphans = in_use
