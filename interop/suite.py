"""Runner of a jar's JUnit tests: a JVM for each class; it carries on after a test that hung."""

from __future__ import annotations

import itertools
import re
import subprocess
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from interop.maven import Build
from interop.outcomes import FAILED, PASSED, Outcome

COMMON_PACKAGES = re.compile(r"^(com\.sun\.ts\.tests\.jms|org\.objectweb\.jtests\.jms\.conform)\.")
KNOWN_TIMEOUT_MS = 15_000
RUNNER = "legato.interop.SuiteRunner"


class Serving(Protocol):
    """What a suite needs to know of the broker under test."""

    @property
    def alive(self) -> bool: ...

    def start_anew(self) -> None: ...


@dataclass(frozen=True)
class Case:
    """One test that the runner listed."""

    identifier: str
    class_name: str
    method: str

    @property
    def name(self) -> str:
        """The class without what all classes of a suite begin with, and the method; no two tests share it."""
        return f"{COMMON_PACKAGES.sub('', self.class_name)}.{self.method}"


@dataclass
class Progress:
    """What a JVM has reported so far; the next one gets what is left."""

    left: dict[str, Case]
    outcomes: list[Outcome] = field(default_factory=list)
    running: str = ""
    hung: str = ""

    def take(self, line: str) -> None:
        """Read one line of the runner."""
        kind, *fields = line.rstrip("\n").split("\t")
        if kind == "start":
            self.running = fields[0]
        elif kind == "hung":
            self.hung = fields[0]
        elif kind == "end":
            identifier, outcome, milliseconds, reason = fields
            self._ended(identifier, outcome, int(milliseconds), reason)

    def interrupted(self, reason: str) -> None:
        """The JVM is gone: what ran in it has failed."""
        if self.running in self.left:
            self._ended(self.running, FAILED, 0, f"hung at {self.hung}" if self.hung else reason)
        self.hung = ""

    def _ended(self, identifier: str, outcome: str, milliseconds: int, reason: str) -> None:
        test = self.left.pop(identifier, None)
        # A class that could not be set up has an identifier of its own, and its tests never start.
        if test or outcome != PASSED:
            self.outcomes.append(Outcome(test.name if test else identifier, outcome, milliseconds, reason))
        self.running = ""


def listed(lines: Iterable[str]) -> list[Case]:
    """The tests that the runner's list names, those of a class together."""
    found = [Case(*line.rstrip("\n").split("\t")[1:]) for line in lines if line.startswith("test\t")]
    return sorted(found, key=lambda test: (test.class_name, test.method))


def list_tests(build: Build, jar: Path, class_pattern: str, only: Sequence[str] = ()) -> list[Case]:
    """The tests in a jar.

    Args:
        build: the Java part.
        jar: where the classes of tests are; it is on the classpath.
        class_pattern: a regular expression for whole names of classes.
        only: parts of names `Class.method` of which one must fit, if there are any.
    """
    command = build.command(RUNNER, "list", str(jar), class_pattern)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [test for test in listed(done.stdout.splitlines()) if not only or any(part in test.name for part in only)]


def run_tests(
    command: Sequence[str],
    tests: Sequence[Case],
    log: Path,
    *,
    timeout_ms: int,
    known: Collection[str] = (),
    broker: Serving,
) -> list[Outcome]:
    """Run tests, and show how far they are.

    Each class has a JVM of its own, so that connections that a failed test left open take no messages from the next.

    Args:
        command: runs `SuiteRunner run`; it is started again for what is left of a class after a test that hung.
        tests: what to run.
        log: file that gets what the tests print.
        timeout_ms: how long a test may take.
        known: names of tests that are known to fail: they get less time.
        broker: serves the tests; without it the rest fails at once. One that a class with failures used is not
            used again: what such tests leave in queues would fail others.
    """
    outcomes: list[Outcome] = []
    timeouts_ms = {test.identifier: KNOWN_TIMEOUT_MS if test.name in known else timeout_ms for test in tests}
    with log.open("w") as errors:
        for _, group in itertools.groupby(tests, key=lambda test: test.class_name):
            progress = Progress({test.identifier: test for test in group})
            while progress.left and broker.alive and _run_jvm(command, progress, errors, timeouts_ms):
                pass
            reason = "never ran" if broker.alive else "the broker had ended"
            if any(each.outcome == FAILED for each in progress.outcomes):
                broker.start_anew()
            outcomes += progress.outcomes
            outcomes += [Outcome(test.name, FAILED, 0, reason) for test in progress.left.values()]
            _tell(outcomes, len(progress.outcomes) + len(progress.left), len(tests))
    return outcomes


def _run_jvm(command: Sequence[str], progress: Progress, errors: IO[str], timeouts_ms: Mapping[str, int]) -> bool:
    """Run what is left of a class; returns whether that got anywhere."""
    before = len(progress.left)
    # The JVM interrupts tests that take too long itself; this is for one that cannot.
    silence_max_s = max(timeouts_ms.values()) / 1000 + 20
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace"
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("".join(f"{timeouts_ms[identifier]}\t{identifier}\n" for identifier in progress.left))
    process.stdin.close()
    watchdog = threading.Timer(silence_max_s, process.kill)
    try:
        watchdog.start()
        for line in process.stdout:
            watchdog.cancel()
            watchdog = threading.Timer(silence_max_s, process.kill)
            watchdog.start()
            progress.take(line)
        code = process.wait()
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
    progress.interrupted(f"the JVM ended with code {code}")
    return len(progress.left) < before


def _tell(outcomes: Sequence[Outcome], of_class: int, total: int) -> None:
    latest = outcomes[len(outcomes) - of_class :]
    failed = [each.test.rpartition(".")[2] for each in latest if each.outcome == FAILED]
    name = latest[0].test.rpartition(".")[0]
    print(f"[{len(outcomes)}/{total}] {name}: {of_class - len(failed)} of {of_class}", *failed, flush=True)
