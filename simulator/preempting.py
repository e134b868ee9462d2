"""Threads that take turns in the middle: an application's runs while the I/O thread works on what both of them use."""

from __future__ import annotations

from collections import deque
from types import ModuleType
from typing import Any, ClassVar

from legato.client.links import deliveries, receiver_end, sender_end, session_state
from simulator.clients import Task
from simulator.kernel import Kernel, ProcessDiedError

SHARED = (deliveries, receiver_end, sender_end, session_state)
"""Modules whose deques an application's thread and the I/O thread share."""
CHANCE = 0.25


class SharedDeque(deque[Any]):
    """A deque from which the I/O thread takes nothing without the application's threads having had a chance to run."""

    kernel: ClassVar[Kernel]

    def pop(self) -> Any:  # type: ignore[override]
        """See `deque.pop`."""
        self._give_way()
        return super().pop()

    def popleft(self) -> Any:
        """See `deque.popleft`."""
        self._give_way()
        return super().popleft()

    def _give_way(self) -> None:
        kernel = self.kernel
        if Task.current is None and kernel.process is not None and kernel.random.random() < CHANCE:
            Task.run_one_of(kernel.process)
            if not kernel.process.alive:
                raise ProcessDiedError


def preempting(kernel: Kernel) -> list[tuple[ModuleType, str, Any]]:
    """What is replaced for that."""
    SharedDeque.kernel = kernel
    return [(module, "deque", SharedDeque) for module in SHARED]
