"""A pool of processes of this machine that read a ledger while Spark still starts."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from types import ModuleType
from typing import Any

Run = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Calls a function with each of some values, wherever that is; returns the answers in their order."""


def here(function: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    """A `Run` of this process alone."""
    return [function(value) for value in values]


@contextmanager
def workers(count: int) -> Iterator[Run]:
    """A `Run` of so many processes, which begin now and are killed at the end of the block.

    They are spawned, not forked: the caller may have threads. Functions are those of modules.
    """
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_begin)
    with _main_hidden():
        pool.submit(int)  # The first task starts all processes.
    processes = list((pool._processes or {}).values())

    def run(function: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
        try:
            return list(pool.map(function, values))
        except (BrokenProcessPool, CancelledError) as broken:
            raise ChildProcessError("A process that was reading the ledger ended: is there enough memory?") from broken

    try:
        yield run
    finally:
        # Whoever leaves the block early does not want the rest. From Python 3.14 on: kill_workers().
        for process in processes:
            process.kill()
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Keep spawned processes from importing the caller's script: without a guard, that would run all of it again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _begin() -> None:
    """Leave interrupts to the caller, and end with it even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent, "a spawned process has one"
    parent.join()
    os._exit(1)
