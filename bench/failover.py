"""A primary, its backup and a client that sends and receives, while the primary is killed repeatedly."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.processes import LEGATO, Broker, free_port
from legato.cli.management import request
from legato.client import BytesMessage, ConnectionFactory

PACE_S = 0.001
SETTLED_S = (0.3, 0.6)
KILL_TIMEOUT_S = 30.0
JOIN_S = 5.0


class Cluster:
    """Two brokers over one store. The dead one is restarted when its successor serves, and becomes the backup."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.primary = Broker(LEGATO, store, free_port())
        self.primary.await_line("active")
        self.backup = Broker(LEGATO, store, free_port())
        self.backup.await_line("backup")

    @property
    def url(self) -> str:
        """Where clients connect: both brokers."""
        return f"amqp://127.0.0.1:{self.primary.port},127.0.0.1:{self.backup.port}"

    def kill_primary(self) -> float:
        """SIGKILL the primary; returns when (CLOCK_MONOTONIC) that was."""
        killed_at = time.monotonic()
        self.primary.kill()
        return killed_at

    def await_takeover(self) -> None:
        """Wait until the backup is the primary."""
        self.backup.await_line("active")

    def heal(self) -> None:
        """Give the new primary a backup."""
        dead, self.primary = self.primary, self.backup
        self.backup = Broker(LEGATO, self.store, dead.port)
        self.backup.await_line("backup")

    def switch_over(self) -> float:
        """Have the backup take over; returns when (CLOCK_MONOTONIC) that was asked for."""
        asked_at = time.monotonic()
        request(self.url, "switchover", "broker")
        self.backup.await_line("active")
        self.primary.await_line("backup")
        self.primary, self.backup = self.backup, self.primary
        return asked_at

    def stop(self) -> None:
        """End both."""
        self.backup.stop()
        self.primary.stop()


class Probe:
    """A client with one sender and one receiver, each in a thread; both note when they got something done."""

    def __init__(self, url: str, address: str, size: int) -> None:
        self.connection = ConnectionFactory(url).create_connection()
        self.address = address
        self.body = b"x" * size
        self.ended = threading.Event()
        self.progress = threading.Condition()
        self.last_at = {"send": 0.0, "receive": 0.0}
        self.gaps: dict[str, list[tuple[float, float]]] = {"send": [], "receive": []}
        self.failures: list[BaseException] = []
        self.threads = [
            threading.Thread(target=self._guard, args=(work,), daemon=True) for work in (self._send, self._receive)
        ]
        self.connection.start()
        for thread in self.threads:
            thread.start()

    def _guard(self, work: object) -> None:
        assert callable(work)
        try:
            work()
        except Exception as error:
            with self.progress:
                self.failures.append(error)
                self.progress.notify_all()

    def _note(self, what: str) -> None:
        now = time.monotonic()
        with self.progress:
            self.gaps[what].append((self.last_at[what] or now, now))
            self.last_at[what] = now
            self.progress.notify_all()
        time.sleep(PACE_S)

    def _send(self) -> None:
        with self.connection.create_session() as session:
            producer = session.create_producer(session.create_queue(self.address))
            while not self.ended.is_set():
                producer.send(BytesMessage(self.body))
                self._note("send")

    def _receive(self) -> None:
        with self.connection.create_session() as session:
            consumer = session.create_consumer(session.create_queue(self.address))
            while not self.ended.is_set():
                if consumer.receive(timeout_s=0.5) is not None:
                    self._note("receive")

    def await_work_after(self, instant: float) -> None:
        """Block until a send that ended, and a receive that ended, later than `instant`.

        Raises:
            RuntimeError: the client gave up, or neither happened within half a minute.
        """

        def both() -> bool:
            return bool(self.failures) or min(self.last_at.values()) > instant

        with self.progress:
            if not self.progress.wait_for(both, KILL_TIMEOUT_S):
                raise RuntimeError(f"the client did nothing for {KILL_TIMEOUT_S:g} s")
            if self.failures:
                raise RuntimeError("the client gave up") from self.failures[0]

    def gap_s(self, killed_at: float) -> float:
        """The longest pause of the sender or the receiver that ended after the kill."""
        with self.progress:
            return max(end - begin for each in self.gaps.values() for begin, end in each if end > killed_at)

    def stop(self) -> None:
        """End both threads and close; a thread that waits for brokers which are gone for good ends with the process."""
        self.ended.set()
        for thread in self.threads:
            thread.join(JOIN_S)
        self.connection.close()


class Drill:
    """A cluster under a client, whose primary can be killed again and again."""

    def __init__(self, cluster: Cluster, probe: Probe, seed: int) -> None:
        self.cluster = cluster
        self.probe = probe
        self.random = random.Random(seed)

    def kill(self) -> float:
        """Kill the primary; returns the pause that the client saw, in milliseconds."""
        self.probe.await_work_after(time.monotonic())
        time.sleep(self.random.uniform(*SETTLED_S))
        killed_at = self.cluster.kill_primary()
        self.cluster.await_takeover()
        # The start of a process takes a processor for ten times as long as the pause: it is not what is measured.
        self.probe.await_work_after(time.monotonic())
        gap_ms = self.probe.gap_s(killed_at) * 1000
        self.cluster.heal()
        return gap_ms

    def switch_over(self) -> float:
        """Have the backup take over; returns the pause that the client saw, in milliseconds."""
        self.probe.await_work_after(time.monotonic())
        time.sleep(self.random.uniform(*SETTLED_S))
        asked_at = self.cluster.switch_over()
        self.probe.await_work_after(time.monotonic())
        return self.probe.gap_s(asked_at) * 1000


@contextmanager
def drill(store: Path, size: int, seed: int) -> Iterator[Drill]:
    """A cluster over `store` with a client at work, ended afterwards."""
    cluster = Cluster(store)
    try:
        probe = Probe(cluster.url, "bench", size)
        try:
            yield Drill(cluster, probe, seed)
        finally:
            probe.stop()
    finally:
        cluster.stop()
