"""`interop/run-failover`: Apache Qpid JMS carries on and loses nothing while its broker is killed repeatedly."""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from interop.broker import REPLICATED_HELP, Broker, log_of_brokers, new_group
from interop.maven import TARGET, Build, build, pom_version
from interop.outcomes import FAILED, PASSED, Outcome, Report

MAIN = "legato.interop.Failover"
KILLS = 3
MESSAGES_PER_KILL = 400
OPTIONS = "jms.prefetchPolicy.all=100&failover.maxReconnectAttempts=-1&failover.initialReconnectDelay=0"
JAVA_TIMEOUT_S = 240.0


@dataclass
class Seen:
    """What the Java program said."""

    sent: list[int] = field(default_factory=list)
    received: list[tuple[int, int]] = field(default_factory=list)
    """Numbers of messages with their delivery counts, in the order of delivery."""

    def take(self, line: str) -> None:
        """Read one line."""
        kind, *numbers = line.split()
        if kind == "sent":
            self.sent.append(int(numbers[0]))
        elif kind == "received":
            self.received.append((int(numbers[0]), int(numbers[1])))

    def transferred(self, count: int) -> list[Outcome]:
        """What a transaction promises that receives and sends: both or neither, so each message once."""
        numbers = sorted(number for number, _ in self.received)
        lost = sorted(set(range(count)) - set(numbers))
        twice = sorted({one for one, other in itertools.pairwise(numbers) if one == other})
        return [
            outcome("no-transfer-is-lost", not lost, f"lost: {lost[:50]}"),
            outcome("no-transfer-happens-twice", not twice, f"twice: {twice[:50]}"),
        ]

    def outcomes(self, count: int) -> list[Outcome]:
        """What a durable queue promises, and whether it was kept."""
        numbers = [number for number, _ in self.received]
        firsts = list(dict.fromkeys(numbers))
        again = [each for place, each in enumerate(self.received) if each[0] in numbers[:place]]
        silent = [number for number, deliveries in again if deliveries < 2]
        return [
            outcome("every-send-returns", self.sent == list(range(count)), f"{len(self.sent)} of {count} returned"),
            outcome("every-message-comes", set(numbers) == set(range(count)), f"{len(set(numbers))} of {count} came"),
            outcome("messages-come-in-order", firsts == sorted(firsts), f"first deliveries in the order {firsts[:50]}"),
            # Qpid JMS repeats a send whose confirmation was lost, as a new message: one may be under way at a kill.
            outcome("what-comes-again-says-so", len(silent) <= KILLS, f"again as if for the first time: {silent[:50]}"),
        ]


def outcome(name: str, kept: bool, reason: str) -> Outcome:
    """One promise."""
    return Outcome(f"failover.{name}", PASSED if kept else FAILED, 0, "" if kept else reason)


def kill_now_and_then(lines: Iterable[str], seen: Seen, brokers: Sequence[Broker]) -> None:
    """Read what Java says; after every so many sent messages kill the broker that serves, and start it again."""
    kills = 0
    for line in lines:
        seen.take(line)
        if kills < KILLS and len(seen.sent) == (kills + 1) * MESSAGES_PER_KILL:
            serving = brokers[kills % 2]
            serving.kill()
            brokers[(kills + 1) % 2].wait_until_active()
            serving.start(wait=False)
            kills += 1


def run(java: Build, what: str, count: int, log_url: str) -> Seen:
    """Let Java do something while brokers are killed; with a log each has a store of its own."""
    seen = Seen()
    group = new_group()
    with tempfile.TemporaryDirectory(prefix="legato-interop-") as directory:
        stores = [Path(directory, name) for name in (("one", "two") if log_url else ("store", "store"))]
        with (
            Broker(TARGET / f"failover-{what}-one.log", store=stores[0], log_url=log_url, group=group) as one,
            Broker(
                TARGET / f"failover-{what}-two.log", store=stores[1], wait=False, log_url=log_url, group=group
            ) as two,
        ):
            url = f"failover:({one.url},{two.url})?{OPTIONS}"
            command = java.command(MAIN, what, url, str(count))
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                watchdog = threading.Timer(JAVA_TIMEOUT_S, process.kill)
                watchdog.start()
                assert process.stdout is not None
                kill_now_and_then(process.stdout, seen, [one, two])
                watchdog.cancel()
    return seen


def main() -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicated", action="store_true", help=REPLICATED_HELP)
    options = parser.parse_args()
    java = build()
    count = (KILLS + 1) * MESSAGES_PER_KILL
    started = time.monotonic()
    with log_of_brokers(replicated=options.replicated) as log_url:
        outcomes = run(java, "send-and-receive", count, log_url).outcomes(count)
        outcomes += run(java, "transfer", count, log_url).transferred(count)
    versions = {"qpid-jms-client": pom_version("qpid-jms")}
    report = Report("failover", outcomes, time.monotonic() - started, versions)
    report.write("failover-replicated" if options.replicated else "failover")
    return report.show()


if __name__ == "__main__":
    sys.exit(main())
