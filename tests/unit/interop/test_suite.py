"""What the runner of JUnit reports becomes outcomes, also when a JVM is gone in the middle."""

from __future__ import annotations

import sys
from pathlib import Path

from interop.outcomes import FAILED, PASSED, SKIPPED, Outcome
from interop.suite import Case, Progress, listed, run_tests

FIRST = Case("[id:1]", "com.sun.ts.tests.jms.core.queuetests.QueueTestsIT", "first")
SECOND = Case("[id:2]", "com.sun.ts.tests.jms.core.queuetests.QueueTestsIT", "second")


def test_a_list_has_the_tests_of_a_class_together_and_nothing_else() -> None:
    lines = ["noise", "test\t[b2]\tpkg.B\ttwo\n", "test\t[a1]\tpkg.A\tone\n", "test\t[b1]\tpkg.B\tone\n"]
    assert [test.identifier for test in listed(lines)] == ["[a1]", "[b1]", "[b2]"]


def test_names_leave_out_only_what_all_classes_of_a_suite_begin_with() -> None:
    assert FIRST.name == "core.queuetests.QueueTestsIT.first"
    joram = Case("[id]", "org.objectweb.jtests.jms.conform.session.SessionTest", "testRollback")
    assert joram.name == "session.SessionTest.testRollback"


def test_ends_are_outcomes_and_leave_nothing_to_run() -> None:
    progress = Progress({FIRST.identifier: FIRST, SECOND.identifier: SECOND})
    for line in ("start\t[id:1]\n", "end\t[id:1]\tpassed\t12\t\n", "end\t[id:2]\tskipped\t0\tnot here\n"):
        progress.take(line)
    assert progress.outcomes == [Outcome(FIRST.name, PASSED, 12), Outcome(SECOND.name, SKIPPED, 0, "not here")]
    assert not progress.left


def test_a_test_that_hangs_fails_with_the_place_and_the_next_one_is_left_to_run() -> None:
    progress = Progress({FIRST.identifier: FIRST, SECOND.identifier: SECOND})
    for line in ("start\t[id:1]\n", "hung\tConsumer.receive:7\n"):
        progress.take(line)
    progress.interrupted("the JVM ended with code 3")
    assert progress.outcomes == [Outcome(FIRST.name, FAILED, 0, "hung at Consumer.receive:7")]
    assert list(progress.left) == [SECOND.identifier]


def test_a_class_that_cannot_be_set_up_fails_under_its_own_name() -> None:
    progress = Progress({FIRST.identifier: FIRST})
    progress.take("end\t[class:X]\tfailed\t0\tno broker\n")
    assert progress.outcomes == [Outcome("[class:X]", FAILED, 0, "no broker")]
    assert list(progress.left) == [FIRST.identifier]


# Stands for the JVM: fails the first test it gets, dies in the second, and passes the rest.
RUNNER = """
import sys
identifiers = [line.split("\\t")[1] for line in sys.stdin.read().splitlines()]
if len(identifiers) == 3:
    print(f"end\\t{identifiers[0]}\\tfailed\\t1\\tbroken")
    print(f"start\\t{identifiers[1]}", flush=True)
    sys.exit(3)
for identifier in identifiers:
    print(f"end\\t{identifier}\\tpassed\\t1\\t")
"""


class Stand:
    """In the place of a broker: says that it runs, and counts how often it was replaced."""

    def __init__(self, *, alive: bool = True) -> None:
        self.alive = alive
        self.starts = 0

    def start_anew(self) -> None:
        self.starts += 1


def test_what_a_dead_jvm_left_runs_in_the_next_one(tmp_path: Path) -> None:
    tests = [Case(f"[id:{number}]", "pkg.Class", f"test{number}") for number in (1, 2, 3)]
    command = [sys.executable, "-c", RUNNER]
    outcomes = run_tests(command, tests, tmp_path / "log", timeout_ms=60_000, broker=Stand())
    assert [(each.test, each.outcome, each.reason) for each in outcomes] == [
        ("pkg.Class.test1", FAILED, "broken"),
        ("pkg.Class.test2", FAILED, "the JVM ended with code 3"),
        ("pkg.Class.test3", PASSED, ""),
    ]


def test_without_a_broker_nothing_passes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUNNER]
    outcomes = run_tests(command, [FIRST, SECOND], tmp_path / "log", timeout_ms=60_000, broker=Stand(alive=False))
    assert [each.reason for each in outcomes] == ["the broker had ended"] * 2


def test_a_class_with_a_failure_leaves_its_broker_to_nobody(tmp_path: Path) -> None:
    broker = Stand()
    tests = [Case(f"[id:{number}]", "pkg.Class", f"test{number}") for number in (1, 2, 3)]
    run_tests([sys.executable, "-c", RUNNER], tests[:2], tmp_path / "log", timeout_ms=60_000, broker=broker)
    assert broker.starts == 0
    run_tests([sys.executable, "-c", RUNNER], tests, tmp_path / "log", timeout_ms=60_000, broker=broker)
    assert broker.starts == 1
