"""`interop/run-roundtrip`: messages of every type go from Java to Python and back, and the other way, unchanged."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

from interop.broker import REPLICATED_HELP, Broker, log_of_brokers
from interop.descriptions import INDEX, describe
from interop.every_type import every_type
from interop.maven import TARGET, Build, build, pom_version
from interop.outcomes import FAILED, PASSED, Outcome, Report
from legato.client import Connection, ConnectionFactory, Message

MAIN = "legato.interop.RoundTrip"
WAIT_S = 20.0
JAVA_TIMEOUT_S = 120.0


class JavaSide:
    """The Java program, started anew for each thing it does."""

    def __init__(self, java: Build, url: str) -> None:
        self._java, self._url = java, url

    def do(self, what: str, *arguments: str) -> list[str]:
        """Send, receive or forward; returns the descriptions of the messages in the order of their index."""
        command = self._java.command(MAIN, what, self._url, *arguments)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=JAVA_TIMEOUT_S)
        return by_index(done.stdout.splitlines())


class PythonSide:
    """The same with Legato's client."""

    def __init__(self, connection: Connection) -> None:
        self._session = connection.create_session()

    def send(self, queue: str) -> list[str]:
        """Send one message of every type."""
        messages = every_type(self._session)
        with self._session.create_producer(self._session.create_queue(queue)) as producer:
            for message, mode in messages:
                producer.send(message, delivery_mode=mode, priority=message.get_int_property(INDEX) % 10)
        return by_index([describe(message) for message, _ in messages])

    def receive(self, queue: str, count: int) -> list[Message]:
        """Receive so many messages."""
        with self._session.create_consumer(self._session.create_queue(queue)) as consumer:
            received = [consumer.receive(WAIT_S) for _ in range(count)]
        return [message for message in received if message is not None]

    def forward(self, source: str, target: str, count: int) -> list[str]:
        """Receive messages, and send the same ones on."""
        messages = self.receive(source, count)
        with self._session.create_producer(self._session.create_queue(target)) as producer:
            for message in messages:
                producer.send(message, delivery_mode=message.delivery_mode, priority=message.priority)
        return by_index([describe(message) for message in messages])


def by_index(descriptions: Sequence[str]) -> list[str]:
    """Sort by what the descriptions begin with."""
    return sorted(descriptions, key=lambda each: int(each.partition("\t")[0]))


def compare(name: str, sent: Sequence[str], stations: dict[str, Sequence[str]]) -> list[Outcome]:
    """One outcome per message: whether every station saw what was sent."""
    outcomes = []
    for index, expected in enumerate(sent):
        reasons = []
        for station, seen in stations.items():
            actual = seen[index] if index < len(seen) else "nothing"
            reasons += [f"{station}: {difference}" for difference in differences(expected, actual)]
        body = expected.rpartition("\t")[2].partition(" ")[0]
        outcome = FAILED if reasons else PASSED
        outcomes.append(Outcome(f"{name}.{index}-{body}", outcome, 0, "; ".join(reasons)))
    return outcomes


def differences(expected: str, actual: str) -> list[str]:
    """The fields of two descriptions that differ."""
    left, right = expected.split("\t"), actual.split("\t")
    if len(left) != len(right):
        return [f"has {sorted(set(right) - set(left))}, lacks {sorted(set(left) - set(right))}"[:300]]
    return [f"{one[:150]} became {other[:150]}" for one, other in zip(left, right, strict=True) if one != other]


def main() -> int:
    """Make the trips; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicated", action="store_true", help=REPLICATED_HELP)
    options = parser.parse_args()
    build_of_java = build()
    started = time.monotonic()
    with (
        log_of_brokers(replicated=options.replicated) as log_url,
        Broker(TARGET / "roundtrip-broker.log", log_url=log_url) as served,
    ):
        java = JavaSide(build_of_java, served.url)
        with ConnectionFactory(served.url).create_connection() as connection:
            connection.start()
            python = PythonSide(connection)
            sent = java.do("send", "java.out")
            in_python = python.forward("java.out", "java.back", len(sent))
            outcomes = compare(
                "java-python-java",
                sent,
                {"Python": in_python, "Java again": java.do("receive", "java.back", str(len(sent)))},
            )
            sent = python.send("python.out")
            in_java = java.do("forward", "python.out", "python.back", str(len(sent)))
            again = by_index([describe(message) for message in python.receive("python.back", len(sent))])
            outcomes += compare("python-java-python", sent, {"Java": in_java, "Python again": again})
    versions = {"qpid-jms-client": pom_version("qpid-jms")}
    report = Report("roundtrip", outcomes, time.monotonic() - started, versions)
    report.write("roundtrip-replicated" if options.replicated else "roundtrip")
    return report.show()


if __name__ == "__main__":
    sys.exit(main())
