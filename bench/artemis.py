"""Apache Artemis as a peer: got from Maven Central once, each run a private instance on loopback, removed afterwards.

Its journal is ASYNCIO (libaio), synced before a message is confirmed, as `artemis create --aio` sets it up; it keeps
all messages in memory, so that no paging slows it down.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.harness import ROOT
from bench.processes import answers, end, free_port

VERSION = "2.56.0"
ARTIFACT = f"org.apache.artemis:apache-artemis:{VERSION}:tar.gz:bin"
ARCHIVE = f"org/apache/artemis/apache-artemis/{VERSION}/apache-artemis-{VERSION}-bin.tar.gz"
SHA256 = "df469079b6388c8c6276197388a0f5ee0d64d0ca42d7f0e2ca5e392e21b955de"
GET = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:get"
UNPACKED = ROOT / "build" / "peers" / f"apache-artemis-{VERSION}"
MEMORY = "4G"
START_S = 300.0
STOP_S = 30.0
JAVA_MIN = 17
LIBAIO = "libaio.so.1"
USES_AIO = "AMQ221012"
"""Code of the line of its log that says that the journal is libaio's; without libaio it takes plain files instead."""

IS_BACKUP = "AMQ221109"
"""Code of the line that says that it waits for its primary to fail."""


class ArtemisAbsent(Exception):
    """Artemis cannot run on this machine; the text says what is missing."""


def missing() -> Iterator[str]:
    """What this machine lacks, one sentence each."""
    if not shutil.which("java"):
        yield f"Artemis needs Java {JAVA_MIN} or newer: `apt-get install openjdk-{JAVA_MIN}-jre-headless` brings it."
    if not UNPACKED.exists() and not shutil.which("mvn"):
        yield "Maven gets Artemis: `apt-get install maven` brings it."
    try:
        ctypes.CDLL(LIBAIO)
    except OSError:
        yield (
            f"The journal of Artemis needs {LIBAIO}: `apt-get install libaio1` brings it "
            f"(newer systems: `apt-get install libaio1t64`, and link {LIBAIO} to its libaio.so.1t64)."
        )


def home() -> Path:
    """Where Artemis is unpacked; got from Maven Central and compared with its known hash if it is not there.

    Raises:
        ArtemisAbsent: something is missing, or it could not be got.
    """
    if sentences := list(missing()):
        raise ArtemisAbsent(" ".join(sentences))
    if not UNPACKED.exists():
        _unpack(_get())
    return UNPACKED


def _get() -> Path:
    archive = _local_repository() / ARCHIVE
    if not archive.exists():
        command = ["mvn", "-q", "-B", GET, f"-Dartifact={ARTIFACT}", "-Dtransitive=false"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not archive.exists():
            said = done.stdout.strip()[-1000:] or "it said nothing"
            raise ArtemisAbsent(f"Maven could not get {ARTIFACT} (is Maven Central reachable?): {said}")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        raise ArtemisAbsent(f"{archive} is not what was released: its SHA-256 is {found}. Remove it, and try again.")
    return archive


def _local_repository() -> Path:
    return Path.home() / ".m2" / "repository"


def _unpack(archive: Path) -> None:
    partial = UNPACKED.parent / f"{UNPACKED.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(partial, filter="data")
    (partial / UNPACKED.name).rename(UNPACKED)
    partial.rmdir()


def creation(instance: Path, port: int, *more: str) -> list[str]:
    """The command line that creates an instance, with one acceptor on loopback for all protocols."""
    command = [str(UNPACKED / "bin" / "artemis"), "create", str(instance), "--silent", "--force", "--aio"]
    command += ["--allow-anonymous", "--user", "bench", "--password", "bench"]
    command += ["--host", "127.0.0.1", "--default-port", str(port)]
    command += ["--java-memory", MEMORY, "--global-max-size", MEMORY, "--no-web", "--no-autotune"]
    return [*command, *(f"--no-{protocol}-acceptor" for protocol in ("amqp", "hornetq", "mqtt", "stomp")), *more]


def configured(broker_xml: str) -> str:
    """The configuration that was created, where a plain address is a queue and `topic://` stands before a topic's.

    Raises:
        ValueError: it does not look as expected.
    """
    kinds = "".join(f"<default-{what}-routing-type>ANYCAST</default-{what}-routing-type>" for what in _ROUTED)
    changes = {
        r'(<address-setting match="#">)': rf"\1{kinds}",
        r'(<acceptor name="artemis">[^<?]*\?)': r"\1anycastPrefix=queue://;multicastPrefix=topic://;",
        # By default it cuts its senders off where the disk is nine tenths full, though much is free on a large one.
        r"<max-disk-usage>[^<]*<": "<max-disk-usage>99<",
    }
    for pattern, replacement in changes.items():
        broker_xml, count = re.subn(pattern, replacement, broker_xml)
        if count != 1:
            raise ValueError(f"broker.xml of Artemis {VERSION} has {count} places that look like {pattern}")
    return broker_xml


_ROUTED = ("queue", "address")


class Artemis:
    """A running broker.

    Args:
        instance: its directory, made now.
        port: where it listens; a free one by default.
        more: further options of `artemis create`.
    """

    def __init__(self, instance: Path, port: int | None = None, more: Sequence[str] = ()) -> None:
        self.port = port or free_port()
        self.log = instance / "log" / "artemis.log"
        script = home() / "bin" / "artemis"
        done = subprocess.run(creation(instance, self.port, *more), capture_output=True, text=True, check=False)
        configuration = instance / "etc" / "broker.xml"
        if done.returncode or not configuration.exists():
            raise RuntimeError(f"{script} create failed:\n{(done.stdout + done.stderr).strip()[-2000:]}")
        configuration.write_text(configured(configuration.read_text()))
        self.process = subprocess.Popen(
            [instance / "bin" / "artemis", "run"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def await_line(self, code: str) -> None:
        """Block until its log has a line with this code.

        Raises:
            RuntimeError: it ended, or took too long; the message ends with its log.
        """
        self._await(lambda: code in self._said(), f"say {code}")

    def await_active(self) -> None:
        """Block until it answers clients.

        Raises:
            RuntimeError: it does not, or its journal is not that of libaio.
        """
        self._await(lambda: answers(self.port), "answer")
        if USES_AIO not in self._said():
            raise RuntimeError(f"Artemis does not use libaio, so it is not what is to be measured:\n{self._end()}")

    def _await(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_S
        while not happened():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Artemis did not {what}:\n{self._end()}")
            time.sleep(0.1)

    def _said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def _end(self) -> str:
        return self._said()[-2000:]

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL if it does not end."""
        end(self.process, STOP_S)


@contextmanager
def running(directory: Path) -> Iterator[Artemis]:
    """An active broker with an instance in `directory`, stopped afterwards.

    Raises:
        ArtemisAbsent: it cannot run here.
        RuntimeError: it did not start.
    """
    started = Artemis(directory)
    try:
        started.await_active()
        yield started
    finally:
        started.stop()
