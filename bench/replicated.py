"""A broker with a replicated log on three servers of this machine, and a backup, against a broker alone.

`throughput`: `p1`. `latency`: a confirmed send at a steady rate, received meanwhile. All servers of the log share the
disk and the cores with the broker, the backup and the clients: on machines of their own they cost less.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from bench.figures import Goal, Pair, interleave, percentile, spread
from bench.harness import finish_pairs, note, options, temporary_store
from bench.processes import LEGATO, RAW, RUN, Broker, broker, free_port, send_and_receive, together
from legato.testing.log_servers import log_servers

WARM_UP = 20_000
P1_GOAL = Goal(0.5, at_least=True)
P50_GOAL = Goal(3.0, at_least=False)
_groups = itertools.count(1)


@contextmanager
def alone() -> Iterator[Broker]:
    """A broker without a log."""
    with temporary_store() as store, broker(LEGATO, store) as running:
        yield running


@contextmanager
def replicated(servers: str, *, backups: int) -> Iterator[Broker]:
    """A primary with a log, and so many backups."""
    environment = {
        "LEGATO_REPLICATION_SERVERS": servers,
        "LEGATO_REPLICATION_GROUP": f"bench-{next(_groups)}",
        "LEGATO_LEDGER_ENABLED": "false",
    }
    with temporary_store() as store, broker(LEGATO, store, environment) as running, ExitStack() as stack:
        for _ in range(backups):
            backup = Broker(LEGATO, stack.enter_context(temporary_store()), free_port(), environment)
            stack.callback(backup.stop)
            backup.await_line("backup")
        yield running


def throughput(kind: str, running: Broker, count: int, size: int) -> float:
    """Messages a second through one queue."""
    send_and_receive(running.port, WARM_UP, size, module=RUN)
    rate = send_and_receive(running.port, count, size, module=RUN)
    note(f"{kind}: {rate:,.0f} msg/s")
    return rate


def latencies(kind: str, running: Broker, rate: int, count: int, size: int) -> tuple[float, float]:
    """Median and 99th percentile of the time until a send is confirmed, in milliseconds."""
    send_and_receive(running.port, rate, size)
    common = ("--port", running.port, "--count", count, "--size", size)
    _, sent = together(RAW, [("receive", *common), ("latency", *common, "--rate", rate)])
    found = [value * 1000 for value in sent["latencies_s"]]
    p50, p99 = percentile(found, 50), percentile(found, 99)
    note(f"{kind}: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    return p50, p99


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=100_000)
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second, for the latency")
    parser.add_argument("--seconds", type=float, default=8.0, help="for so long")
    parser.add_argument("--backups", type=int, default=1, help="backups of the replicated broker")
    parser.add_argument("--only", choices=["throughput", "latency"], help="one of the two")
    given = parser.parse_args()
    with log_servers() as servers:
        group = partial(replicated, servers.url, backups=given.backups)
        if given.only != "latency":

            def rate(kind: str) -> float:
                with group() if kind == "replicated" else alone() as running:
                    return throughput(kind, running, given.count, given.size)

            pairs = interleave(partial(rate, "replicated"), partial(rate, "alone"), given.pairs)
            finish_pairs(
                "replicated-throughput",
                f"durable send + receive of {given.count:,} messages of {given.size} bytes with a replicated log",
                ("replicated", "alone"),
                pairs,
                P1_GOAL,
                unit="msg/s",
            )
        if given.only != "throughput":
            tails: dict[str, list[float]] = {"replicated": [], "alone": []}

            def p50(kind: str) -> float:
                with group() if kind == "replicated" else alone() as running:
                    count = round(given.rate * given.seconds)
                    median, tail = latencies(kind, running, given.rate, count, given.size)
                tails[kind].append(tail)
                return median

            pairs = interleave(partial(p50, "replicated"), partial(p50, "alone"), given.pairs)
            at_tail = [Pair(*both).ratio for both in zip(tails["replicated"], tails["alone"], strict=True)]
            finish_pairs(
                "replicated-latency",
                f"time until a send is confirmed at {given.rate:,} msg/s, received meanwhile",
                ("replicated", "alone"),
                pairs,
                P50_GOAL,
                unit="ms",
                p99_ratio=round(spread(at_tail).median, 2),
            )


if __name__ == "__main__":
    main()
