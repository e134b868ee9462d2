"""Virtual time: one event queue for all processes, ordered by the seed alone."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

START_US = 1_700_000_000_000_000


class ProcessDiedError(BaseException):
    """A process died while one of its threads was in the midst of something: that thread is unwound."""


class Process:
    """Something that can be killed, and stopped for a while: a broker's or a client's operating system process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.held_up: list[Event] = []
        """What would have happened while it was stopped."""

    def __repr__(self) -> str:
        return self.name


class Event:
    """Something that will happen at its time, unless it is cancelled or its process is dead."""

    __slots__ = ("arguments", "call", "cancelled", "process", "time_us")

    def __init__(
        self, time_us: int, process: Process | None, call: Callable[..., object], arguments: tuple[Any, ...]
    ) -> None:
        self.time_us = time_us
        self.process = process
        self.call = call
        self.arguments = arguments
        self.cancelled = False

    def cancel(self) -> None:
        """It will not happen. May be called again."""
        self.cancelled = True


class Kernel:
    """Runs events; everything that is left to chance draws from `random`.

    Attributes:
        process: whose event is being run; events asked for meanwhile are its own too.
        steps: events run so far.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_us = START_US
        self.process: Process | None = None
        self.steps = 0
        self._queue: list[tuple[int, int, Event]] = []
        self._asked = 0

    def after(self, delay_us: int, call: Callable[..., object], *arguments: Any) -> Event:
        """Have `call` called after `delay_us`, by the process that asks."""
        return self.after_for(self.process, delay_us, call, *arguments)

    def after_for(self, process: Process | None, delay_us: int, call: Callable[..., object], *arguments: Any) -> Event:
        """Have `call` called after `delay_us` by `process`, by nobody's if None."""
        time_us = self.now_us + delay_us if delay_us > 0 else self.now_us
        event = Event(time_us, process, call, arguments)
        self._asked += 1
        heappush(self._queue, (time_us, self._asked, event))
        return event

    def resume(self, process: Process) -> None:
        """A stopped process goes on: what was held up happens now, in its order."""
        process.paused = False
        held_up, process.held_up = process.held_up, []
        for event in held_up:
            # The same event: who asked for it may still cancel it.
            event.time_us = self.now_us
            self._asked += 1
            heappush(self._queue, (event.time_us, self._asked, event))

    def step(self) -> bool:
        """Run the next event; whether there was one."""
        queue = self._queue
        while queue:
            time_us, _, event = heappop(queue)
            if event.cancelled:
                continue
            process = event.process
            if process is not None:
                if not process.alive:
                    continue
                if process.paused:
                    process.held_up.append(event)
                    continue
            self.now_us = time_us
            self.steps += 1
            self.process = process
            event.call(*event.arguments)
            self.process = None
            return True
        return False

    def run_as(self, process: Process | None, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call `call` as if `process` did it."""
        caller, self.process = self.process, process
        try:
            return call(*arguments)
        finally:
            self.process = caller

    # -- chance --------------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return self.random.random() < probability

    def between_us(self, low_us: int, high_us: int) -> int:
        """A duration between the two."""
        return low_us + int(self.random.random() * (high_us - low_us + 1))
