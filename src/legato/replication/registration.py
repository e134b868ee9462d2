"""A broker's part in the register of its group: it says how far it is, and as the primary looks at the others."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from legato.errors import LogError, LogUnavailableError
from legato.quoting import quoted, sentence
from legato.replication.log import LogHealth
from legato.replication.register import AWAY_S, Entry, Register, Registered
from legato.replication.replica_status import BackupStatus

log = logging.getLogger("legato.replication")

LOOK_S = 2.0
SAY_S = 5.0
"""So often a broker says how far it is."""
TIMEOUT_S = 2.0
LAST_S, LAST_PAUSE_S = 10.0, 0.2
"""So long, and with such pauses, a broker that ends tries to say why."""
FAILURES_MAX = 3
"""After so many the register cannot be used, and that is told."""
FAILED_LOOKS = 15
"""After so many looks it is tried again then, if it is refused; servers that do not answer are asked at each look."""

AWAY = "nothing is heard of it: start it, or remove it with legato replica forget if it is gone for good"
DROPPED = (
    "the log has forgotten what comes behind its last record: copy another broker's store to it (legato replica seed), "
    "or remove it with legato replica forget if it is gone for good"
)
SAME_ADDRESS = (
    "another broker of the group says that it is at the address of this one, so that nobody misses it, or hears that "
    "this one lives: give each broker an address of its own (replication.advertise, or server.listen)"
)
FALLS_BEHIND = (
    "it lacks more than half of what the log may keep (replication.log_bytes): when the log forgets what it lacks, "
    "another broker's store has to be copied to it"
)


class Registration:
    """Says an entry and looks at those of others, in a thread of its own, which the servers may hold up.

    Args:
        register: of the group.
        entry: what is to be said now.
        leads: whether this broker is the primary.
        health: of the log, as it was last; None if it is not known.
        log_bytes_max: the log's bound.

    Attributes:
        trouble: why the register cannot be used; empty if it can.
    """

    def __init__(
        self,
        register: Register,
        entry: Callable[[], Entry],
        leads: Callable[[], bool],
        health: Callable[[], LogHealth | None],
        log_bytes_max: int,
    ) -> None:
        self.trouble = ""
        self._register = register
        self._entry = entry
        self._leads = leads
        self._health = health
        self._log_bytes_max = log_bytes_max
        self._said: Entry | None = None
        self._said_s = 0.0
        self._others: Sequence[Registered] = ()
        self._read_s = 0.0
        self._failures = 0
        self._used_s = time.monotonic()
        """When the register could be used last."""
        self._outage_s, self._back_s = self._used_s, -AWAY_S
        """When it could be used last before it could not, and when it could again."""
        self._told: set[tuple[str, str]] = set()
        self._met_s = -AWAY_S
        """When another broker was found to have our address."""
        self._closed = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="legato-register", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Say no more."""
        self._closed.set()

    def say_last(self, trouble: str) -> None:
        """Say once more why this replica does not go on, if the servers take it."""
        self.close()
        entry = msgspec.structs.replace(self._entry(), trouble=trouble)
        until_s = time.monotonic() + LAST_S
        while True:
            try:
                with self._turn:
                    self._register.say(entry, TIMEOUT_S)
                return
            except LogError as error:
                if self.trouble or time.monotonic() > until_s:
                    log.debug("the register does not say why this replica ends: %s", sentence(error))
                    return
                time.sleep(LAST_PAUSE_S)

    def backups(self) -> list[BackupStatus]:
        """The other brokers of the group, for people; none unless this one is the primary."""
        if not self._leads():
            return []
        now_s = time.monotonic()
        excused_s = now_s - self._outage_s if self._failures or now_s - self._back_s < AWAY_S else 0.0
        return backup_statuses(
            self._others, now_s - self._read_s, self._entry(), self._health(), self._log_bytes_max, excused_s
        )

    def _run(self) -> None:
        pause_looks = 0
        while not self._closed.is_set():
            if pause_looks:
                pause_looks -= 1
            elif not self._look():
                pause_looks = FAILED_LOOKS if self.trouble else 0
            self._closed.wait(LOOK_S)

    def _look(self) -> bool:
        """Say and read, if it is time to; whether that is to be done at the next look, too."""
        try:
            self._say()
            if self._leads():
                self._others = self._register.entries(TIMEOUT_S)
                self._read_s = time.monotonic()
                self._note_use()
                self._meet()
                self._tell()
        except LogError as error:
            if not self._failures and time.monotonic() - self._back_s >= AWAY_S:
                self._outage_s = self._used_s
            self._failures += 1
            if self._failures >= FAILURES_MAX:
                self.trouble = f"brokers cannot use the register of their replicas: {error}"
            return type(error) is LogUnavailableError
        except Exception as error:
            # Without this thread nobody would hear of this broker, and the primary miss none.
            log.exception("! the register cannot be used: %r", error)
            self.trouble = f"brokers cannot use the register of their replicas: an unforeseen error: {error!r}"
            return False
        self._note_use()
        self.trouble = SAME_ADDRESS if time.monotonic() - self._met_s < AWAY_S else ""
        return True

    def _note_use(self) -> None:
        """The register could be used: others could not say anything either while it could not, and come back late."""
        self._used_s = time.monotonic()
        if self._failures:
            self._back_s = self._used_s
        self._failures = 0

    def _say(self) -> None:
        entry = self._entry()
        said = self._said
        is_new = said is None or (entry.state, entry.epoch, entry.trouble) != (said.state, said.epoch, said.trouble)
        if is_new or not entry.commits or time.monotonic() - self._said_s >= SAY_S:
            with self._turn:
                if self._closed.is_set():
                    return
                self._register.say(entry, TIMEOUT_S)
            self._said, self._said_s = entry, time.monotonic()

    def _meet(self) -> None:
        """See whether another broker has written over what this primary said of itself."""
        said = self._said
        for each in self._others:
            if said is not None and each.entry.listen == said.listen and each.entry.state != said.state:
                if time.monotonic() - self._met_s >= AWAY_S:
                    log.warning("! %s (%s)", sentence(SAME_ADDRESS), quoted(said.listen))
                self._met_s = time.monotonic()

    def _tell(self) -> None:
        """Log what is wrong with backups, once."""
        found = {(backup.listen, backup.trouble) for backup in self.backups() if backup.trouble}
        for listen, trouble in sorted(found - self._told):
            log.warning("! the backup at %s: %s", quoted(listen), sentence(trouble))
        self._told = found


def backup_statuses(
    registered: Sequence[Registered],
    read_ago_s: float,
    own: Entry,
    health: LogHealth | None,
    log_bytes_max: int,
    excused_s: float = 0.0,
) -> list[BackupStatus]:
    """What a primary says of the other brokers of its group.

    Args:
        registered: all entries.
        read_ago_s: so long ago they were read.
        own: the primary's.
        health: of the log, if it is known.
        log_bytes_max: its bound.
        excused_s: of the time up to now, for so long nobody may have been able to say anything.
    """
    statuses: list[BackupStatus] = []
    for each in registered:
        entry, heard_s = each.entry, each.age_s + read_ago_s
        if entry.listen == own.listen:
            continue
        is_away = heard_s - excused_s > AWAY_S
        behind = max(own.sequence - entry.sequence, 0) if is_away or entry.behind is None else entry.behind
        trouble = _lacks(own.sequence - behind, behind, health, log_bytes_max)
        statuses.append(
            BackupStatus(
                listen=entry.listen,
                state=entry.state,
                version=entry.version,
                commits=entry.commits,
                sequence=entry.sequence,
                behind=behind,
                heard_s=round(heard_s, 1),
                away=is_away,
                trouble=trouble or entry.trouble or (AWAY if is_away else ""),
            )
        )
    return statuses


def _lacks(sequence: int, behind: int, health: LogHealth | None, log_bytes_max: int) -> str:
    """What is wrong with a replica that ends with a record of the log; nothing if it can take what comes next."""
    if health is None or not health.first or not behind:
        return ""
    if sequence < health.first - 1:
        return DROPPED
    lacked_bytes = health.kept_bytes * behind // max(health.last - health.first + 1, 1)
    return FALLS_BEHIND if 2 * lacked_bytes > log_bytes_max else ""
