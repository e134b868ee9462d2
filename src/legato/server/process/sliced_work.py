"""Long work in short steps, a few in each turn of the loop, so that other work goes on."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator

from legato.clock import Clock
from legato.errors import StoreError
from legato.quoting import sentence

log = logging.getLogger("legato.spreading")

SLICE_MS = 10
"""Of a turn of the loop, what may go to the work that waits."""


class Spreading:
    """Long works in round-robin order.

    Args:
        may_go_on: whether anything may still be done.
        worked: is called after steps of a later turn, to set in motion what they led to.
        slice_ms: how much of a turn of the loop the work may take.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        may_go_on: Callable[[], bool],
        worked: Callable[[], None],
        slice_ms: int = SLICE_MS,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._may_go_on = may_go_on
        self._worked = worked
        self._slice_ms = slice_ms
        self._works: deque[tuple[Iterator[None], Callable[[str], None]]] = deque()
        self._planned = False

    def add(self, work: Iterator[None], failed: Callable[[str], None] = lambda why: None) -> None:
        """Do what `work` does, beginning with the next turn; should it raise an error, `failed` is told of it."""
        self._works.append((work, failed))
        self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._planned = False
        if not self._may_go_on():
            self._works.clear()
            return
        work, failed = self._works.popleft()
        if not self._is_done(work, failed):
            self._works.append((work, failed))
        if self._works:
            self._plan()
        self._worked()

    def _is_done(self, work: Iterator[None], failed: Callable[[str], None]) -> bool:
        deadline_ms = self._clock.monotonic_ms() + self._slice_ms
        try:
            return all(self._clock.monotonic_ms() < deadline_ms for _ in work)
        except StoreError as error:
            log.error("! what was asked for was not done: %s", sentence(error))
            failed(f"The broker cannot do this now: {sentence(error)}.")
            return True
        except Exception:
            log.exception("! what was asked for was not done")
            failed("The broker could not do what was asked for; its log says why.")
            return True
