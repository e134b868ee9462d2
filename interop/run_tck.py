"""`interop/run-tck`: the Jakarta Messaging 3.1 TCK, outside a container, through Apache Qpid JMS."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path

from interop.broker import REPLICATED_HELP, Broker, log_of_brokers
from interop.maven import TARGET, Build, build, pom_version
from interop.outcomes import Report
from interop.security import Security
from interop.suite import RUNNER, list_tests, run_tests
from interop.upstream import TCK, TCK_PREFETCHING

TIMEOUT_MS = 110_000
"""Longer than the longest tests wait: a minute for a listener that nobody calls, twice thirty seconds for a delay."""
RECEIVE_WAIT_MS = 2_500
"""The TCK's `jms_timeout`: how long its tests wait for a message, also for one that must not come."""
DEFAULT_PREFETCH = 1000
FACTORIES = ("MyConnectionFactory", "MyQueueConnectionFactory", "MyTopicConnectionFactory")
QUEUES = ("MY_QUEUE", "MY_QUEUE2", "testQ0", "testQ1", "testQ2", "testQueue2", "Q2")
TOPICS = ("MY_TOPIC", "MY_TOPIC1", "MY_TOPIC2", "testT0", "testT1", "testT2")


def jndi_properties(url: str, prefetch: int) -> str:
    """What the TCK looks up, in the words of Qpid's JNDI (`jndi.properties`)."""
    url += f"{'&' if '?' in url else '?'}jms.prefetchPolicy.all={prefetch}"
    lines = ["java.naming.factory.initial=org.apache.qpid.jms.jndi.JmsInitialContextFactory"]
    lines += [f"connectionfactory.{name}={url}" for name in FACTORIES]
    lines += [f"connectionfactory.DURABLE_SUB_CONNECTION_FACTORY={url}&jms.clientID=cts"]
    lines += [f"queue.{name}={name}" for name in QUEUES]
    lines += [f"topic.{name}={name}" for name in TOPICS]
    return "".join(f"{line}\n" for line in lines)


def given(jar: Path) -> str:
    """What a result says of a jar that did not come from Maven Central."""
    return f"a jar that was given, SHA-256 {hashlib.sha256(jar.read_bytes()).hexdigest()}"


def main() -> int:
    """Run the suite; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--prefetch", type=int, default=DEFAULT_PREFETCH, help="credit of consumers (default %(default)s)"
    )
    parser.add_argument("--only", nargs="+", default=(), metavar="PART", help="parts of names Class.method")
    parser.add_argument("--trace-frames", action="store_true", help="the broker's log gets every AMQP frame")
    parser.add_argument(
        "--jar",
        type=Path,
        default=os.environ.get("LEGATO_TCK_JAR"),
        help="jms-tck.jar, where Maven Central does not serve it (default $LEGATO_TCK_JAR)",
    )
    parser.add_argument(
        "--secure",
        metavar="MECHANISM",
        nargs="?",
        const="SCRAM-SHA-256",
        help="the broker has TLS, a user and roles; log in by this mechanism (default SCRAM-SHA-256)",
    )
    parser.add_argument("--replicated", action="store_true", help=REPLICATED_HELP)
    options = parser.parse_args()
    java = Build((*build().classpath, str(options.jar))) if options.jar else build("tck")
    jar = options.jar or java.find("jms-tck")
    tests = list_tests(java, jar, r"com\.sun\.ts\.tests\.jms\.core.*IT", options.only)
    started = time.monotonic()
    name = f"tck-prefetch-{options.prefetch}" + (f"-secure-{options.secure}" if options.secure else "")
    name += "-replicated" if options.replicated else ""
    known = {**TCK, **(TCK_PREFETCHING if options.prefetch else {})}
    with (
        tempfile.TemporaryDirectory(prefix="legato-tck-") as directory,
        log_of_brokers(replicated=options.replicated) as log_url,
        Broker(
            TARGET / f"{name}-broker.log",
            users=() if options.secure else ["j2ee:j2ee"],
            trace_frames=options.trace_frames,
            security=Security(Path(directory), "j2ee", "j2ee", options.secure) if options.secure else None,
            log_url=log_url,
        ) as served,
    ):
        Path(directory, "jndi.properties").write_text(jndi_properties(served.url, options.prefetch))
        properties = {
            "user": "j2ee",
            "password": "j2ee",
            "jms_timeout": str(RECEIVE_WAIT_MS),
            "platform.mode": "standalone",
            "vehicle": "standalone",
            "user.dir": directory,
        }
        command = java.command(
            RUNNER,
            "run",
            first=[Path(directory)],
            options=[f"-D{key}={value}" for key, value in properties.items()],
        )
        outcomes = run_tests(
            command, tests, TARGET / f"{name}-tests.log", timeout_ms=TIMEOUT_MS, known=known, broker=served
        )
    versions = {
        "jms-tck": given(options.jar) if options.jar else pom_version("tck"),
        "qpid-jms-client": pom_version("qpid-jms"),
    }
    report = Report(name, outcomes, time.monotonic() - started, versions, known)
    if not options.only:
        report.write(name)
    return report.show()


if __name__ == "__main__":
    sys.exit(main())
