"""A thread that does one job after another, and between them what is due.

LMDB's lock of writers belongs to a thread: who began a transaction has to end it. A store whose transaction stays open
has such a thread, and all that changes the store is a job of it.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from legato.errors import StoreError

T = TypeVar("T")

Job = Callable[[], object]


class JobThread:
    """A thread for jobs.

    Args:
        name: of the thread.
        between: is called when no job waits; returns after how many seconds it wants to be called again if no job
            comes, None if never. What it raises ends nothing.
    """

    def __init__(self, name: str, between: Callable[[], float | None] = lambda: None) -> None:
        self._between = between
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller is a job of it."""
        return threading.current_thread() is self._thread

    def submit(self, job: Job) -> None:
        """Do `job` after those submitted before; what it raises is told as that of any thread.

        Raises:
            StoreError: it is closed.
        """
        with self._closing:
            if self._closed:
                raise StoreError("the store is closed")
            self._jobs.put(job)

    def run(self, job: Callable[[], T]) -> T:
        """Result of `job`, which is done after those submitted before, or at once if the caller is a job itself.

        Raises:
            StoreError: it is closed.
        """
        if self.is_current:
            return job()
        result: Future[T] = Future()

        def do() -> None:
            try:
                result.set_result(job())
            except BaseException as error:
                result.set_exception(error)

        self.submit(do)
        return result.result()

    def close(self) -> None:
        """Wait for all jobs, unless the caller is one, and end the thread. Closing again does nothing."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        if not self.is_current:
            self._thread.join()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            self._do(job)

    def _next(self) -> Job | None:
        while True:
            timeout_s = None
            if self._jobs.empty():
                timeout_s = self._do(self._between)
            try:
                return self._jobs.get(timeout=timeout_s)
            except queue.Empty:
                pass

    def _do(self, job: Callable[[], T]) -> T | None:
        try:
            return job()
        except Exception:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), self._thread)))
            return None
