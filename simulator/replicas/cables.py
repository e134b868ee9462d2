"""The network between brokers' machines and the log's servers: ordered, slow at times, cut in one direction or both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulator.kernel import Kernel, Process

LATENCY_US = (50, 3_000)
SLOW_LATENCY_US = (20_000, 400_000)
STALL_US = (500_000, 4_000_000)
LAG_US = (100_000, 3_000_000)


class Cables:
    """All connections between nodes, which are known by name.

    Attributes:
        calm: nothing is late or lost by itself any more.
        cut: from whom to whom nothing comes.
        lagging: nodes to which everything comes late.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.calm = False
        self.cut: set[tuple[str, str]] = set()
        self.lagging: set[str] = set()
        self._kernel = kernel
        self._next_us: dict[tuple[str, str], int] = {}

    def send(
        self, source: str, target: str, process: Process | None, call: Callable[..., object], *arguments: Any
    ) -> None:
        """Have `call` called by `process` when what `source` sends arrives at `target`, if it does."""
        if (source, target) in self.cut:
            return
        kernel = self._kernel
        bounds = LATENCY_US
        if not self.calm:
            chance = kernel.random.random()
            if chance < 0.002:
                return
            if chance < 0.02:
                bounds = SLOW_LATENCY_US
            elif chance < 0.021:
                bounds = STALL_US
            if target in self.lagging:
                bounds = LAG_US
        link = (source, target)
        at_us = max(kernel.now_us + kernel.between_us(*bounds), self._next_us.get(link, 0))
        self._next_us[link] = at_us + 1
        kernel.after_for(None, at_us - kernel.now_us, self._arrive, link, process, call, arguments)

    def _arrive(
        self, link: tuple[str, str], process: Process | None, call: Callable[..., object], arguments: tuple[Any, ...]
    ) -> None:
        if link not in self.cut:
            self._kernel.after_for(process, 0, call, *arguments)
