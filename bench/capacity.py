"""Capacity: what one group costs in flushes, network, disk, memory and processor, and what a fleet of them comes to.

A broker with its ledger serves a steady load; what it used is read from the kernel. Bytes on the network are counted by
a relay in front of it, and flushes by `strace`, in runs of their own, since both cost time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow.parquet as pq

from bench.figures import percentile
from bench.harness import finish, note, options, table, temporary_store
from bench.processes import LEGATO, RAW, RUN, Broker, anonymous_bytes, broker, family_of, send_and_receive, together
from bench.rawclient import RawConnection
from legato.spark.exporter import try_export

CONNECTIONS = 300
WARM_UP = 1_000
"""Messages before what is measured, as fast as it goes: they take few commits."""
TRACED_MAX = 20_000
EXPORT_WAIT_S = 120.0
_CALLS = "fsync,fdatasync,msync,sync_file_range"


@dataclass(frozen=True)
class Cost:
    """What a load cost the broker, for each message that was sent, received and acknowledged."""

    load: str
    messages_per_s: float
    broker_us: float
    """Processor time of the broker's own process."""
    beside_us: float
    """Of the processes beside it, the exporter of the ledger."""
    written_bytes: float
    """Of all calls that write, to the disk and to sockets."""
    ledger_bytes: float
    facts: float
    commits_per_s: float


def _written(pid: int) -> int:
    total = 0
    for member in family_of(pid):
        lines = dict(line.split(": ") for line in Path(f"/proc/{member}/io").read_text().splitlines())
        # Not `write_bytes`, which counts whole folios of the page cache.
        total += int(lines["wchar"])
    return total


def _processor_us(pid: int) -> tuple[float, float]:
    family = family_of(pid)
    tick_us = 1e6 / os.sysconf("SC_CLK_TCK")
    own = sum(family[pid]) * tick_us
    return own, sum(sum(ticks) for member, ticks in family.items() if member != pid) * tick_us


def run_load(port: int, rate: float, count: int, size: int) -> float:
    """Send, receive and acknowledge so many messages, at a rate or (0) as fast as it goes; returns the rate."""
    if not rate:
        return send_and_receive(port, count, size, module=RUN)
    common = ("--port", port, "--count", count, "--size", size)
    began = time.monotonic()
    together(RAW, [("receive", *common), ("latency", *common, "--rate", rate)])
    return count / (time.monotonic() - began)


def ledger_of(store: Path) -> tuple[int, int, int]:
    """Bytes, facts and the last position of the ledger of a store."""
    segments = sorted((store / "ledger").glob("facts-*.parquet"))
    facts = sum(pq.read_metadata(segment).num_rows for segment in segments)
    return sum(s.stat().st_size for s in segments), facts, int(segments[-1].stem.rpartition("-")[2]) if segments else 0


def measure(rate: float, count: int, size: int) -> Cost:
    """The cost of one load."""
    with temporary_store() as store:
        with broker(LEGATO, store) as running:
            run_load(running.port, 0, WARM_UP, size)
            time.sleep(5.0)
            cpu, written = _processor_us(running.process.pid), _written(running.process.pid)
            began = time.monotonic()
            per_s = run_load(running.port, rate, count, size)
            took_s = time.monotonic() - began
            time.sleep(5.0)  # The exporter takes over what is left.
            after, more = _processor_us(running.process.pid), _written(running.process.pid)
        deadline = time.monotonic() + EXPORT_WAIT_S
        # Its exporter may be at it still.
        while not try_export(store, store / "ledger") and time.monotonic() < deadline:
            time.sleep(1.0)
        ledger_bytes, facts, last = ledger_of(store)
    everything = count + WARM_UP
    return Cost(
        f"{rate:,.0f}/s" if rate else "as fast as it goes",
        per_s,
        (after[0] - cpu[0]) / count,
        (after[1] - cpu[1]) / count,
        (more - written) / count,
        ledger_bytes / everything,
        facts / everything,
        last / took_s,
    )


class Relay:
    """A relay on loopback that counts what goes through it, both ways."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.received = self.sent = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            for one, other, is_sent in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=(one, other, is_sent), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_sent: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if is_sent:
                    self.sent += len(data)
                else:
                    self.received += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()


def network_bytes(rate: float, count: int, size: int) -> tuple[float, float]:
    """Bytes that the broker receives and sends for each message, acknowledgements and confirmations included."""
    with temporary_store() as store, broker(LEGATO, store) as running:
        relay = Relay(running.port)
        run_load(relay.port, rate, count, size)
        relay.close()
        return relay.received / count, relay.sent / count


@contextmanager
def _traced(running: Broker, output: Path) -> Iterator[None]:
    command = ["strace", "-f", "-qq", "-e", f"trace={_CALLS}", "-o", str(output), "-p", str(running.process.pid)]
    tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    try:
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait(10)


def flushes(rate: float, count: int, size: int) -> float | None:
    """Flushes of the broker's process for each second of a load; None without strace."""
    if shutil.which("strace") is None:
        return None
    with temporary_store() as store, broker(LEGATO, store) as running:
        output = store / "trace"
        run_load(running.port, 0, 5_000, size)
        with _traced(running, output):
            began = time.monotonic()
            run_load(running.port, rate, count, size)
            took_s = time.monotonic() - began
        calls = sum("(" in line and "resumed" not in line for line in output.read_text().splitlines())
        return calls / took_s


@dataclass(frozen=True)
class Standing:
    """What a group costs that does nothing, and what a connection does."""

    broker_bytes: int
    beside_bytes: int
    idle_core: float
    connection_bytes: float
    connection_us: float


def standing() -> Standing:
    """A broker without load, then with idle connections."""
    with temporary_store() as store, broker(LEGATO, store) as running:
        pid = running.process.pid
        run_load(running.port, 0, 20_000, 256)
        time.sleep(20.0)  # What is beside it is loaded and has caught up.
        before = sum(_processor_us(pid))
        time.sleep(10.0)
        idle = (sum(_processor_us(pid)) - before) / 10e6
        own, all_bytes = running.anonymous_bytes(), _family_bytes(pid)
        cpu = _processor_us(pid)[0]
        held = [RawConnection(running.port, f"idle-{number}") for number in range(CONNECTIONS)]
        per_connection = (_processor_us(pid)[0] - cpu) / CONNECTIONS
        more = running.anonymous_bytes()
        for connection in held:
            connection.socket.close()
    return Standing(own, all_bytes - own, idle, (more - own) / CONNECTIONS, per_connection)


def _family_bytes(pid: int) -> int:
    return sum(anonymous_bytes(member) for member in family_of(pid))


def main() -> None:
    """Command line."""
    parser: argparse.ArgumentParser = options(__doc__, count=40_000)
    parser.add_argument("--rates", default="1000,5000,0", help="messages a second, by commas; 0: as fast as it goes")
    given = parser.parse_args()
    rates = [float(rate) for rate in given.rates.split(",")]
    runs: list[Cost] = []
    for _ in range(given.pairs):
        for rate in rates:
            count = given.count if not rate else min(given.count, int(rate * 8))
            runs.append(measure(rate, count, given.size))
            note(str(runs[-1]))
    still = standing()
    note(str(still))
    traced = {
        rate: flushes(rate, TRACED_MAX if not rate else min(TRACED_MAX, int(rate * 5)), given.size) for rate in rates
    }
    network = network_bytes(0, TRACED_MAX, given.size)
    columns = ["messages_per_s", "broker_us", "beside_us", "written_bytes", "ledger_bytes", "facts", "commits_per_s"]
    rows = []
    for number, rate in enumerate(rates):
        same = runs[number :: len(rates)]
        found = [percentile([getattr(run, column) for run in same], 50) for column in columns]
        rows.append([same[0].load, *found, traced[rate] if traced[rate] is not None else "-"])
    headings = [
        "load",
        "msg/s",
        "broker, us",
        "beside, us",
        "written, B",
        "ledger, B",
        "facts",
        "commits/s",
        "flushes/s",
    ]
    text = table(headings, rows)
    text += (
        f"\n\nnetwork, bytes for each message: {network[0]:.0f} received, {network[1]:.0f} sent"
        f"\nprivate memory: broker {still.broker_bytes / 1e6:.0f} MB, beside it {still.beside_bytes / 1e6:.0f} MB; "
        f"idle {still.idle_core:.3f} core"
        f"\na connection: {still.connection_bytes / 1e3:.1f} kB, {still.connection_us:.0f} us to let in (no login)"
    )
    broker_us = [run.broker_us for run in runs[len(rates) - 1 :: len(rates)]]
    figure = percentile(broker_us, 50)
    result = {
        "figure": round(figure, 2),
        "peer": None,
        "ratio": None,
        "min": round(min(broker_us), 2),
        "median": round(figure, 2),
        "max": round(max(broker_us), 2),
        "goal": None,
        "met": None,
        "unit": "us of the broker's processor a message",
    }
    finish(
        "CAPACITY",
        f"what one group costs, messages of {given.size} bytes",
        text,
        result,
        runs=[asdict(r) for r in runs],
    )


if __name__ == "__main__":
    main()
