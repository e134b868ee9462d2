"""Patches for one run with replicas: threads, clocks and chance of the replication are those of the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from queue import Empty
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from legato.replication import (
    arbiter,
    chained_claim,
    chained_following,
    chained_log,
    commits,
    log_watch,
    patience,
)
from legato.store import jobs
from simulator.replicas import threads
from simulator.replicas.threads import ThreadClock, ThreadedKernel


@contextmanager
def threads_installed(kernel: ThreadedKernel) -> Iterator[None]:
    """What waits in threads waits in virtual time."""
    threads.Thread.use(kernel)
    clock = ThreadClock()
    threading = SimpleNamespace(
        Thread=threads.Thread,
        Event=threads.Event,
        Condition=threads.Condition,
        Lock=threads.Lock,
        Timer=threads.Timer,
        current_thread=threads.current_thread,
        ExceptHookArgs=tuple,
        excepthook=_raise,
    )
    replaced: list[tuple[Any, str, Any]] = [
        (patience, "time", clock),
        *((module, "elapsed_s", clock.monotonic) for module in (arbiter, chained_claim, chained_following, commits)),
        *((module, "threading", threading) for module in (arbiter, commits, log_watch, jobs)),
        *((module, "Event", threads.Event) for module in (chained_claim, chained_following, chained_log, patience)),
        (chained_claim, "Lock", threads.Lock),
        (chained_claim, "ThreadPoolExecutor", threads.ThreadPoolExecutor),
        (chained_claim, "os", SimpleNamespace(urandom=kernel.random.randbytes)),
        (arbiter, "secrets", SimpleNamespace(token_bytes=kernel.random.randbytes)),
        (jobs, "queue", SimpleNamespace(SimpleQueue=threads.SimpleQueue, Empty=Empty)),
        (jobs, "Future", threads.Future),
    ]
    with ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(patch.object(owner, name, value))
        yield


def _raise(arguments: tuple[Any, ...]) -> None:
    raise arguments[1]
