"""A Celery application for tests; its worker is started with BROKER_URL in its environment."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from celery import Celery
from kombu import Queue
from kombu.common import Broadcast

import legato.kombu

assert legato.kombu

LOOK_S = 0.01

app = Celery("tests", broker=os.environ.get("BROKER_URL", "legato://localhost"), backend="rpc://")
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    task_create_missing_queues=True,
    task_queues=[Queue("celery"), Broadcast("all")],
    task_reject_on_worker_lost=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_prefetch_multiplier=1,
)


@app.task
def add(x: int, y: int) -> int:
    """A task with a result."""
    return x + y


@app.task(bind=True, max_retries=5)
def flaky(self: Any, failures: int) -> int:
    """Fails so often."""
    if self.request.retries < failures:
        raise self.retry(countdown=0.05)
    return int(self.request.retries)


@app.task(bind=True)
def when(self: Any) -> tuple[float, bool]:
    """When it ran, and whether it may have run before."""
    return time.time(), bool(self.request.delivery_info["redelivered"])


@app.task
def note(path: str, text: str) -> None:
    """Write a line."""
    with Path(path).open("a") as file:
        file.write(text + "\n")


@app.task(ignore_result=True)
def wait_for(path: str, notes: str) -> None:
    """Run until a file is there, and write a line."""
    while not Path(path).exists():
        time.sleep(LOOK_S)
    note(notes, "done")


@app.task
def die_once(path: str) -> str:
    """Kill the process that runs it, the first time."""
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@app.task
def spawn(count: int) -> int:
    """Call other tasks from a task's own process."""
    for number in range(count):
        add.apply_async((number, number), ignore_result=True)
    return count
