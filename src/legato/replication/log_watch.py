"""A look at the log's servers now and then: their health, who leads, how much they keep."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable

from legato.errors import LogError
from legato.quoting import escaped, quoted
from legato.replication.log import LogHealth, Position, ReplicatedLog

log = logging.getLogger("legato.replication")

LOOK_S = 2.0
TIMEOUT_S = 2.0
REPLICAS_MIN = 3
"""With fewer the leader does not know all servers that keep the log."""
MOVE_PAUSE_LOOKS = 15
"""After so many looks a server is asked again not to lead."""


class LogWatch:
    """Looks at a log in a thread of its own, which the log may hold up.

    A primary keeps the log's leader off its own machine: whoever loses both at once waits for an election of seconds,
    and with the leader elsewhere only for the lease. It also has the log forget what is beyond its bound.

    Args:
        replicated_log: the log.
        beside: the name of the log's server on this machine; empty if there is none.
        log_bytes_max: the log's bound.
        leads: whether this broker is the primary.
        kept: behind which record the store of this broker is on disk.
        tell: told after each look why the log cannot go on; nothing if it can.

    A server that is heard and lacks records is told of when it does so for two looks: each that follows is behind by
    the records of a moment now and then.

    Attributes:
        health: as it was last; None until it is known.
        trouble: why it is not known; empty if it is.
    """

    def __init__(
        self,
        replicated_log: ReplicatedLog,
        beside: str,
        log_bytes_max: int,
        leads: Callable[[], bool],
        kept: Callable[[], Position],
        tell: Callable[[str], None] = lambda trouble: None,
    ) -> None:
        self.health: LogHealth | None = None
        self.trouble = ""
        self._log = replicated_log
        self._beside = beside
        self._log_bytes_max = log_bytes_max
        self._leads = leads
        self._kept = kept
        self._tell = tell
        self._pause_looks = 0
        self._looked_s = 0.0
        self._behind: frozenset[str] = frozenset()
        """What was told, at the last look, of servers that are heard and lack records."""
        self._failed: tuple[str, ...] = ()
        """What could not be done with the log at the last look."""
        self._told: set[str] = set()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="legato-log-watch", daemon=True).start()

    @property
    def age_s(self) -> float:
        """How old `health` is."""
        return time.monotonic() - self._looked_s

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _run(self) -> None:
        while True:
            try:
                self.look()
            except LogError as error:
                self.trouble = str(error)
            except Exception as error:
                # Without this thread nobody would trim the log, nor say that its leader is on the primary's machine.
                log.exception("! the log's servers cannot be looked at: %r", error)
                self.trouble = f"an unforeseen error: {error!r}"
            if not self._closed.is_set():
                self._tell(self.trouble or _no_quorum(self.health))
            if self._closed.wait(LOOK_S):
                return

    def look(self) -> None:
        """Look once.

        Raises:
            LogError: the log cannot be asked.
        """
        began_s = time.monotonic()
        health = self._with_wrong_name(self._without_passing(self._log.health(TIMEOUT_S)))
        self._looked_s = began_s
        self._note(health)
        if self._leads():
            moved = self._tried("the log's leader cannot be moved", self._keep_leader_away, health)
            self._failed = moved + self._tried("the log cannot be trimmed", self._trim, health)
            self._note(health)

    def _tried(self, failed: str, act: Callable[[LogHealth], None], health: LogHealth) -> tuple[str, ...]:
        """What a primary does with the log, whose health is known whether that succeeds or not; why it did not."""
        try:
            act(health)
        except LogError as error:
            return (f"{failed}: {error}",)
        return ()

    def _note(self, health: LogHealth) -> None:
        failed = self._failed if self._leads() else ()
        self.health = health = dataclasses.replace(health, trouble=(*health.trouble, *failed))
        self.trouble = ""
        for said in set(health.trouble) - self._told:
            log.warning("! the replicated log: %s", escaped(said))
        self._told = set(health.trouble)

    def _without_passing(self, health: LogHealth) -> LogHealth:
        """What was found, without servers that may be behind for this moment only."""
        behind = frozenset(each.trouble for each in health.replicas if each.heard and not each.current)
        passing, self._behind = behind - self._behind, behind
        return dataclasses.replace(health, trouble=tuple(each for each in health.trouble if each not in passing))

    def _with_wrong_name(self, health: LogHealth) -> LogHealth:
        """What was found, and whether nobody is called as the server on this machine is said to be."""
        names = sorted(each.server for each in health.replicas)
        if not self._beside or not health.leader or len(names) < REPLICAS_MIN or self._beside in names:
            return health
        told = (
            f"replication.beside is {self._beside}, and the log is kept by {', '.join(names)}: give the name of the "
            "server on this machine as it is there, so that it does not lead; or none, if that keeps no log"
        )
        return dataclasses.replace(health, trouble=(*health.trouble, told))

    def _keep_leader_away(self, health: LogHealth) -> None:
        if not self._beside or health.leader != self._beside:
            self._pause_looks = 0
            return
        if self._pause_looks:
            self._pause_looks -= 1
            return
        self._pause_looks = MOVE_PAUSE_LOOKS
        leader = self._log.move_leader(self._beside, TIMEOUT_S)
        log.info(
            "= %s leads the log in the place of %s, which is on the primary's machine",
            quoted(leader),
            quoted(self._beside),
        )

    def _trim(self, health: LogHealth) -> None:
        excess = health.kept_bytes - self._log_bytes_max
        if excess <= 0 or not health.first:
            return
        records = health.last - health.first + 1
        through = min(health.first + records * excess // health.kept_bytes, self._kept().sequence)
        if through > health.first:
            self._log.trim(Position(through, b""), TIMEOUT_S)
            log.info("= the log forgot its records before %d; it keeps %d bytes at most", through, self._log_bytes_max)


def _no_quorum(health: LogHealth | None) -> str:
    """Why nothing can be appended; empty if it can."""
    if health is None or health.quorum:
        return ""
    silent = ", ".join(quoted(each.server) for each in health.replicas if not each.current)
    return "the log has no quorum: " + (f"{silent} do not answer its leader" if health.leader else "nobody leads it")
