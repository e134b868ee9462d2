"""Services of Flows, FastStream and Celery that work on a message until a file is there, for tests of their ends.

python -m tests.support.ending_services flows URL FILE          # works
python -m tests.support.ending_services flows URL FILE give     # gives it something to do
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from legato.flows import Context, Flows, Policy

STOP_S = 0.3
LOOK_S = 0.02


def flows(url: str, until: Path, give: bool) -> None:
    """A service of two stages that run at the same time."""
    service = Flows(url, name="shop", policy=Policy(concurrency=2))

    @service.terminator("Work")
    def work(context: Context[None], item: str) -> None:
        print(f"has {item}", flush=True)
        while not until.exists():
            time.sleep(LOOK_S)
        context.initiate("on").send("Done", item)
        print(f"is done with {item}", flush=True)

    if give:
        for item in ("tea", "milk"):
            service.send("Work", item, trace_id=item)
        service.stop()
    else:
        service.run(stop_timeout_s=STOP_S)


def faststream(url: str, until: Path, give: bool) -> None:
    """A subscriber."""
    from faststream import FastStream

    from legato.faststream import LegatoBroker

    broker = LegatoBroker(url, graceful_timeout=STOP_S)

    @broker.subscriber("work")
    async def work(item: str) -> None:
        print(f"has {item}", flush=True)
        while not until.exists():  # noqa: ASYNC110, ASYNC240 - a test in another process makes it
            await asyncio.sleep(LOOK_S)
        print(f"is done with {item}", flush=True)

    async def send() -> None:
        async with LegatoBroker(url) as sender:
            await sender.publish("tea", "work")

    asyncio.run(send() if give else FastStream(broker).run())


def celery_application() -> Any:
    """An application whose one task does the same; its URL and file are in the environment."""
    from celery import Celery

    import legato.kombu  # noqa: F401

    application = Celery("ending", broker=os.environ["ENDING_URL"])
    application.conf.update(task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=1)

    @application.task(name="work")
    def work(item: str) -> None:
        print(f"has {item}", flush=True)
        while not Path(os.environ["ENDING_FILE"]).exists():
            time.sleep(LOOK_S)
        print(f"is done with {item}", flush=True)

    return application


def celery(url: str, until: Path, give: bool) -> None:
    """A worker with processes of its own."""
    os.environ |= {"ENDING_URL": url.replace("amqp://", "legato://"), "ENDING_FILE": str(until)}
    application = celery_application()
    if give:
        application.send_task("work", ("tea",))
    else:
        application.worker_main(["worker", "--concurrency", "1", "--loglevel", "INFO"])


def main() -> None:
    """Work, or give work."""
    logging.basicConfig(level=logging.INFO)
    service, url, until = sys.argv[1:4]
    {"flows": flows, "faststream": faststream, "celery": celery}[service](url, Path(until), len(sys.argv) > 4)


if __name__ == "__main__":
    main()
