"""Commits of a primary with replicas: a batch is applied, appended to the log, and committed once that acknowledged it.

What is confirmed is therefore on a majority of the log's disks and in this broker's store (R1), nothing is appended
that this store could not apply (R6), and the log decides what became of an append in doubt (R5).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from legato.clock import elapsed_s
from legato.core.records import Batch, Meta
from legato.errors import CommitTooLargeError, FencedError, LogError, StoreError
from legato.quoting import sentence
from legato.replication.log import Claim, Position
from legato.replication.replica import Replica, refusal
from legato.sizes import sizes_apart
from legato.store.commit_records import Beat, encode_beat, encode_commit

log = logging.getLogger("legato.replication")

BEATS_PER_LEASE = 3
SAID_EACH_S = 5.0
"""So often a primary that always commits appends a beat, too: a backup that has come meanwhile finds it by that."""


class ReplicatedCommits:
    """What commits in one epoch of a primary; beats when nothing is to be committed, so that its lease goes on.

    Args:
        replica: of this broker; its store is up to date.
        claim: on the log, which began with this epoch's record.
        lease_s: after the sending of the last acknowledged record the primary may answer for so long.
        say: makes a beat of the epoch, the number of commits and why the primary leaves: what others are to know.
        record_bytes_max: the size of the largest record that the log takes.
    """

    def __init__(
        self,
        replica: Replica,
        claim: Claim,
        lease_s: float,
        say: Callable[[int, int, str], Beat],
        record_bytes_max: int,
    ) -> None:
        self.record_bytes_max = record_bytes_max
        self.epoch = replica.epoch
        self._replica = replica
        self._claim = claim
        self._lease_s = lease_s
        self._say = say
        self._turn = threading.Lock()
        """Held by whoever appends."""
        self._ended = threading.Event()
        self._failure: StoreError | None = None
        self._beats = threading.Thread(target=self._beat, name="legato-beats", daemon=True)
        self._beats.start()

    @property
    def lost(self) -> bool:
        """Whether another broker has claimed the log, or this one must not append any more."""
        return self._failure is not None

    def sure_for_s(self) -> float:
        """For how long the primary may answer; not positive if it may not, until an append is acknowledged."""
        return self._claim.held_s + self._lease_s - elapsed_s()

    def begin_epoch(self, broker: str, now_us: int) -> Meta:
        """The state in which the epoch began, with the claim."""
        del broker, now_us
        return self._replica.store.meta()

    def commit(self, batch: Batch) -> int:
        """See `Store.commit`: returns once the batch is in the log and in the store.

        Raises:
            FencedError: another broker has claimed the log.
            CommitTooLargeError, StoreFullError: the log takes no such record, or this store has no room: nothing of the
                batch was appended.
            StoreError: it is not known whether the batch is in the log, or it is, and not in this store. This broker
                must stop serving.
        """
        with self._turn:
            self._refuse_ended()
            store = self._replica.store
            if batch.epoch != self.epoch:
                raise FencedError(f"epoch {batch.epoch} is over: the log is in epoch {self.epoch}")
            record, data = encode_commit(batch, self._replica.commits + 1)
            if len(data) > self.record_bytes_max:
                told, most = sizes_apart(len(data), self.record_bytes_max)
                raise CommitTooLargeError(
                    f"what was sent at once makes a commit of {told}, and the replicated log takes {most}: "
                    "send less at once, in smaller transactions or smaller batches"
                )
            store.prepare(record)
            try:
                appended = self._append(data)
            except BaseException:
                store.abandon()
                raise
            try:
                self._replica.finish(record, appended)
            except StoreError as error:
                self._failure = refusal(error)
                raise self._failure from error
            return record.position

    @property
    def jobs(self) -> None:
        """See `Store.jobs`: any thread commits, one at a time."""
        return None

    def checkpoint(self) -> None:
        """See `Store.checkpoint`: each commit is one."""

    def make_room(self) -> bool:
        """See `Store.make_room`."""
        return self._replica.store.make_room()

    def give_up(self) -> None:
        """Wait for the log no longer; from any thread."""
        self._ended.set()
        self._claim.close()

    def end(self, left: str) -> None:
        """Append why this primary leaves, unless that is not possible within a lease, and append no more."""
        self._ended.set()
        if self._beats is not threading.current_thread():
            self._beats.join(self._lease_s)
        if left and self._turn.acquire(timeout=self._lease_s):
            timer = threading.Timer(self._lease_s, self._claim.close)
            timer.start()
            try:
                if self._failure is None:
                    self._append(encode_beat(self._say(self.epoch, self._replica.commits, left)))
            except (StoreError, LogError) as error:
                log.warning("! the log does not say that this broker has left: %s", sentence(error))
            finally:
                timer.cancel()
                self._turn.release()
        self._claim.close()

    def _append(self, data: bytes) -> Position:
        try:
            position = self._claim.append(data).position
        except FencedError as error:
            self._failure = error
            raise
        except LogError as error:
            self._failure = StoreError(f"the replicated log: {error}")
            raise self._failure from error
        return position

    def _refuse_ended(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._ended.is_set():
            raise StoreError("this broker appends no more to the replicated log")

    def _beat(self) -> None:
        """Append a beat whenever nothing else was appended for a part of the lease, and now and then anyway."""
        pause_s = self._lease_s / BEATS_PER_LEASE
        said_s = elapsed_s()
        is_told = False
        while not self._ended.wait(
            max(
                min(self._claim.held_s + pause_s, said_s + SAID_EACH_S) - elapsed_s(),
                min(pause_s, SAID_EACH_S) / 10,
            )
        ):
            now_s = elapsed_s()
            is_unsaid = now_s - said_s >= SAID_EACH_S
            if not is_unsaid and now_s - self._claim.held_s < pause_s:
                continue  # Somebody has appended.
            if not (self._turn.acquire(timeout=pause_s) if is_unsaid else self._turn.acquire(blocking=False)):
                continue  # Somebody is at it.
            try:
                appended = self._append(encode_beat(self._say(self.epoch, self._replica.commits, "")))
                said_s = elapsed_s()
                if self._ended.is_set():
                    return  # The replica follows the log by now, and finds the beat there.
                try:
                    self._replica.passed(appended)
                except StoreError as error:
                    # The beat is in the log, by which the lease goes; the next one has the store hear of it.
                    if not is_told:
                        log.warning("! the store does not take note of how far the log is: %s", sentence(error))
                    is_told = True
            except (StoreError, LogError) as error:
                # Who commits next hears of it, and so does the loop when it looks at the lease.
                log.debug("no beat: %s", sentence(error))
                return
            finally:
                self._turn.release()
