"""A backup's watch on its primary: heartbeats; without them, reconnection attempts between tries at the lock."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable

import msgspec
from msgspec.structs import astuple

from legato.clock import Clock
from legato.errors import ProtocolError
from legato.ha.arbiter import Arbiter
from legato.ha.heartbeat_connection import Heartbeat, HeartbeatConnection, LoginRefused
from legato.ha.lock import Holder
from legato.ha.roles import Event
from legato.ha.watch import Watch
from legato.quoting import quoted, sentence

log = logging.getLogger("legato.watcher")

PAUSE_FIRST_S = 0.05
LOCK_FIRST_S = 0.1
"""If the connection was lost because the primary died, its lock is ours by then; nothing here is to slow that down."""


class Intervals(msgspec.Struct, frozen=True):
    """The heartbeat and activation intervals (CONTRACT B20)."""

    heartbeat_s: float
    activation_s: float


class Watcher:
    """Reports what it hears of the primary of a store (CONTRACT B1, B6, B19).

    A try at the lock is outstanding all the time: whoever waits for it sleeps in the kernel and is woken when it is
    free. So what this does in turn with reconnecting is to see that the wait is for the right file.

    Args:
        lock: whose holder is the primary.
        name: our container id.
        has_password: whether to try the holder's token first; else as nobody in particular.
        tls: for brokers that listen with TLS.
        report: is told `SILENT`, `CUT_OFF` or `HEARD`, each when it becomes true.
        adopt: is told the intervals that the primary says, when they are not ours: they are from then on.
        listen: where we would serve, if the primary cannot read that among the members of the store; else empty.
    """

    def __init__(
        self,
        lock: Arbiter,
        clock: Clock,
        intervals: Intervals,
        *,
        name: str,
        has_password: bool,
        tls: ssl.SSLContext | None,
        report: Callable[[Event], None],
        adopt: Callable[[Intervals], None] = lambda intervals: None,
        listen: Callable[[], str] = str,
    ) -> None:
        self._adopt = adopt
        self._listen_at = listen
        self._lock = lock
        self._clock = clock
        self._intervals = intervals
        self._name = name
        self._with_token = has_password
        self._tls = tls
        self._report = report
        self._lost_ms: int | None = None
        self._lost = False
        self._told = ""
        self.watch = Watch(round(intervals.activation_s * 1000), clock.monotonic_ms())

    @property
    def lost_for_ms(self) -> int:
        """How long ago the first sign came that the primary is gone; 0 if there is none."""
        return 0 if self._lost_ms is None else self._clock.monotonic_ms() - self._lost_ms

    async def run(self) -> None:
        """Watch until cancelled."""
        pause_s = PAUSE_FIRST_S
        while True:
            connection = await self._reconnect()
            if connection is not None:
                pause_s = PAUSE_FIRST_S
                await self._listen(connection)
            self._lock.retry()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, self._intervals.heartbeat_s)

    async def _reconnect(self) -> HeartbeatConnection | None:
        """One try to reach whoever holds the lock."""
        holder = self._lock.holder()
        try:
            if holder is not None and holder.listen:
                async with asyncio.timeout(self._intervals.heartbeat_s):
                    return await self._open(holder)
        except LoginRefused as refusal:
            log.warning(
                "! the primary at %s does not let us in: %s", quoted(holder and holder.listen), sentence(refusal)
            )
            self._with_token = not self._with_token
        except (OSError, TimeoutError) as problem:
            log.debug("! the primary cannot be reached: %s", sentence(problem))
        except Exception as problem:
            self._tell_unforeseen(holder, problem)
        if self.watch.is_silent(self._clock.monotonic_ms()):
            self._miss(Event.SILENT, f"nothing was heard of a primary for {self._intervals.activation_s:g} s")
        return None

    async def _open(self, holder: Holder) -> HeartbeatConnection:
        host, _, port = holder.listen.rpartition(":")
        token = holder.token if self._with_token else None
        return await HeartbeatConnection.open(
            host.strip("[]"), int(port), name=self._name, token=token, tls=self._tls, listen=self._listen_at()
        )

    async def _listen(self, connection: HeartbeatConnection) -> None:
        """Take heartbeats until there are none; the first one comes at once if the primary is well again."""
        wait_s = max(self._remaining_s(), self._intervals.heartbeat_s)
        try:
            while True:
                async with asyncio.timeout(wait_s):
                    heartbeat = await connection.next()
                self.watch.heard(self._clock.monotonic_ms())
                self._take_intervals(heartbeat)
                wait_s = self._remaining_s()
                if self._lost or self.watch.heartbeats == 1:
                    log.info("< heartbeats of epoch %s from process %s", heartbeat.epoch, heartbeat.pid)
                    self._lost_ms, self._lost = None, False
                    self._report(Event.HEARD)
        except TimeoutError:
            self._miss(Event.SILENT, f"no heartbeat came for {self._intervals.activation_s:g} s")
        except Exception as problem:
            if not isinstance(problem, (OSError, ProtocolError, msgspec.DecodeError)):
                self._tell_unforeseen(self._lock.holder(), problem)
            self._notice()
            await asyncio.sleep(LOCK_FIRST_S)
            self._miss(Event.CUT_OFF, f"the connection to the primary is lost: {problem}")
        finally:
            connection.close()

    def _tell_unforeseen(self, holder: Holder | None, problem: Exception) -> None:
        """Say once that what is written of the primary, or what it says, is no primary's; the watch goes on."""
        told = f"{quoted(holder and holder.listen)} cannot be watched: {sentence(repr(problem))}"
        if told != self._told:
            self._told = told
            log.warning("! the primary at %s", told)

    def _take_intervals(self, heartbeat: Heartbeat) -> None:
        said = Intervals(heartbeat.heartbeat_interval_s, heartbeat.activation_interval_s)
        if said != self._intervals and said.heartbeat_s > 0 and said.activation_s > 0:
            log.info("= a heartbeat every %g s, activation after %g s: so says the primary", *astuple(said))
            self._intervals = said
            self.watch.set_activation_interval(round(said.activation_s * 1000))
            self._adopt(said)

    def _remaining_s(self) -> float:
        return self.watch.remaining_ms(self._clock.monotonic_ms()) / 1000

    def _notice(self) -> None:
        if self._lost_ms is None:
            self._lost_ms = self._clock.monotonic_ms()

    def _miss(self, event: Event, why: str) -> None:
        self._notice()
        if not self._lost:
            self._lost = True
            log.warning("! %s; trying the lock and the primary in turn", why)
            self._report(event)
