"""Watchdog: ends a primary whose event loop hangs, so that its lock is freed for the backup.

Two things watch, neither of them run by the loop. A thread counts how often it woke while the loop did not turn: that
finds a loop that waits. A timer of the system counts the processor time that the process has used since the loop turned
last: that finds a loop that is busy in C and lets no other thread run. Both count time in which this process ran, so
that one which was stopped (SIGSTOP, a machine that slept) has its chance to turn first.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable

log = logging.getLogger("legato.watchdog")

LOOKS = 20
"""So often the thread looks before it gives the loop up."""
LAST_WORDS_S = 2.0
"""Where the log goes may not take anything any more: then the process ends without it."""
EXIT_CODE = 70
"""EX_SOFTWARE."""


class Watchdog:
    """Watches one loop, from `start` to `stop`; both are called in it.

    Args:
        limit_s: the process ends when the loop did not turn for so long; 0: never.
        end: ends it; for tests.
    """

    def __init__(self, limit_s: float, end: Callable[[], None] = lambda: os._exit(EXIT_CODE)) -> None:
        self._limit_s = limit_s
        self._end = end
        self._interval_s = limit_s / LOOKS
        self._turns = 0
        self._is_timed = False
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Watch from now on."""
        if not self._limit_s or self._timer is not None:
            return
        self._stopped = threading.Event()
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGPROF"):
            # At the signal the stacks are written without any Python code, and then it does what it does: it kills.
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            with contextlib.suppress(OSError, ValueError, AttributeError):
                faulthandler.register(signal.SIGPROF, file=sys.stderr, all_threads=True, chain=True)
            self._is_timed = True
        self._turn()
        threading.Thread(target=self._watch, args=(self._stopped,), name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        self._stopped.set()
        if self._is_timed:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _turn(self) -> None:
        """The loop turns."""
        self._turns += 1
        if self._is_timed:
            signal.setitimer(signal.ITIMER_PROF, self._limit_s)
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._turn)

    def _watch(self, stopped: threading.Event) -> None:
        seen, silent = 0, 0
        while not stopped.wait(self._interval_s):
            turns = self._turns
            silent = 0 if turns != seen else silent + 1
            seen = turns
            if silent > LOOKS:
                self._give_up()
                return

    def _give_up(self) -> None:
        speaking = threading.Thread(target=self._say, daemon=True)
        speaking.start()
        speaking.join(LAST_WORDS_S)
        self._end()

    def _say(self) -> None:
        log.critical(
            "! the loop has not turned for %g s: this process ends, so that a backup can serve. Where its threads are:",
            self._limit_s,
        )
        with contextlib.suppress(OSError, ValueError, AttributeError):
            faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
