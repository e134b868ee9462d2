"""F8: a pair of brokers with a million messages waiting: Legato beside Artemis (shared store).

Two figures of each pair: private memory, `RssAnon`, of all processes of the primary once it is filled; and the time
from `kill -9` of the primary to the first message that a client gets from its backup, which goes from one broker to
the other every 5 ms, the same for both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import artemis
from bench.beside import ARTEMIS_NAME, LEGATO_NAME, Aim, Outcome, conclude, require_artemis
from bench.failover import Cluster
from bench.figures import Goal, Pair
from bench.harness import note, options, temporary_store
from bench.processes import RUN, Client, anonymous_bytes_of_family, free_port, load

FIRST = Aim("s", Goal(0.01, at_least=False))
"""When it was set, Legato was 380 times as fast, 50 to 150 times with 300,000 messages: a hundred is to be kept."""
MEMORY = Aim("MB", Goal(0.06, at_least=False))


@dataclass(frozen=True)
class Brokers:
    """A primary with its backup."""

    name: str
    ports: tuple[int, int]
    primary_pid: int
    kill_primary: Callable[[], object]


@contextmanager
def legato_pair(directory: Path) -> Iterator[Brokers]:
    """Two brokers over one store."""
    cluster = Cluster(directory / "legato")
    try:
        ports = cluster.primary.port, cluster.backup.port
        yield Brokers(LEGATO_NAME, ports, cluster.primary.process.pid, cluster.kill_primary)
    finally:
        cluster.stop()


def pair_options(other: int, data: Path, *, backup: bool) -> list[str]:
    """What `artemis create` is told for one of a pair over one store."""
    given = ["--shared-store", "--clustered", "--failover-on-shutdown", "--data", str(data)]
    given += ["--cluster-user", "bench", "--cluster-password", "bench", "--staticCluster", f"tcp://127.0.0.1:{other}"]
    return [*given, "--backup"] if backup else given


@contextmanager
def artemis_pair(directory: Path) -> Iterator[Brokers]:
    """Two brokers over one store, as its guide to high availability sets them up."""
    data, ports = directory / "data", (free_port(), free_port())
    started: list[artemis.Artemis] = []
    try:
        for place, backup in enumerate((False, True)):
            more = pair_options(ports[1 - place], data, backup=backup)
            started.append(artemis.Artemis(directory / f"artemis-{place}", ports[place], more))
            if backup:
                started[place].await_line(artemis.IS_BACKUP)
            else:
                started[place].await_active()
        yield Brokers(ARTEMIS_NAME, ports, started[0].process.pid, started[0].kill)
    finally:
        for each in started:
            each.stop()


def measure(brokers: Brokers, count: int, size: int) -> tuple[float, float]:
    """Seconds to the first message, and megabytes with all of them waiting."""
    load("send", brokers.ports[0], count, size, module=RUN)
    megabytes = anonymous_bytes_of_family(brokers.primary_pid) / 1e6
    client = Client("bench.firstclient", "first", "--ports", ",".join(map(str, brokers.ports)))
    try:
        client.begin()
        killed_at = time.monotonic()
        brokers.kill_primary()
        first_s: float = client.result()["first"] - killed_at
    finally:
        client.end()
    note(f"{brokers.name}: first message after {first_s:.3f} s, {megabytes:.0f} MB")
    return first_s, megabytes


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=1_000_000)
    given = parser.parse_args()
    require_artemis()
    outcomes = [Outcome("first message after kill -9 of the primary", FIRST), Outcome("private memory", MEMORY)]
    for _ in range(given.pairs):
        found = []
        for pair in (legato_pair, artemis_pair):
            with temporary_store() as directory, pair(directory) as brokers:
                found.append(measure(brokers, given.count, given.size))
        for outcome, figure, peer in zip(outcomes, *found, strict=True):
            outcome.pairs.append(Pair(figure, peer))
    question = f"a pair of brokers, {given.count:,} messages of {given.size} bytes waiting, kill -9 of the primary"
    conclude("F8", question, outcomes, versions_of_peers={"artemis": artemis.VERSION})


if __name__ == "__main__":
    main()
