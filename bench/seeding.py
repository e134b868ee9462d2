"""P21: what a copy of the store costs the broker that sends it: P1 while copies are fetched, and alone.

Copies are fetched one after the other, into memory: on another machine they would cost neither this one's disk nor its
processor for what receives them.
"""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import mkdtemp

from bench.figures import Goal, interleave
from bench.harness import finish_pairs, note, options, temporary_store
from bench.processes import LEGATO, RUN, broker, load, send_and_receive

WARM_UP = 20_000
MEMORY = Path("/dev/shm")


def fetch_on(port: int, begun: Event, ends: Event) -> None:
    """Fetch copies until it is time to end."""
    from legato.bulk.store_fetch import fetch_store

    directory = Path(mkdtemp(dir=MEMORY))

    def told(done: int, total: int) -> None:
        begun.set()
        if ends.is_set():
            raise KeyboardInterrupt

    try:
        while not ends.is_set():
            began = time.monotonic()
            manifest = fetch_store(f"amqp://127.0.0.1:{port}", directory / "copy", told)
            rate = manifest.data_bytes / 1e6 / (time.monotonic() - began)
            note(f"a copy of {manifest.data_bytes / 1e6:,.0f} MB, {rate:,.0f} MB/s")
            shutil.rmtree(directory / "copy")
    except KeyboardInterrupt:
        pass
    finally:
        shutil.rmtree(directory)


@contextmanager
def copying(port: int) -> Iterator[None]:
    """Copies are fetched meanwhile."""
    context = multiprocessing.get_context("spawn")
    begun, ends = context.Event(), context.Event()
    process = context.Process(target=fetch_on, args=(port, begun, ends))
    process.start()
    try:
        if not begun.wait(120):
            raise RuntimeError("no copy began")
        yield
    finally:
        ends.set()
        process.join()


def measure(port: int, count: int, size: int, *, copies: bool) -> float:
    """Messages a second through a queue that is empty."""
    if copies:
        with copying(port):
            rate = send_and_receive(port, count, size, module=RUN)
    else:
        rate = send_and_receive(port, count, size, module=RUN)
    note(f"{'while copies are fetched' if copies else 'alone'}: {rate:,.0f} msg/s")
    return rate


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=300_000)
    parser.add_argument("--waiting", type=int, default=3_000_000, help="messages that wait in another queue")
    given = parser.parse_args()
    with temporary_store() as store, broker(LEGATO, store) as running:
        load("send", running.port, given.waiting, given.size, "--address", "waiting", module=RUN)
        send_and_receive(running.port, WARM_UP, given.size, module=RUN)
        run = partial(measure, running.port, given.count, given.size)
        pairs = interleave(partial(run, copies=True), partial(run, copies=False), given.pairs)
    finish_pairs(
        "P21",
        f"{given.size} bytes sent and received, while a store of {given.waiting:,} messages is copied and alone",
        ("while copied", "alone"),
        pairs,
        Goal(0.7, at_least=True),
        unit="msg/s",
    )


if __name__ == "__main__":
    main()
