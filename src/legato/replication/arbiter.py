"""The arbiter of a group: who has claimed the replicated log is the primary.

A thread keeps the replica up to date while another broker is the primary. If nothing has been heard of that one for
a lease, neither in the log nor over its heartbeat connection, the thread claims the log for this broker, provided that
the broker waits for that. A log that stands still while heartbeats come has lost its leader or its quorum: that is no
reason to take over.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from legato import __version__
from legato.clock import elapsed_s
from legato.errors import (
    FencedError,
    JMSError,
    JMSSecurityError,
    LegatoError,
    LogDamagedError,
    LogDivergedError,
    LogError,
    LogTrimmedError,
    LogUnavailableError,
    LogUnsafeError,
    StoreError,
    StoreFullError,
)
from legato.ha.lock import Holder
from legato.quoting import quoted, sentence
from legato.replication.beginning import Beginning
from legato.replication.commits import ReplicatedCommits
from legato.replication.log import BEGINNING, SILENCE_S, Following, LogHealth, ReplicatedLog
from legato.replication.log_watch import LogWatch
from legato.replication.register import Entry, Register
from legato.replication.registration import Registration
from legato.replication.replica import Replica
from legato.replication.replica_status import Activity, LogServerStatus, ReplicaStatus
from legato.replication.versions import EpochVersions
from legato.replication.waiting import Waiting
from legato.sizes import counted
from legato.store.commit_records import AnyRecord, Beat, CommitRecord, EpochRecord, encode_epoch
from legato.store.environment import DATA_NAME
from legato.store.lmdb import LmdbStore

log = logging.getLogger("legato.replication")

REMOVED = "start this broker again, and it takes its content from the log, or from a copy of another broker's store"
_REFUSED_CODES = ("401", "403")
"""Of a management request, as HTTP's status codes."""
NOBODY = -1
"""In place of the process of a primary on another machine."""
STARTED = "start"
"""Why there is no predecessor: the log has just begun."""
TAKE_S = 0.02
LOOKED_AFTER_LEASES = 0.4
"""After so long a silence, and before it claims, a backup asks for what the servers did not send: the one that sent it
may be lost with the primary, and a claim behind less than all there is is refused. A primary that lives is not silent
so long."""
LEASE_MARGIN = 1.05
"""Clocks of two machines may differ in rate by so much."""
CLAIM_PATIENCE_S = 2.0
PAUSE_S = 0.2
"""Between two tries when the log cannot be used, or the store has no room."""
SEED_PAUSE_S = 5.0
"""Before the brokers of the group are asked again for a copy of their store, of which they had none to give."""
IDENTITY_BYTES = 16
LOG_BYTES_MAX = 1 << 30
FOLLOWING, LOOKING, APPENDING = "following", "looking", "appending"
"""Parts of a replica that may wait: who applies what comes, who looks at the log's servers, who appends."""
UNACKNOWLEDGED = "the log acknowledges nothing now: an election, no quorum, or a slow network"
SEED = "copy the store of another broker (legato store backup there, legato replica seed here)"


class LogArbiter:
    """Decides by a replicated log who is the primary; an `Arbiter`.

    Args:
        open_log: opens the log of the group; says soon that its servers do not answer, and is called again.
        store: this broker's own; closed with this.
        listen: where this broker serves.
        lease_s: for so long a primary may answer after its last acknowledged record was sent.
        now_us: the clock of the machine.
        beside: the log's server on this broker's machine, which is not to lead while this broker is the primary.
        log_bytes_max: the primary has the log forget what is beyond; who comes back later is copied from another.
        stop_opening: ends the tries of `open_log`; called by `close`.
        seed: closes the store that the log does not reach back to, and gives one that it does; None if that is not to
            be had.
        directory: of the store; None if it has none.
        register: of the group's replicas; None if there is none.
        beginning: whether an empty log may begin with this store; None if it may.
    """

    def __init__(
        self,
        open_log: Callable[[], ReplicatedLog],
        store: LmdbStore,
        listen: str,
        lease_s: float,
        now_us: Callable[[], int],
        *,
        beside: str = "",
        log_bytes_max: int = LOG_BYTES_MAX,
        stop_opening: Callable[[], None] = lambda: None,
        seed: Callable[[ReplicatedLog, LmdbStore], LmdbStore] | None = None,
        directory: Path | None = None,
        register: Register | None = None,
        beginning: Beginning | None = None,
    ) -> None:
        self.predecessor: Holder | None = None
        self.is_on_new_file = False
        self.commits: ReplicatedCommits | None = None
        """Those of the epoch that this broker has begun, while it is the primary."""
        self.waiting = Waiting(now_us)
        self._directory = directory
        self.replica = Replica(store, EpochVersions(directory))
        self._store = store
        self._open_log = open_log
        self._stop_opening = stop_opening
        self._seed = seed
        self._log: ReplicatedLog | None = None
        self._watch: LogWatch | None = None
        self._register = register
        self._registration: Registration | None = None
        self._beginning = beginning
        self._ask_again_s = 0.0
        self._beside = beside
        self._log_bytes_max = log_bytes_max
        self._listen = listen
        self._lease_s = lease_s
        self._lease_told_s = 0.0
        """That of the primary, by its last beat."""
        self._now_us = now_us
        self._silence_ms: Callable[[], int] | None = None
        self._holder: Holder | None = None
        self._note = Holder(os.getpid(), listen=listen)
        self._changed = threading.Condition()
        self._wanted = False
        self._cancelled = False
        self._closed = False
        self._claiming = False
        self._waits_to_follow = True
        """Rather than for room, for records that are not damaged, or to claim: it goes on as soon as it follows."""
        self._was_safe = False
        """The log's servers were once seen to write to disk before they acknowledge."""
        self._failure: LegatoError | None = None
        self._thread = threading.Thread(target=self._run, name="legato-replica", daemon=True)
        self._thread.start()

    # -- see `Arbiter`

    @property
    def store(self) -> LmdbStore:
        """The replica's store."""
        return self._store

    @property
    def held(self) -> bool:
        """See `Arbiter.held`."""
        return self.commits is not None

    def try_acquire(self) -> bool:
        """See `Arbiter.try_acquire`: whether there is a primary is known after a lease."""
        return self.held

    def acquire_blocking(self) -> bool:
        """See `Arbiter.acquire_blocking`.

        Raises:
            StoreError: this broker can never become the primary; the message says why, and what to do.
        """
        with self._changed:
            self._wanted = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.held or self._cancelled or self._failure is not None)
            self._wanted = False
            if self._failure is not None:
                raise StoreError(f"this broker's replica: {self._failure}") from self._failure
            return self.held

    def cancel(self) -> None:
        """See `Arbiter.cancel`."""
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()

    def retry(self) -> None:
        """See `Arbiter.retry`: there is one log."""

    def listen_to(self, silence_ms: Callable[[], int]) -> None:
        """See `Arbiter.listen_to`."""
        self._silence_ms = silence_ms

    def still_mine(self) -> bool:
        """See `Arbiter.still_mine`."""
        commits = self.commits
        return commits is not None and not commits.lost and self._failure is None

    def sure_for_s(self) -> float:
        """For how long this primary may answer without hearing from the log; not positive if it may not."""
        commits = self.commits
        return 0.0 if commits is None else commits.sure_for_s()

    def describe(self, epoch: int, listen: str, token: str = "", connections: int = 0) -> None:
        """See `Arbiter.describe`: the next beat says it."""
        self._note = Holder(os.getpid(), epoch, listen, token, connections)

    def refresh(self) -> bool:
        """See `Arbiter.refresh`: each beat says it again."""
        return True

    def holder(self) -> Holder | None:
        """See `Arbiter.holder`."""
        return self._note if self.held else self._holder

    def release(self, why: str = "") -> None:
        """See `Arbiter.release`."""
        commits = self.commits
        if commits is None:
            return
        left = why or "left"
        commits.end(left)
        with self._changed:
            # Not only when it comes back from the log: who hands over asks at once whether another has it.
            self._holder = msgspec.structs.replace(self._note, token="", left="" if commits.lost else left)
            self.commits = None
            self._changed.notify_all()

    def give_back(self) -> None:
        """See `Arbiter.give_back`."""
        self.release()

    # -- the rest

    def status(self) -> ReplicaStatus:
        """The replica, for people."""
        replica, waiting, health = self.replica, self.waiting, self._health()
        registration = self._registration
        sequence = replica.position.sequence
        return ReplicaStatus(
            state=self._activity,
            group="" if self._log is None else self._log.group,
            sequence=sequence,
            behind=None if health is None else max(health.last - sequence, 0),
            commits=replica.commits,
            voided=replica.voided,
            lease_ms=round(self._lease_s * 1000),
            sure=self.sure_for_s() > 0,
            quorum=None if health is None else health.quorum,
            log_bytes=0 if health is None else health.kept_bytes,
            servers=[
                LogServerStatus(each.server, each.leads, each.current, each.lag, each.synced, each.heard)
                for each in (() if health is None else health.replicas)
            ],
            trouble=[
                *dict.fromkeys([*waiting.why, *(() if health is None else health.trouble)]),
                *((registration.trouble,) if registration is not None and registration.trouble else ()),
            ],
            backups=[] if registration is None else registration.backups(),
            since_us=waiting.since_us,
            epoch=replica.epoch,
            looked_s=None if health is None or self._watch is None else round(self._watch.age_s, 1),
        )

    def close(self) -> None:
        """Release it, follow no longer, leave the log."""
        self.release()
        with self._changed:
            self._closed = self._cancelled = True
            self._changed.notify_all()
        if self._registration is not None:
            self._registration.close()
        self._stop_opening()
        if self._watch is not None:
            self._watch.close()
        if self._log is not None:
            self._log.close()
        self._thread.join(2 * CLAIM_PATIENCE_S)
        self._store.close()

    def _run(self) -> None:
        try:
            self._be_a_replica()
        except BaseException as error:
            # Without this thread it would follow, claim and end no more, and still say that it is a backup.
            self._fail(StoreError(f"an unforeseen error: {error!r}"))
            raise

    def _be_a_replica(self) -> None:
        while not self._closed:
            while not self._waited_while_held():
                self._see_to_claim()
            try:
                if self._log is None:
                    self._log = self._open_log()
                    self._watch = LogWatch(
                        self._log,
                        self._beside,
                        self._log_bytes_max,
                        lambda: self.held,
                        lambda: self.replica.kept,
                        self._note_look,
                    )
                    self._begin_registration()
                self._claiming = False
                self.waiting.end(APPENDING)
                self._follow(self._log)
            except FencedError:
                continue  # Another one was faster, or the primary lives.
            except (LogUnavailableError, StoreFullError) as error:
                self._waits_to_follow = isinstance(error, LogUnavailableError) and not self._claiming
                self._wait(str(error))
            except LogDamagedError as error:
                self._waits_to_follow = False
                self._wait(str(error))
                self._have_another_lead(error)
            except LogTrimmedError as error:
                if not self._seeded(error):
                    return
            except LogUnsafeError as error:
                if self._log is None or not self._was_safe:
                    self._fail(error)
                    return
                # Somebody changed it meanwhile, and mends it: who ended would not be there then.
                self._waits_to_follow = False
                self._wait(str(error))
            except LegatoError as error:
                self._fail(error)
                return

    def _begin_registration(self) -> None:
        if self._register is not None:
            self._registration = Registration(
                self._register, self._entry, lambda: self.held, self._health, self._log_bytes_max
            )

    def _health(self) -> LogHealth | None:
        watch = self._watch
        return None if watch is None or watch.trouble else watch.health

    def _entry(self) -> Entry:
        """What the register is to say of this replica."""
        replica, health = self.replica, self._health()
        sequence = replica.position.sequence
        return Entry(
            self._listen,
            __version__,
            self._activity,
            replica.epoch,
            replica.commits,
            sequence,
            None if health is None else max(health.last - sequence, 0),
            "; ".join(self.waiting.why),
        )

    @property
    def _activity(self) -> Activity:
        return Activity.LEADS if self.held else Activity.WAITS if self.waiting.why else Activity.FOLLOWS

    def _waited_while_held(self) -> bool:
        """Wait for a part of the lease, or until this broker is not the primary; whether it is not."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed or not self.held, self._lease_s / 2)

    def _see_to_claim(self) -> None:
        """Tell of a log that does not acknowledge what this primary appends."""
        silence_s = self._lease_s - self.sure_for_s()
        if silence_s > 2 * self._lease_s and self.held:
            health = self._health()
            stops = health.stops if health is not None and health.quorum else ()
            self.waiting.begin(APPENDING, stops[0] if stops else UNACKNOWLEDGED)
        elif silence_s < self._lease_s:
            self.waiting.end(APPENDING)

    def _wait(self, why: str, pause_s: float = PAUSE_S) -> None:
        if not self._closed:
            self.waiting.begin(FOLLOWING, why)
        with self._changed:
            self._changed.wait_for(lambda: self._closed, pause_s)

    def _note_look(self, trouble: str) -> None:
        """The log's servers were looked at: what was wrong with that, or nothing."""
        if self._is_removed() and not self._closed:
            if self._failure is None:
                self._fail(StoreError(f"{self._directory}/{DATA_NAME} was removed: {REMOVED}"))
            return
        health = self._health()
        self._was_safe = self._was_safe or (health is not None and health.sync_proved)
        if trouble and not self._closed:
            self.waiting.begin(LOOKING, trouble)
        else:
            self.waiting.end(LOOKING)

    def _is_removed(self) -> bool:
        """Whether the file of the store is there no more: what is written to it is gone with this process."""
        if self._directory is None:
            return False
        try:
            os.stat(self._directory / DATA_NAME)
        except FileNotFoundError:
            return True
        except OSError:
            pass
        return False

    def _seeded(self, error: LogTrimmedError) -> bool:
        """Whether there is another store, which the log reaches back to, or may be as soon as the log answers."""
        why = ""
        if self._seed is not None and self._log is not None and not self._closed:
            self._waits_to_follow = True
            self.waiting.begin(FOLLOWING, f"{error}; a copy of another store is looked for")
            try:
                self._store = self._seed(self._log, self._store)
                self.replica = Replica(self._store, EpochVersions(self._directory))
                return True
            except LogUnavailableError as problem:
                self._wait(str(problem))
                return True
            except (LegatoError, OSError) as problem:
                if isinstance(problem, JMSError) and not _is_refusal(problem):
                    # Nobody serves there now, or another one than when the copy began.
                    self._wait(f"{error}; {problem}", SEED_PAUSE_S)
                    return True
                why = f"; {problem}"
        self._fail(LogTrimmedError(f"{error}: {SEED}{why}"))
        return False

    def _fail(self, error: LegatoError) -> None:
        if self._registration is not None and not self._closed:
            self._registration.say_last(sentence(error))
        with self._changed:
            if not self._closed:
                log.critical("! this replica follows no longer: %s", sentence(error))
                self._failure = error
                self._holder = None  # Whoever waits until that one serves would wait for ever.
            self._changed.notify_all()

    def _have_another_lead(self, error: LogDamagedError) -> None:
        """An intact server has what the present leader of the log lacks."""
        if error.leader is not None and self._log is not None:
            try:
                leader = self._log.move_leader(error.leader, CLAIM_PATIENCE_S)
                log.warning("! %s leads the log instead of %s, which is damaged", quoted(leader), quoted(error.leader))
            except LogError as problem:
                log.warning("! no other server can lead the log: %s", sentence(problem))

    def _follow(self, replicated_log: ReplicatedLog) -> None:
        """Apply what comes until this broker is the primary, or all ends."""
        self._see_where_it_began(replicated_log)
        silence_s = min(SILENCE_S, LOOKED_AFTER_LEASES * self._lease_s)
        following = replicated_log.follow(self.replica.position, silence_s=silence_s)
        if self._waits_to_follow:
            self.waiting.end(FOLLOWING)
        try:
            heard_s = elapsed_s()
            while not (self._closed or self.held):
                records = following.take(TAKE_S)
                for record in self.replica.apply_all(records):
                    self._take(record)
                if records:
                    heard_s = elapsed_s()
                    self.waiting.end(FOLLOWING)
                elif (
                    self._wanted
                    and not self._cancelled
                    and self._may_claim(replicated_log, max(heard_s, following.heard_s))
                ):
                    self._claim(replicated_log, following)
                    heard_s = elapsed_s()
        finally:
            following.close()

    def _see_where_it_began(self, replicated_log: ReplicatedLog) -> None:
        """A store with commits of its own can begin a log, and follow none.

        Raises:
            LogDivergedError: the log has begun already.
        """
        replica = self.replica
        if not replica.is_of_no_log:
            return
        if replicated_log.last():
            raise LogDivergedError(
                f"the store in this directory has {counted(replica.commits, 'commit')} of its own, and the log of the "
                f"group {replicated_log.group} has begun with another: serve a new directory, which is filled from the "
                "log, or move this store away"
            )
        replica.begin_log(secrets.token_bytes(IDENTITY_BYTES))

    def _take(self, record: AnyRecord) -> None:
        """It is applied: what it says of the primary is to be known."""
        match record:
            case EpochRecord(epoch=epoch, broker=broker):
                self._holder = Holder(NOBODY, epoch, broker)
                log.info("< epoch %d of the log: %s is the primary", epoch, quoted(broker))
            case Beat(epoch=epoch, listen=listen, token=token, connections=connections, left=left, lease_ms=lease_ms):
                self._lease_told_s = lease_ms / 1000
                self._holder = Holder(NOBODY, epoch, listen, token, connections, left)
            case CommitRecord():
                if self._holder is not None and self._holder.left:
                    self._holder = msgspec.structs.replace(self._holder, left="")

    def _may_claim(self, replicated_log: ReplicatedLog, heard_s: float) -> bool:
        holder = self._holder
        if holder is not None and holder.left:
            return True
        if self.replica.position == BEGINNING:
            if self._ask_again_s and elapsed_s() < self._ask_again_s:
                return False
            if not replicated_log.last():
                return self._may_begin()
        # Leases differ while brokers are restarted one after the other with another one in their files.
        term_s = max(self._lease_s, self._lease_told_s) * LEASE_MARGIN
        if elapsed_s() - heard_s < term_s:
            return False
        return self._silence_ms is None or self._silence_ms() >= term_s * 1000

    def _may_begin(self) -> bool:
        """Whether the log, which is empty, may begin with this store."""
        if self._beginning is not None:
            self._ask_again_s = elapsed_s() + PAUSE_S
            try:
                why = self._beginning.refusal(self.replica)
            except LogUnavailableError as error:
                why = str(error)
            if why:
                self._waits_to_follow = False
                self.waiting.begin(FOLLOWING, why)
                return False
        return True

    def _claim(self, replicated_log: ReplicatedLog, following: Following) -> None:
        """Begin the next epoch behind everything; if that is refused, the replica goes on following.

        Raises:
            FencedError: there is more in the log.
            LogError, StoreError: it cannot be begun now.
        """
        self._claiming = True
        replica = self.replica
        record, data = encode_epoch(
            replica.epoch + 1, replica.commits + 1, self._listen, self._now_us(), replica.origin
        )
        replica.versions.note(record)
        replica.store.prepare(record, forced=True)
        try:
            claim = replicated_log.claim(data, following.end, CLAIM_PATIENCE_S, following.seen)
        except BaseException:
            replica.store.abandon()
            raise
        if replica.position == BEGINNING:
            log.info("= the group %s has a new log, which begins with this store", quoted(replicated_log.group))
        replica.finish(record, claim.began.position)
        before = self._holder
        self.predecessor = Holder(NOBODY, left=STARTED) if before is None and record.epoch == 1 else before
        self._note = Holder(os.getpid(), record.epoch, self._listen)
        self.waiting.end(FOLLOWING)
        with self._changed:
            self.commits = ReplicatedCommits(replica, claim, self._lease_s, self._beat, replicated_log.record_bytes_max)
            self._changed.notify_all()

    def _beat(self, epoch: int, commits: int, left: str) -> Beat:
        note = self._note
        lease_ms = round(self._lease_s * 1000)
        return Beat(epoch, commits, self._now_us(), self._listen, note.token, note.connections, left, lease_ms)


def _is_refusal(error: JMSError) -> bool:
    """Whether a broker does not let this user in, or have what it asks for: to ask again changes nothing."""
    return isinstance(error, JMSSecurityError) or error.code in _REFUSED_CODES
