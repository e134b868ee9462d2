"""`interop/run-joram`: Joram's conformance tests through Apache Qpid JMS."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from interop.broker import REPLICATED_HELP, Broker, log_of_brokers
from interop.maven import OWN_JAR, TARGET, build, pom_version
from interop.outcomes import Report
from interop.security import Security
from interop.suite import RUNNER, list_tests, run_tests
from interop.upstream import JORAM

TIMEOUT_MS = 30_000


def main() -> int:
    """Run the suite; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=(), metavar="PART", help="parts of names Class.method")
    parser.add_argument("--trace-frames", action="store_true", help="the broker's log gets every AMQP frame")
    parser.add_argument(
        "--secure",
        metavar="MECHANISM",
        nargs="?",
        const="SCRAM-SHA-256",
        help="the broker has TLS, a user and roles; log in by this mechanism (default SCRAM-SHA-256)",
    )
    parser.add_argument("--replicated", action="store_true", help=REPLICATED_HELP)
    options = parser.parse_args()
    java = build()
    tests = list_tests(java, OWN_JAR, r"org\.objectweb\.jtests\..*Test", options.only)
    started = time.monotonic()
    name = f"joram-secure-{options.secure}" if options.secure else "joram"
    name += "-replicated" if options.replicated else ""
    with (
        tempfile.TemporaryDirectory(prefix="legato-joram-") as directory,
        log_of_brokers(replicated=options.replicated) as log_url,
        Broker(
            TARGET / f"{name}-broker.log",
            trace_frames=options.trace_frames,
            security=Security(Path(directory), "joram", "joram", options.secure) if options.secure else None,
            log_url=log_url,
        ) as served,
    ):
        command = java.command(RUNNER, "run", options=[f"-Dlegato.url={served.url}"])
        outcomes = run_tests(
            command, tests, TARGET / f"{name}-tests.log", timeout_ms=TIMEOUT_MS, known=JORAM, broker=served
        )
    versions = {"joram-jms-tests": pom_version("joram"), "qpid-jms-client": pom_version("qpid-jms")}
    report = Report(name, outcomes, time.monotonic() - started, versions, JORAM)
    if not options.only:
        report.write(name)
    return report.show()


if __name__ == "__main__":
    sys.exit(main())
