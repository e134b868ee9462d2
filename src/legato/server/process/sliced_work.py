"""Long work in short steps, a few in each turn of the loop, so that other work goes on."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from legato.clock import Clock
from legato.errors import StoreError
from legato.quoting import sentence

log = logging.getLogger("legato.spreading")

SLICE_MS = 10
"""Of a turn of the loop, what may go to the work that waits."""


class _Work(NamedTuple):
    """A work in steps."""

    steps: Iterator[None]
    failed: Callable[[str], None]
    is_wanted: Callable[[], bool]


class Spreading:
    """Long works in round-robin order; short ones are done as many in a turn as fit into the slice.

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
        self._works: deque[_Work] = deque()
        self._planned = False

    def add(
        self,
        work: Iterator[None],
        failed: Callable[[str], None] = lambda why: None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Do what `work` does, beginning with the next turn.

        Args:
            failed: is told of an error, should the work raise one.
            is_wanted: whether anybody waits for it; the rest of it is not done when nobody does.
        """
        self._works.append(_Work(work, failed, is_wanted))
        self._plan()

    def begin(self, work: Iterator[None]) -> None:
        """Do what fits into a slice of this turn, and the rest in later ones."""
        begun = _Work(work, lambda why: None, lambda: True)
        if not self._is_done(begun, self._clock.monotonic_ms() + self._slice_ms):
            self._works.append(begun)
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
        deadline_ms = self._clock.monotonic_ms() + self._slice_ms
        while self._works:
            work = self._works.popleft()
            if work.is_wanted() and not self._is_done(work, deadline_ms):
                self._works.append(work)
            if self._clock.monotonic_ms() >= deadline_ms:
                break
        if self._works:
            self._plan()
        self._worked()

    def _is_done(self, work: _Work, deadline_ms: int) -> bool:
        try:
            return all(self._clock.monotonic_ms() < deadline_ms for _ in work.steps)
        except StoreError as error:
            log.error("! what was asked for was not done: %s", sentence(error))
            work.failed(f"The broker cannot do this now: {sentence(error)}.")
            return True
        except Exception:
            log.exception("! what was asked for was not done")
            work.failed("The broker could not do what was asked for; its log says why.")
            return True
