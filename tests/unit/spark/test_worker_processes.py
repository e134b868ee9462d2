"""A pool of processes that call functions for us."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from legato.spark.runtime.worker_processes import workers


def test_answers_come_in_order_from_processes_of_their_own() -> None:
    with workers(2) as run:
        assert run(abs, [-3, 2, -1, 0]) == [3, 2, 1, 0]
        processes = set(run(eval, ["__import__('time').sleep(0.05) or __import__('os').getpid()"] * 8))
        assert os.getpid() not in processes
        assert len(processes) <= 2
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_what_a_function_raises_is_raised_here() -> None:
    with workers(1) as run, pytest.raises(ValueError, match="invalid literal"):
        run(int, ["1", "one"])


def test_a_process_that_is_killed_is_told_of() -> None:
    with workers(1) as run, pytest.raises(ChildProcessError, match="enough memory"):
        run(os._exit, [7])


def test_who_leaves_early_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    began = time.monotonic()
    ended = Event()

    def work() -> None:
        with suppress(ChildProcessError):
            run(eval, [f"open({str(tmp_path / 'begun')!r}, 'w').close() or __import__('time').sleep(600)"])
        ended.set()

    with workers(1) as run:
        Thread(target=work).start()
        (tmp_path / "begun").read_text()
    assert ended.wait(60)
    assert time.monotonic() - began < 300


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    """Spawned processes import the main module of their parent, and would begin all over again."""
    script = tmp_path / "script.py"
    script.write_text(
        "print('begins')\n"
        "from legato.spark.runtime.worker_processes import workers\n"
        "with workers(1) as run:\n"
        "    print(run(abs, [-1]))\n"
    )
    answer = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=100)
    assert (answer.stdout, answer.stderr) == ("begins\n[1]\n", "")


def test_processes_end_with_a_caller_that_is_killed() -> None:
    code = (
        "import os\n"
        "from legato.spark.runtime.worker_processes import workers\n"
        "with workers(1) as run:\n"
        "    print(run(eval, ['__import__(\"os\").getpid()'])[0], flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    said, _ = caller.communicate(timeout=100)
    assert int(said), "and the pipe is at its end, which the other process had open too"
