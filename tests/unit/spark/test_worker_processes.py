"""Processes that call functions for us."""

import os
import time
from contextlib import suppress
from threading import Event, Thread

import pytest

from legato.spark.runtime.worker_processes import workers


def test_answers_come_in_order_from_processes_of_their_own() -> None:
    with workers(2) as run:
        assert run(abs, [-3, 2, -1, 0]) == [3, 2, 1, 0]
        processes = set(run(eval, ["__import__('time').sleep(0.05) or __import__('os').getpid()"] * 8))
        assert os.getpid() not in processes
        assert len(processes) == 2
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_what_a_function_raises_is_raised_here() -> None:
    with workers(1) as run, pytest.raises(ValueError, match="invalid literal"):
        run(int, ["1", "one"])


def test_a_process_that_is_killed_is_told_of() -> None:
    with workers(1) as run, pytest.raises(ChildProcessError, match="code 7"):
        run(os._exit, [7])


def test_who_leaves_early_does_not_wait() -> None:
    began = time.monotonic()
    ended = Event()

    def work() -> None:
        with suppress(ChildProcessError):
            run(time.sleep, [600])
        ended.set()

    with workers(1) as run:
        Thread(target=work).start()
    assert ended.wait(60)
    assert time.monotonic() - began < 300
