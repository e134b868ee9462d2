"""The event loop of stages that are coroutine functions: one for the process, in a thread of its own.

A stage keeps the worker's thread until it has ended, so its transaction is that of any other stage. All of them share
one loop, so that they can share clients and pools, which belong to the loop that they were first used in.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

logger = logging.getLogger(__name__)

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


def complete(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns, or raises; waits for it in this thread, with this thread's context variables."""
    loop = _running_loop()
    ended: Future[Any] = Future()
    task: asyncio.Task[None] | None = None

    async def follow() -> None:
        try:
            returned = await coroutine
        except BaseException as error:
            # Also `SystemExit`, which would end the loop for everybody.
            ended.set_exception(error)
        else:
            ended.set_result(returned)

    def begin() -> None:
        nonlocal task
        task = loop.create_task(follow(), context=context)
        task.add_done_callback(conclude)

    def conclude(_: object) -> None:
        if not ended.done():
            # Another stage cancelled it, with all tasks of the loop perhaps, before it had begun.
            coroutine.close()
            ended.set_exception(asyncio.CancelledError())

    context = contextvars.copy_context()
    loop.call_soon_threadsafe(begin)
    try:
        return ended.result()
    except BaseException:
        if not ended.done():
            # Ctrl-C, in a thread that gets it.
            loop.call_soon_threadsafe(lambda: task is not None and task.cancel())
        raise


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop, _pid
    with _lock:
        if _loop is None or _pid != os.getpid():
            _loop, _pid = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=_run, args=(_loop,), name="legato flows coroutines", daemon=True).start()
        return _loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        try:
            loop.run_forever()
        except BaseException as error:
            # `SystemExit` of a task that a stage began: who awaits that task has it too. The loop is everybody's.
            logger.warning("A task of a stage would have ended the event loop of all stages: %r", error)
