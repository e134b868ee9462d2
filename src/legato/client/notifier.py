"""The thread that calls the application's listeners of a connection: completions, exceptions, failovers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

log = logging.getLogger("legato.client")


class Notifier:
    """Calls in order, one at a time: a slow listener delays listeners only. Its thread starts when first needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` soon. Only the I/O thread calls this."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._calls.put(function)

    def stop(self) -> None:
        """Finish what was asked for, then end."""
        thread = self._thread
        if thread is not None:
            self._calls.put(None)
            if thread is not threading.current_thread():
                thread.join()

    @property
    def is_current_thread(self) -> bool:
        """Whether a listener is asking."""
        return self._thread is threading.current_thread()

    def _run(self) -> None:
        while (function := self._calls.get()) is not None:
            try:
                function()
            except Exception:
                log.exception("a listener of the application raised")
