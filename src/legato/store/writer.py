"""Group commit: a thread that commits one batch at a time while the next one is being gathered."""

import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from legato.errors import StoreError
from legato.store.base import Batch, Committer

Done = Callable[[Batch, int | None, StoreError | None], None]


class GroupWriter:
    """Commits batches in a thread of its own, one in flight.

    Args:
        store: where to.
        on_done: called in the writer's thread after each batch, with the position of its log record, or with
            None and why it was not committed. It should only hand the news on; what it raises ends nothing.
    """

    def __init__(self, store: Committer, on_done: Done) -> None:
        self._store = store
        self._on_done = on_done
        self._batches: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._in_flight = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="legato-writer", daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """True if a batch may be submitted. Already true when `on_done` is called."""
        return not (self._in_flight or self._closed)

    def submit(self, batch: Batch) -> None:
        """Commit `batch`; `on_done` will tell.

        Raises:
            StoreError: a batch is in flight, or the writer is closed.
        """
        if not self.idle:
            raise StoreError("the writer is closed" if self._closed else "a batch is in flight already")
        self._in_flight = True
        self._batches.put(batch)

    def close(self) -> None:
        """Wait for the batch in flight and its `on_done`, then end the thread. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            self._batches.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            position, error = self._commit(batch)
            self._in_flight = False
            try:
                self._on_done(batch, position, error)
            except Exception:
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), self._thread)))

    def _next(self) -> Batch | None:
        """The next batch; until there is one, room is made for large ones."""
        with suppress(StoreError):
            while self._batches.empty() and self._store.make_room():
                pass
        return self._batches.get()

    def _commit(self, batch: Batch) -> tuple[int | None, StoreError | None]:
        try:
            return self._store.commit(batch), None
        except StoreError as error:
            return None, error
        except BaseException as error:
            failure = StoreError(f"the store failed in an unforeseen way: {error!r}")
            failure.__cause__ = error
            return None, failure
