"""Apache Kafka as a peer: a KRaft node from Maven Central, private on loopback, removed afterwards; Spark's connector.

Kafka confirms from memory by default; `fsync=True` has it write each record to disk first, as Legato does.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection

from bench.harness import ROOT
from bench.processes import free_port

JAVA = ROOT / "bench" / "java"
PEERS = ROOT / "build" / "peers"
DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
BROKER, CONNECTOR = "kafka", "spark-kafka"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
"""Any will do; 16 bytes in base64."""
PARTITIONS = 2
HEAP = "-Xmx1g"
START_S = 300.0
STOP_S = 30.0
QUIET = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class KafkaAbsent(Exception):
    """Kafka cannot run on this machine; the text says what is missing."""


def jars(project: str) -> list[Path]:
    """The jars of a project in `bench/java`, got from Maven Central if they are not there.

    Maven compares each with the hash that Maven Central gives.

    Raises:
        KafkaAbsent: something is missing, or they could not be got.
    """
    for program, package in (("java", "openjdk-17-jdk-headless"), ("mvn", "maven")):
        if not shutil.which(program):
            raise KafkaAbsent(f"Kafka needs {program}: `apt-get install {package}` brings it.")
    pom, listing = JAVA / f"{project}.xml", PEERS / f"{project}-classpath.txt"
    if not listing.exists() or listing.stat().st_mtime < pom.stat().st_mtime:
        PEERS.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "-q", "-B", "-C", "-f", pom, DEPENDENCIES, f"-Dmdep.outputFile={listing}"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if done.returncode:
            raise KafkaAbsent(f"Maven could not get {project} (is Maven Central reachable?): {done.stdout[-1000:]}")
    return [Path(jar) for jar in listing.read_text().strip().split(":")]


def release(project: str, artifact: str) -> str:
    """The version of a jar of a project."""
    return next(jar.parent.name for jar in jars(project) if jar.name.startswith(f"{artifact}-"))


def connector_jars() -> list[Path]:
    """What Spark needs for `format("kafka")`, and does not have itself.

    Raises:
        KafkaAbsent: they could not be got.
    """
    wanted = ("spark-sql-kafka-", "spark-token-provider-kafka-", "kafka-clients-", "commons-pool2-")
    return [jar for jar in jars(CONNECTOR) if jar.name.startswith(wanted)]


def properties(directory: Path, port: int, controller_port: int, *, fsync: bool) -> str:
    """The configuration of a node that is broker and controller at once."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(directory / "log"),
        "num.partitions": str(PARTITIONS),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    if fsync:
        settings["log.flush.interval.messages"] = "1"
    return "".join(f"{name}={value}\n" for name, value in settings.items())


@dataclass(frozen=True)
class Node:
    """A running node."""

    port: int
    pid: int

    @property
    def servers(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"


@contextmanager
def node(directory: Path, *, fsync: bool = False) -> Iterator[Node]:
    """A running node with its data in `directory`, stopped afterwards.

    Raises:
        KafkaAbsent: it cannot run here.
        RuntimeError: it did not start; the message ends with its log.
    """
    classpath = ":".join(map(str, jars(BROKER)))
    directory.mkdir(parents=True)
    port = free_port()
    configuration, quiet, log = directory / "server.properties", directory / "log4j2.properties", directory / "output"
    configuration.write_text(properties(directory, port, free_port(), fsync=fsync))
    quiet.write_text(QUIET)
    java = ["java", HEAP, f"-Dlog4j2.configurationFile={quiet}", "-cp", classpath]
    command = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(configuration)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Kafka could not format its directory:\n{(done.stdout + done.stderr)[-2000:]}")
    with log.open("wb") as output:
        process = subprocess.Popen([*java, "kafka.Kafka", str(configuration)], stdout=output, stderr=output)
    try:
        _await_start(process, port, log)
        yield Node(port, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_start(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Kafka did not start:\n{log.read_text()[-2000:]}") from None
        time.sleep(0.2)
