"""Store maintenance: free-space checks, log trimming and pruning."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from legato import limits
from legato.clock import Clock
from legato.errors import StoreError
from legato.server.config.configuration import StoreSection
from legato.server.storage.long_readers import ReaderWatch
from legato.sizes import size, sizes_apart
from legato.store.base import Store

log = logging.getLogger("legato.upkeep")

_PRUNE_STEPS = 100
_PRUNE_PAUSE_S = 0.005
_TRIM_STEPS = 100
"""With `limits.LOG_TRIM_RECORDS` each that is more than any broker commits until the upkeep comes again."""
_LOG_SMALL_SHARE = 0.9
"""Of the log's bound: what is forgotten each time brings the log just below that, and the next commit above it."""


class Upkeep:
    """Maintains one store; slow work runs off the loop.

    Args:
        follows: it is the store of a backup, which writes no ledger.

    Attributes:
        full: why producers are refused now; empty while there is room.
        exported_through: up to which position of the log a ledger has taken the facts over.
        readers: who reads for so long that the store's file grows.
        sweep: removes what was left beside the store and is past its time.
    """

    def __init__(self, store: Store, section: StoreSection, clock: Clock, *, follows: bool = False) -> None:
        self.full = ""
        self.exported_through: Callable[[], int] = lambda: 0
        self.sweep: Callable[[], object] = lambda: None
        self.readers = ReaderWatch()
        self._store = store
        self._section = section
        self._clock = clock
        self._follows = follows
        self._loses_facts = False
        """And this was told."""
        self._forgetting: asyncio.Future[None] | None = None
        self._pruning = False
        self.check_room()

    def run(self, *, prune: bool) -> None:
        """Check room, and let the store forget what is past its time, unless it is still at that."""
        self.check_room()
        if self._forgetting is None or self._forgetting.done():
            self._forgetting = asyncio.get_running_loop().run_in_executor(None, self.forget, prune)

    def check_room(self) -> None:
        """Find out whether there is room."""
        try:
            usage = self._store.usage()
        except FileNotFoundError:
            return  # The store's directory was removed: who looks after the lock finds that, and the reign ends.
        reserve = self._section.free_disk_reserve_bytes
        if not usage.reserved:
            full = (
                "the disk is full: what room the store has left is for those who consume; free some of the disk, or "
                "move the store to a larger one"
            )
        elif (free := usage.free_disk_bytes + usage.file_room_bytes) < reserve:
            left, wanted = sizes_apart(free, reserve)
            full = (
                f"only {left} of the disk are free, the room in the store's file included; "
                f"store.free_disk_reserve_bytes is {wanted}"
            )
        elif usage.used_bytes > usage.capacity_bytes * limits.STORE_FULL_SHARE:
            full = f"store.map_bytes ({size(usage.capacity_bytes)}) is used up to 95 %; enlarge it or empty some queues"
        else:
            full = ""
        if full and not self.full:
            log.error("! producers are refused: %s", full)
        elif self.full and not full:
            log.info("= producers are welcome again")
        self.full = full

    def forget(self, prune: bool) -> None:
        """Let the store forget what is past its time. For any thread; errors are logged."""
        try:
            self._store.keep_reserve()
            self.readers.look(self._store.check_readers(), self._clock.now_us(), self._clock.monotonic_ms())
            if prune:
                self.sweep()
            if prune or self._pruning:
                self._pruning = self._prune()
            self._trim()
        except (StoreError, OSError) as error:
            log.warning("! upkeep of the store: %s", error)

    def _prune(self) -> bool:
        """A number of steps; between them the broker commits. Returns whether there is more to do."""
        for _ in range(_PRUNE_STEPS):
            if self._store.prune(self._clock.now_us()) == 0:
                return False
            time.sleep(_PRUNE_PAUSE_S)
        return True

    def _trim(self) -> None:
        """Forget of the log what is not needed: more than is committed until the next time, or its bound would be none.

        In steps, between which the broker commits.
        """
        through = self._through(*self._store.log_range())
        for _ in range(_TRIM_STEPS):
            first, _ = self._store.log_range()
            if through < first or self._store.trim_log(through, limits.LOG_TRIM_RECORDS) < limits.LOG_TRIM_RECORDS:
                return
            time.sleep(_PRUNE_PAUSE_S)

    def _through(self, first: int, last: int) -> int:
        """Up to which position the log is not needed: what the ledger has, or what exceeds the log's bound."""
        log_bytes_max = min(self._section.log_bytes, int(self._section.map_bytes * limits.LOG_SHARE))
        excess = self._store.log_bytes() - log_bytes_max
        # By the ledger's last commit the next exporter knows whether the ledger is of this store.
        exported = self.exported_through()
        through = max(exported - 1, 0)
        if excess > 0:
            records = last - first + 1
            bound = first + records * excess // (excess + log_bytes_max)
            if bound > exported and not self._loses_facts:
                self._loses_facts = True
                self._tell_loss(log_bytes_max, bound)
            through = max(through, bound)
        if exported >= last or excess < (_LOG_SMALL_SHARE - 1) * log_bytes_max:
            self._loses_facts = False
        return min(through, last)

    def _tell_loss(self, log_bytes_max: int, bound: int) -> None:
        """Say it once, not at each look for as long as it lasts."""
        if self._follows:
            log.info(
                "= the log of facts exceeds %d bytes: those up to %d, and from now on the oldest, go here; the ledger "
                "of this broker will lack them if it becomes the primary",
                log_bytes_max,
                bound,
            )
        else:
            log.warning(
                "! the log of facts exceeds %d bytes: those up to %d, and from now on the oldest, go before a ledger "
                "has them",
                log_bytes_max,
                bound,
            )
