"""A broker that records the processor time of each callback: `python -m tests.support.measured_broker serve ...`.

`LEGATO_MEASURED` names a file; each callback that took more than `NOTED_S` is a line of it: seconds, and which it was.
Processor time of the loop's thread says what a peer's event costs whatever else the machine is doing.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from asyncio import events
from pathlib import Path
from typing import Any

from tests.support.server import Server

VARIABLE = "LEGATO_MEASURED"
NOTED_S = 0.005
TURN_S_MAX = 0.05
"""The promise: what one event of a peer may cost."""
ALLOWANCE = 10
"""A machine with all its processors in use is slower than alone by so much; a bomb costs a hundred promises."""


class MeasuredServer(Server):
    """A server whose turns are measured."""

    def __init__(self, store: Path, *flags: str, port: int = 0) -> None:
        self.noted = store.parent / "turns.txt"
        environment = {VARIABLE: str(self.noted)}
        super().__init__(store, *flags, port=port, environment=environment, program="tests.support.measured_broker")

    def slow_turns(self) -> list[tuple[float, str]]:
        """Seconds and names of the callbacks that took longest, the longest first."""
        lines = self.noted.read_text().splitlines() if self.noted.exists() else []
        return sorted(((float(line.split()[0]), line) for line in lines), reverse=True)[:10]

    def check(self) -> None:
        """No turn took longer than a peer's event may."""
        slow = [turn for turn in self.slow_turns() if turn[0] > TURN_S_MAX * ALLOWANCE]
        assert not slow, f"turns of the loop took too long: {slow}"


def measure(path: Path) -> None:
    """From now on, note the callbacks of this process's loops."""
    handle: Any = events.Handle
    run = handle._run
    file = path.open("a", buffering=1)
    clock = time.thread_time

    collecting = 0.0

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal collecting
        if phase == "start":
            collecting = clock()
        elif (spent := clock() - collecting) >= NOTED_S:
            file.write(f"0 collecting garbage of generation {info['generation']} took {spent:.4f} of the next\n")

    gc.callbacks.append(collected)

    def measured(self: Any) -> None:
        callback = self._callback
        began = clock()
        run(self)
        spent = clock() - began
        if spent >= NOTED_S:
            file.write(f"{spent:.4f} {getattr(callback, '__qualname__', callback)}\n")

    handle._run = measured


def main() -> None:
    """The command line of `legato`, measured."""
    import uvloop

    from legato.cli.main import main

    measure(Path(os.environ[VARIABLE]))
    # uvloop's handles are not Python's.
    uvloop.run = asyncio.run
    main()


if __name__ == "__main__":
    main()
