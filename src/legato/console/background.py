"""Work in the background: so much of it at the same time, so much that waits, and no more, whoever asks for it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from legato.quoting import quoted

log = logging.getLogger("legato.console")


class Background:
    """Runs work in a few threads, which are there while there is any.

    Args:
        name: of the threads.
        threads_max: so much is done at the same time.
        waiting_max: so much may wait for that.
    """

    def __init__(self, name: str, threads_max: int, waiting_max: int) -> None:
        self._name = name
        self._threads_max, self._waiting_max = threads_max, waiting_max
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], None], threading.Event]] = deque()
        self._threads = 0

    def begin(self, work: Callable[[], None]) -> threading.Event | None:
        """Have some work done. An error that it raises is in the log alone.

        Returns:
            What is set when it is done; None if too much waits already, and it is not done.
        """
        done = threading.Event()
        with self._lock:
            if len(self._waiting) >= self._waiting_max:
                return None
            self._waiting.append((work, done))
            if self._threads < self._threads_max:
                self._threads += 1
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return done

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                work, done = self._waiting.popleft()
            try:
                work()
            except Exception:
                log.exception("! work of the thread %s failed", quoted(self._name))
            finally:
                done.set()
