"""Monitor of a broker process: its role, its loop, and the pages that say so over HTTP.

Liveness is not readiness. `/livez` fails only if a restart would help: when the loop has stalled for so long that even
the watchdog has not ended the process, as it does not for a backup. It knows nothing of roles, stores or disks.
`/readyz` is true of a process that does its part: a primary that serves, or a backup that waits. With a replicated log
it is not if answers are held back, or if the replica cannot follow.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from legato.ha.members import list_members
from legato.ha.roles import Role
from legato.replication.replica_status import ReplicaStatus
from legato.server.config.configuration import Config
from legato.server.monitoring.answers import Answer, Request
from legato.server.monitoring.loop_watch import LoopWatch
from legato.server.monitoring.readings import PrimaryReadings

if TYPE_CHECKING:
    from legato.server.monitoring.endpoint import Endpoint

READY = (Role.PRIMARY, Role.BACKUP, Role.SEEKING)
READ_WAIT_S = 3.0
"""A primary that does not tell its readings within this time is reported without them."""
AGE_MAX_S = 0.5
"""Two scrapes within this time are given the same text."""
TURN_WAIT_S = 1.0
"""A process that was stopped (SIGSTOP) for long gets so much time for a first turn of its loop."""

Read = Callable[[Callable[[PrimaryReadings], None]], bool]
"""Takes readings of this process if it is the primary; called in the loop, returns whether it is."""


class Monitor:
    """Serves `/metrics`, `/livez` and `/readyz`, from `start` to `stop`.

    Args:
        turned: is called in the loop while it turns; None: nobody wants to know.
    """

    def __init__(self, config: Config, turned: Callable[[], None] | None = None) -> None:
        self._config = config
        ha = config.ha
        self._watchdog_s = ha.activation_interval_s if ha.watchdog_s is None else ha.watchdog_s
        self._stall_max_s = 2 * (self._watchdog_s or ha.activation_interval_s)
        self._role, self._epoch, self._since_s = Role.STARTING, 0, time.time()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch = LoopWatch(turned or (lambda: None))
        self._is_watched = bool(config.http.listen) or turned is not None
        self._endpoint: Endpoint | None = None
        self._scraping = threading.Lock()
        self._scraped: dict[str, tuple[float, bytes]] = {}
        """When, and what, by format."""
        self.read: Read = lambda done: False
        self.address_trouble = ""
        self.damaged: Callable[[], Iterable[str]] = list
        """Why a backup could not serve at its address; empty if it could."""
        self.replica: Callable[[], ReplicaStatus | None] = lambda: None
        """The replica of this process; any thread may ask."""

    def start(self) -> None:
        """Begin; called in the loop.

        Raises:
            ConfigError: it cannot listen where it should.
        """
        self._loop = asyncio.get_running_loop()
        if self._is_watched:
            self._watch.start()
        address = self._config.http_address
        if address is not None:
            # Imported here: a broker without the endpoint starts sooner. One that is to have it and has no
            # prometheus-client does not start.
            from legato.server.monitoring import exposition
            from legato.server.monitoring.endpoint import Endpoint

            self._format = exposition.format_for
            pages = {"/metrics": self._metrics, "/livez": self._alive, "/readyz": self._ready}
            self._endpoint = Endpoint(*address, pages)

    def stop(self) -> None:
        """Answer nobody any more."""
        self._watch.stop()
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None

    def turn(self, role: Role, epoch: int) -> None:
        """The process took another role."""
        self._role, self._epoch, self._since_s = role, epoch, time.time()

    # -- in threads ----------------------------------------------------------------------------------------------

    def _alive(self, request: Request) -> Answer:
        deadline = time.monotonic() + TURN_WAIT_S
        while self._watch.stalled_s > self._stall_max_s and time.monotonic() < deadline:
            time.sleep(0.01)
        stalled_s = self._watch.stalled_s
        alive = stalled_s <= self._stall_max_s
        return _json(alive, {"alive": alive, "loop_stalled_s": round(stalled_s, 3)})

    def _ready(self, request: Request) -> Answer:
        role = self._role
        wanted = request.query.get("role")
        ready = role in READY if wanted is None else role in READY and role.value == wanted
        ready = ready and self._watch.stalled_s <= self._stall_max_s
        ready = ready and not self.address_trouble
        replica = self.replica()
        told: dict[str, Any] = {"role": role.value, "epoch": self._epoch_of_store(replica)}
        if trouble := [*filter(None, [self.address_trouble]), *self.damaged()]:
            told["trouble"] = trouble
        if replica is not None:
            ready = ready and (replica.sure if role is Role.PRIMARY else replica.since_us is None)
            told["replication"] = {
                "state": replica.state,
                "since": None if replica.since_us is None else _iso(replica.since_us),
                "trouble": replica.trouble,
            }
        return _json(ready, {"ready": ready} | told)

    def _epoch_of_store(self, replica: ReplicaStatus | None) -> int:
        """The one that this process began, or that of the primary that it waits for; 0 if there is none.

        A replica knows it of its log: members of its own directory are nobody's primary.
        """
        if self._role is Role.PRIMARY:
            return self._epoch
        if replica is not None:
            return replica.epoch
        members = list_members(self._config.store_directory)
        return max((member.epoch for member in members if member.role == Role.PRIMARY), default=0)

    def _metrics(self, request: Request) -> Answer:
        content_type = self._format(request.accept)
        with self._scraping:
            scraped_s, text = self._scraped.get(content_type, (0.0, b""))
            if not text or time.monotonic() - scraped_s > AGE_MAX_S:
                text = self._scrape(content_type)
                self._scraped[content_type] = (time.monotonic(), text)
        return Answer(HTTPStatus.OK, content_type, text)

    def _scrape(self, content_type: str) -> bytes:
        from legato.server.monitoring.exposition import ProcessReadings, render

        began_s = time.monotonic()
        primary, replica = self._read_primary(), self.replica()
        members = Counter(member.role for member in list_members(self._config.store_directory))
        return render(
            ProcessReadings(
                role=self._role,
                epoch=self._epoch_of_store(replica),
                role_since_s=self._since_s,
                members=members,
                lags=self._watch.lags,
                stalled_s=self._watch.stalled_s,
                watchdog_s=self._watchdog_s,
                complete=primary is not None or self._role is not Role.PRIMARY,
                exported_through=primary.exported_through() if primary is not None else 0,
                primary=primary,
                replica=replica,
                duration_s=time.monotonic() - began_s,
            ),
            content_type,
        )

    def _read_primary(self) -> PrimaryReadings | None:
        if self._loop is None:
            return None
        found: concurrent.futures.Future[PrimaryReadings] = concurrent.futures.Future()

        def tell(readings: PrimaryReadings) -> None:
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                found.set_result(readings)

        def begin() -> None:
            if not self.read(tell):
                found.cancel()

        try:
            self._loop.call_soon_threadsafe(begin)
            return found.result(READ_WAIT_S)
        except (concurrent.futures.CancelledError, TimeoutError, RuntimeError):
            found.cancel()
            return None


def _iso(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="milliseconds")


def _json(good: bool, told: dict[str, Any]) -> Answer:
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, "application/json", msgspec.json.encode(told) + b"\n")
