"""F6: Apache Qpid JMS as the client, a Java program for each run: Legato beside Artemis.

Synchronous sends with one thread and with eight; eight threads that send and commit; asynchronous sends to a listener.
What was sent without a receiver is taken away and counted after each run, outside of what is measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from interop.maven import Build, build, pom_version

from bench.beside import Case, Measured, Served, answer, at_least, only, rate_of
from bench.harness import options
from bench.processes import RUN, load

MAIN = "legato.interop.Load"
QUEUE = "bench-jms"
WARM_UP_SHARE = 4
"""A run is preceded by so much of it, in the same virtual machine, that does not count."""
LISTENED_SHARE = 5
"""Times as many messages for the listener: they take so much less."""
C2_TOO = ("-XX:TieredStopAtLevel=4", "-Xshare:auto")
"""The suites of interop save on compiling, a client that is measured does not."""


@dataclass(frozen=True)
class Style:
    """A way to send."""

    name: str
    what: str
    threads: int
    goal: float
    unit: str = "msg/s"


STYLES = (
    Style("synchronous, 1 thread", "sync", 1, 1.0),
    Style("synchronous, 8 threads", "sync", 8, 1.1),
    Style("send and commit, 8 threads", "commit", 8, 1.1, "tx/s"),
    Style("asynchronous, to a listener", "async", 1, 1.5),
)


def arguments(style: Style, port: int, count: int, size: int) -> list[str]:
    """What the Java program is told."""
    url = f"amqp://127.0.0.1:{port}?amqp.saslMechanisms=ANONYMOUS"
    return [url, style.what, QUEUE, str(style.threads), str(count // WARM_UP_SHARE), str(count), str(size)]


def case_of(style: Style, built: Build, count: int, size: int) -> Case:
    """The case of one style."""
    count = count * LISTENED_SHARE if style.what == "async" else count

    def run(served: Served) -> Measured:
        command = built.command(MAIN, *arguments(style, served.port, count, size), options=C2_TOO)
        before = served.processor_s()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the Java program failed:\n{done.stderr.strip()[-2000:]}")
        processor_s = served.processor_s() - before
        found = json.loads(done.stdout.splitlines()[-1])
        waiting = load("drain", served.port, 0, size, "--address", QUEUE, module=RUN)["count"]
        sent = found["count"] + count // WARM_UP_SHARE // style.threads * style.threads
        expected = 0 if style.what == "async" else sent
        if waiting != expected:
            raise RuntimeError(f"{waiting} messages wait behind the run, not {expected}")
        # The warm-up cost the broker as much a message as the rest.
        processor_s *= found["count"] / sent
        return Measured((rate_of([found], found["count"]),), found["count"], processor_s)

    return Case(style.name, run, at_least(style.unit, style.goal), 3 * count)


def main() -> None:
    """Command line."""
    parser = only(options(__doc__, count=10_000))
    parser.description = (
        f"{__doc__} --count is for the cases without a listener, which gets {LISTENED_SHARE} x as many."
    )
    given = parser.parse_args()
    try:
        built = build()
    except (OSError, RuntimeError) as error:
        print(f"The Java program could not be built, which needs Maven and a JDK: {error}", file=sys.stderr)
        sys.exit(2)
    cases = [case_of(style, built, given.count, given.size) for style in STYLES]
    answer("F6", f"messages a second through Apache Qpid JMS {pom_version('qpid-jms')}", cases, given)


if __name__ == "__main__":
    main()
