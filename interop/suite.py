"""Runs the JUnit tests of a jar, one JVM at a time, and carries on after a test that hung."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from interop.maven import Build
from interop.outcomes import FAILED, PASSED, Outcome

RUNNER = "legato.interop.SuiteRunner"


@dataclass(frozen=True)
class Test:
    """One test that the runner listed."""

    identifier: str
    class_name: str
    method: str

    @property
    def name(self) -> str:
        return f"{self.class_name.rpartition('.')[2]}.{self.method}"


@dataclass
class Progress:
    """What a JVM has reported so far; the next one gets what is left."""

    left: dict[str, Test]
    outcomes: list[Outcome] = field(default_factory=list)
    running: str = ""
    hung: str = ""

    def take(self, line: str) -> Outcome | None:
        """Read one line of the runner; returns the outcome of a test that ended."""
        kind, *fields = line.rstrip("\n").split("\t")
        if kind == "start":
            self.running = fields[0]
        elif kind == "hung":
            self.hung = fields[0]
        elif kind == "end":
            identifier, outcome, milliseconds, reason = fields
            return self._ended(identifier, outcome, int(milliseconds), reason)
        return None

    def interrupted(self, reason: str) -> Outcome | None:
        """The JVM is gone: what ran in it has failed."""
        if self.running in self.left:
            return self._ended(self.running, FAILED, 0, f"hung at {self.hung}" if self.hung else reason)
        return None

    def _ended(self, identifier: str, outcome: str, milliseconds: int, reason: str) -> Outcome | None:
        test = self.left.pop(identifier, None)
        # A class that could not be set up has an identifier of its own, and its tests never start.
        ended = Outcome(test.name if test else identifier, outcome, milliseconds, reason)
        if test or outcome != PASSED:
            self.outcomes.append(ended)
        self.running = ""
        return ended if test or outcome != PASSED else None


def listed(lines: Iterable[str]) -> list[Test]:
    """The tests that the runner's list names, those of a class together."""
    found = [Test(*line.rstrip("\n").split("\t")[1:]) for line in lines if line.startswith("test\t")]
    return sorted(found, key=lambda test: (test.class_name, test.method))


def list_tests(build: Build, jar: Path, class_pattern: str, only: Sequence[str] = ()) -> list[Test]:
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
    command: Sequence[str], tests: Sequence[Test], log: Path, alive: Callable[[], bool] = lambda: True
) -> list[Outcome]:
    """Run tests, and show how far they are.

    Args:
        command: runs `SuiteRunner run`; it is started again for what is left after a test that hung.
        tests: what to run.
        log: file that gets what the tests print.
        alive: whether the broker still runs; without it the rest fails at once.
    """
    progress = Progress({test.identifier: test for test in tests})
    with log.open("w") as errors:
        while progress.left and alive():
            before = len(progress.left)
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace"
            )
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("".join(f"{identifier}\n" for identifier in progress.left))
            process.stdin.close()
            for line in process.stdout:
                _tell(progress, progress.take(line), len(tests))
            code = process.wait()
            _tell(progress, progress.interrupted(f"the JVM ended with code {code}"), len(tests))
            if len(progress.left) == before:
                break
    for test in progress.left.values():
        progress.outcomes.append(Outcome(test.name, FAILED, 0, "never ran" if alive() else "the broker had ended"))
    return progress.outcomes


def _tell(progress: Progress, ended: Outcome | None, total: int) -> None:
    if ended is None:
        return
    done = total - len(progress.left)
    if ended.outcome != PASSED:
        print(f"[{done}/{total}] {ended.outcome} {ended.test} ({ended.milliseconds} ms)", flush=True)
    elif done % 50 == 0:
        print(f"[{done}/{total}]", flush=True)
