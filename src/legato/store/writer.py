"""Group commit: a thread commits one batch at a time while the next one is being gathered."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from legato.errors import StoreError
from legato.store.base import Batch, Committer
from legato.store.jobs import JobThread

Done = Callable[[Batch, int | None, StoreError | None], None]


class GroupWriter:
    """Commits batches in a thread, one in flight: in the store's, or in one of its own if the store has none.

    Args:
        store: where to.
        on_done: called in the writer's thread after each batch, with the position of its log record, or with
            None and why it was not committed. It should only hand the news on; what it raises ends nothing.
    """

    def __init__(self, store: Committer, on_done: Done) -> None:
        self._store = store
        self._on_done = on_done
        self._in_flight = False
        self._closed = False
        self._is_shared = store.jobs is not None
        self._jobs = store.jobs or JobThread("legato-writer", self._make_room)

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
        self._jobs.submit(partial(self._commit_and_tell, batch))

    def checkpoint(self, then: Callable[[StoreError | None], object]) -> None:
        """Have everything that was committed where other processes see it.

        Args:
            then: called in the writer's thread, with why that cannot be, or with None.

        Raises:
            StoreError: the writer is closed.
        """
        if self._closed:
            raise StoreError("the writer is closed")
        self._jobs.submit(lambda: then(self._checkpoint()))

    def close(self) -> None:
        """Wait for the batch in flight and its `on_done`, then end the thread, if it is its own.

        Other processes see all that was committed. Closing again does nothing.
        """
        was_closed, self._closed = self._closed, True
        if not self._is_shared:
            self._jobs.close()
        elif not was_closed:
            self._jobs.run(self._checkpoint)

    def _commit_and_tell(self, batch: Batch) -> None:
        position, error = self._commit(batch)
        self._in_flight = False
        self._on_done(batch, position, error)

    def _checkpoint(self) -> StoreError | None:
        try:
            self._store.checkpoint()
        except StoreError as error:
            return error
        return None

    def _make_room(self) -> float | None:
        """While there is no batch, room is made for large ones."""
        with suppress(StoreError):
            return 0.0 if self._store.make_room() else None
        return None

    def _commit(self, batch: Batch) -> tuple[int | None, StoreError | None]:
        try:
            return self._store.commit(batch), None
        except StoreError as error:
            return None, error
        except BaseException as error:
            failure = StoreError(f"the store failed in an unforeseen way: {error!r}")
            failure.__cause__ = error
            return None, failure
