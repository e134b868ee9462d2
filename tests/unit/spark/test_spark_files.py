"""The files of a Spark: gone when its process ends well, kept and told of when it fails, cleared when it was killed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from legato.spark.runtime.spark_files import SparkFiles, remove_abandoned

_RUN = """
import subprocess, sys
from pathlib import Path
from legato.spark.runtime.spark_files import begin
files = begin(Path(sys.argv[1]))
with files.open_log() as log:
    jvm = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, stderr=log)
log_of_jvm = files.log.open("a")
print("warned", file=log_of_jvm, flush=True)
(files.temporary / "blockmgr").mkdir()
"""
"""As `start_session` does, with a process in the place of the JVM that ends when its standard input does."""

LATER_S = 3600.0


def run(scratch: Path, end: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _RUN + end, str(scratch)], capture_output=True, text=True, check=False, timeout=60
    )


def test_a_process_that_ends_well_leaves_nothing_and_says_nothing(tmp_path: Path) -> None:
    """`/tmp/legato-spark-0` had the logs of 260 runs."""
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "sys.exit(1)"])
def test_neither_does_one_that_is_interrupted_or_has_an_exit_code(tmp_path: Path, end: str) -> None:
    assert "Spark's log" not in run(tmp_path, end).stderr
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_fails_keeps_its_log_and_names_it_last(tmp_path: Path) -> None:
    done = run(tmp_path, "raise ValueError('no such column')")
    (kept,) = tmp_path.iterdir()
    assert done.stderr.splitlines()[-2:] == [
        "ValueError: no such column",
        f"Spark's log is kept for a week: {kept}",
    ]
    assert kept.read_text() == "warned\n"


def test_a_command_that_explains_its_failure_keeps_the_trace_in_the_log(tmp_path: Path) -> None:
    fail = "from legato.spark.runtime.spark_files import keep_log\nkeep_log(ValueError('deep inside'))\nsys.exit(1)"
    done = run(tmp_path, fail)
    (kept,) = tmp_path.iterdir()
    assert done.stderr == f"Spark's log is kept for a week: {kept}\n"
    assert kept.read_text() == "warned\nValueError: deep inside\n"


def test_a_child_that_was_forked_takes_nothing_from_its_parent(tmp_path: Path) -> None:
    fork = "import os\nchild = os.fork()\nif child: os.waitpid(child, 0); print(files.log.exists())"
    assert run(tmp_path, fork).stdout == "True\n"


def test_what_a_killed_process_left_is_removed_by_the_next_but_not_while_its_jvm_lives(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _RUN + "print(files.log, flush=True)\nsys.stdin.read()", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        log = Path(driver.stdout.readline().strip())
        (left,) = tmp_path.iterdir()
        remove_abandoned(tmp_path, time.time() + LATER_S)
        assert left.exists(), "it was taken from a Spark that runs"
        driver.kill()
        driver.wait()
    with log.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # waits for the end of the JVM, which has it
    remove_abandoned(tmp_path)
    assert left.exists(), "what is young may be about to be locked"
    remove_abandoned(tmp_path, time.time() + LATER_S)
    assert list(tmp_path.iterdir()) == []


def test_a_jvm_that_outlives_its_driver_keeps_its_files(tmp_path: Path) -> None:
    """One that archives its classes lives for twenty seconds more."""
    files = SparkFiles(tmp_path)
    with files.open_log() as log:
        jvm = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, stderr=log
        )
    remove_abandoned(tmp_path, time.time() + LATER_S)
    assert files.log.exists()
    jvm.communicate()
    remove_abandoned(tmp_path, time.time() + LATER_S)
    assert not files.log.exists()


def test_logs_of_earlier_versions_go_at_once_and_kept_ones_after_a_week(tmp_path: Path) -> None:
    for name in ("spark-12.log", "failed-13.log", "log4j2.properties"):
        (tmp_path / name).write_text("")
    remove_abandoned(tmp_path, time.time() + LATER_S)
    assert sorted(os.listdir(tmp_path)) == ["failed-13.log", "log4j2.properties"]
    remove_abandoned(tmp_path, time.time() + 8 * 86_400)
    assert os.listdir(tmp_path) == ["log4j2.properties"]
