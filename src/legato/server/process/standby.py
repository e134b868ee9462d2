"""Standby: a backup waits for the lock, and watches the primary over a connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from legato.clock import Clock
from legato.ha.arbiter import Arbiter
from legato.ha.lease import CHECK_MS
from legato.ha.lock import Holder
from legato.ha.members import list_members
from legato.ha.roles import Event, Role
from legato.ha.watcher import Intervals, Watcher
from legato.ids import new_unique_name
from legato.quoting import quoted, sentence
from legato.server.config.configuration import Config
from legato.server.management.takeover_report import CRASHED, RETURNED, STARTED, Takeover
from legato.store.environment import DATA_NAME

log = logging.getLogger("legato.standby")

SHUTDOWN = "shutdown"
"""What the lock's file says of a holder that was told to stop."""

POLL_S = 0.005


LAPSE_MIN_S = 2 * CHECK_MS / 1000
LAPSE_MAX_S = 2.0
LAPSE_POLL_S = 0.02
PASSES_ON_S = 1.0
"""A backup that only passes the lock on to a primary that comes back has it for less than this."""


async def stand_by(
    config: Config,
    lock: Arbiter,
    clock: Clock,
    stop: asyncio.Event,
    report: Callable[[Event], None],
    is_recorded: Callable[[], bool],
    adopt: Callable[[Intervals], None],
) -> Takeover | None:
    """Wait until the store's lock is ours; None if we were told to stop instead (CONTRACT B2).

    Where `ha.failover_on_server_shutdown` is off, who has heard a primary that was told to stop passes the lock on: it
    is for one that comes back, and has heard none.

    Args:
        report: is told what is heard of the primary, and what not.
        is_recorded: whether the primary can read of us among the members of the store.
        adopt: is told the intervals that the primary says, if they are others than ours.
    """
    has_heard = False
    while not stop.is_set():
        watcher = Watcher(
            lock,
            clock,
            Intervals(config.ha.heartbeat_interval_s, config.ha.activation_interval_s),
            name=new_unique_name("legato-backup-"),
            has_password=True,
            tls=_tls_context() if config.tls.certificate else None,
            report=report,
            adopt=adopt,
            listen=lambda: "" if is_recorded() else config.advertised,
        )
        lock.listen_to(partial(_silence_ms, watcher, clock))
        if not await _wait_for_lock(lock, watcher, stop):
            return None
        has_heard = has_heard or watcher.watch.heartbeats > 0
        left = lock.predecessor.left if lock.predecessor else ""
        _say_why(lock.predecessor, watcher.lost_for_ms)
        if config.ha.failover_on_server_shutdown or not has_heard or left != SHUTDOWN:
            unserved = lock.predecessor is None and not lock.is_on_new_file
            return Takeover(left or (RETURNED if unserved else CRASHED), watcher.lost_for_ms)
        log.info("= the primary was told to stop: its backups wait for another one")
        lock.release(SHUTDOWN)
        await _until_served(lock, stop)
    return None


async def _until_served(lock: Arbiter, stop: asyncio.Event) -> None:
    """Wait until somebody serves, or has had the lock for so long that it is no backup that passes it on, as we did.

    Other backups do so, one after the other; who went back to waiting for the lock then would get it again.
    """
    loop = asyncio.get_running_loop()
    last, since = lock.holder(), loop.time()
    while (holder := lock.holder()) is not None and not (holder.token and not holder.left):
        if holder != last:
            last, since = holder, loop.time()
        if not holder.left and loop.time() - since >= PASSES_ON_S:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), POLL_S)
            return


def _say_why(last: Holder | None, lost_for_ms: int) -> None:
    """Tell of the end of the last primary, which may have had no time to: its own log may end without a word."""
    if last is None:
        log.info("= the lock is free: who had it last let go of it without having served, or its file is new")
        return
    who = f"process {last.pid} at" if last.pid > 0 else "the broker at"
    primary = f"the primary, {who} {quoted(last.listen)}, epoch {last.epoch},"
    if last.left == STARTED:
        return  # The log begins with this broker.
    if last.left:
        log.info("= %s has let go: %s", sentence(primary), quoted(last.left))
    elif last.pid > 0:
        log.warning("! %s ended without handing over: it was killed, or it crashed", sentence(primary))
    else:
        told = "is silent: nothing was heard of it for its lease"
        log.warning("! %s %s (first noticed %d ms ago)", sentence(primary), told, lost_for_ms)


async def until_taken(lock: Arbiter, stop: asyncio.Event, timeout_s: float | None = None) -> None:
    """Wait until somebody holds the lock that its last holder let go of, until `stop`, or so long at most."""
    loop = asyncio.get_running_loop()
    deadline = None if timeout_s is None else loop.time() + timeout_s
    while (holder := lock.holder()) is not None and holder.left and (deadline is None or loop.time() < deadline):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), POLL_S)
            return


async def until_held_by_another(lock: Arbiter, stop: asyncio.Event) -> None:
    """Wait until somebody holds the lock that was taken from us by replacing its file, or not much longer than that
    takes."""
    deadline = time.monotonic() + LAPSE_MAX_S
    while (holder := lock.holder()) is None or holder.left or holder.pid == os.getpid():
        if time.monotonic() >= deadline:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), POLL_S)
            return


async def outlive_holder(lock: Arbiter, store: Path, stop: asyncio.Event) -> None:
    """If the lock's file is not that of the last holder, wait until a primary that holds the lock on the old file must
    have looked after it (`Lease`) and stepped down; one that was stopped looks before it answers anybody.

    A slow one is given more time, as long as it says that it is the primary.
    """
    if not lock.is_on_new_file or not (store / DATA_NAME).exists():
        return
    log.info("= the lock's file is new: whoever holds the lock on an old one is given time to notice")
    began = time.monotonic()
    while (age_s := time.monotonic() - began) < LAPSE_MAX_S and (age_s < LAPSE_MIN_S or _another_serves(store)):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LAPSE_POLL_S)
            return


def _silence_ms(watcher: Watcher, clock: Clock) -> int:
    return watcher.watch.silence_ms(clock.monotonic_ms())


def _another_serves(store: Path) -> bool:
    roles = {member.role for member in list_members(store) if member.pid != os.getpid()}
    return Role.PRIMARY in roles


async def _wait_for_lock(lock: Arbiter, watcher: Watcher, stop: asyncio.Event) -> bool:
    watching = asyncio.create_task(watcher.run())
    watching.add_done_callback(_explain)
    waiting = asyncio.create_task(asyncio.to_thread(lock.acquire_blocking))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    watching.cancel()
    if stop.is_set():
        lock.cancel()
        with contextlib.suppress(Exception):
            await waiting
        return False
    return await waiting


def _explain(watching: asyncio.Task[None]) -> None:
    """A backup that cannot watch still takes over when the lock is free."""
    if not watching.cancelled() and (error := watching.exception()) is not None:
        log.error("! the primary is not watched any more", exc_info=error)


def _tls_context() -> ssl.SSLContext:
    """Heartbeats decide nothing, the lock does: whose certificate it is does not matter."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
