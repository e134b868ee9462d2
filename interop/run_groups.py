"""`interop/run-groups`: Apache Qpid JMS names a group of brokers, and any broker sends it there."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from interop.broker import ROOT, free_port
from interop.maven import Build, build, pom_version
from interop.outcomes import FAILED, PASSED, Outcome, Report
from interop.run_failover import MAIN, Seen
from legato.client import ConnectionFactory, JMSError, Queue

MESSAGES = 100
JAVA_TIMEOUT_S = 240.0
HERE, THERE = "orders", "rest"
QUEUES = ("interop.failover", "interop.failover.target")
"""What the Java program uses; the second group has both."""


@contextlib.contextmanager
def groups(directory: Path) -> Iterator[dict[str, int]]:
    """Two groups of one broker each; gives their ports."""
    ports = {HERE: free_port(), THERE: free_port()}
    lines = ["revision = 1"]
    for name, port in ports.items():
        lines += ["[[group]]", f'name = "{name}"', f'brokers = ["localhost:{port}"]']
    lines += ["[[pin]]", 'match = "interop.#"', f'group = "{THERE}"']
    (directory / "groups.toml").write_text("\n".join(lines) + "\n")
    with contextlib.ExitStack() as stack:
        for name, port in ports.items():
            config = directory / f"{name}.toml"
            config.write_text(f'[groups]\nname = "{name}"\nmap = "{directory / "groups.toml"}"\n')
            command = [sys.executable, "-m", "legato.cli", "serve", "--store", str(directory / name), "--no-ledger"]
            command += ["--listen", f"localhost:{port}", "--config", str(config)]
            environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
            process = stack.enter_context(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
            stack.callback(process.terminate)
            assert process.stdout is not None
            if not process.stdout.readline().startswith("active"):
                raise RuntimeError(f"the broker of the group {name} did not start")
        yield ports


def java_says(java: Build, what: str, url: str, count: int) -> tuple[Seen, str]:
    """What the program printed, and what it says of an error."""
    seen = Seen()
    done = subprocess.run(
        java.command(MAIN, what, url, str(count)), capture_output=True, text=True, check=False, timeout=JAVA_TIMEOUT_S
    )
    for line in done.stdout.splitlines():
        seen.take(line)
    return seen, done.stderr


def waiting(port: int, queue: str) -> int | None:
    """How many messages wait in a queue of the broker there; None if it is another group's."""
    with ConnectionFactory(f"amqp://localhost:{port}?discover=false").create_connection() as connection:
        session = connection.create_session()
        try:
            with session.create_browser(Queue(queue)) as browser:
                return sum(1 for _ in browser)
        except JMSError:
            return None


def outcomes(java: Build) -> Iterator[Outcome]:
    """One for each thing that is to hold."""
    with tempfile.TemporaryDirectory(prefix="legato-interop-") as directory, groups(Path(directory)) as ports:
        named = f"failover:(amqp://localhost:{ports[HERE]})?failover.nested.amqp.vhost={THERE}"
        seen, error = java_says(java, "send-and-receive", named, MESSAGES)
        numbers = sorted(number for number, _ in seen.received)
        kept = seen.sent == list(range(MESSAGES)) and numbers == list(range(MESSAGES))
        yield outcome("a-redirected-connection-sends-and-receives", kept, f"{len(numbers)} came; {error[-300:]}")
        seen, error = java_says(java, "transfer", named, MESSAGES)
        numbers = sorted(number for number, _ in seen.received)
        yield outcome("its-transactions-commit", numbers == list(range(MESSAGES)), f"{len(numbers)}; {error[-300:]}")
        there = [waiting(ports[THERE], queue) for queue in QUEUES]
        here = [waiting(ports[HERE], queue) for queue in QUEUES]
        yield outcome("all-of-it-was-in-that-group", None not in there and here == [None, None], f"{here}, {there}")
        _, error = java_says(java, "transfer", f"amqp://localhost:{ports[HERE]}", MESSAGES)
        told = f"is an address of the group '{THERE}'" in error
        yield outcome("a-link-to-another-group-is-refused-with-a-sentence", told, error[-300:])


def outcome(name: str, kept: bool, reason: str) -> Outcome:
    """One of them."""
    return Outcome(f"groups.{name}", PASSED if kept else FAILED, 0, "" if kept else reason)


def main() -> int:
    """Run it; returns the exit code."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    started = time.monotonic()
    found = list(outcomes(build()))
    report = Report("groups", found, time.monotonic() - started, {"qpid-jms-client": pom_version("qpid-jms")})
    report.write("groups")
    return report.show()


if __name__ == "__main__":
    sys.exit(main())
