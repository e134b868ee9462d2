"""A Celery application as it was written for quorum queues of RabbitMQ; the URL is in `BROKER_URL`."""

from __future__ import annotations

import os
import time

from celery import Celery

import legato.kombu

assert legato.kombu

app = Celery("quorum", broker=os.environ.get("BROKER_URL", "legato://localhost:1"), backend="rpc://")
app.conf.update(
    task_default_queue="quorum",
    task_default_queue_type="quorum",
    task_default_exchange_type="topic",
    task_acks_late=True,
    broker_connection_retry_on_startup=True,
)


@app.task
def when() -> float:
    return time.time()
