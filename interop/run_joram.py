"""`interop/run-joram`: Joram's conformance tests through Apache Qpid JMS."""

from __future__ import annotations

import argparse
import sys
import time

from interop.broker import Broker
from interop.maven import OWN_JAR, TARGET, build, pom_version
from interop.outcomes import Report
from interop.suite import RUNNER, list_tests, run_tests
from interop.upstream import JORAM

TIMEOUT_MS = 30_000


def main() -> int:
    """Run the suite; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=(), metavar="PART", help="parts of names Class.method")
    parser.add_argument("--trace-frames", action="store_true", help="the broker's log gets every AMQP frame")
    options = parser.parse_args()
    java = build()
    tests = list_tests(java, OWN_JAR, r"org\.objectweb\.jtests\..*Test", options.only)
    started = time.monotonic()
    with Broker(TARGET / "joram-broker.log", trace_frames=options.trace_frames) as served:
        command = java.command(RUNNER, "run", options=[f"-Dlegato.url={served.url}"])
        outcomes = run_tests(
            command, tests, TARGET / "joram-tests.log", timeout_ms=TIMEOUT_MS, known=JORAM, broker=served
        )
    versions = {"joram-jms-tests": pom_version("joram"), "qpid-jms-client": pom_version("qpid-jms")}
    report = Report("joram", outcomes, time.monotonic() - started, versions, JORAM)
    if not options.only:
        report.write("joram")
    return report.show()


if __name__ == "__main__":
    sys.exit(main())
