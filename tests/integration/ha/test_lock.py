"""The lock on a store among real processes: one holder, freed by its death, missed when its file is deleted."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from legato.errors import StoreError, StoreLockedError
from legato.ha.lock import Holder, StoreLock

WAIT_S = 60

HOLD = """
import sys
from legato.ha.lock import StoreLock
lock = StoreLock(sys.argv[1])
print(lock.try_acquire(), flush=True)
lock.describe(7, "127.0.0.1:5672")
print("described", flush=True)
sys.stdin.read()
"""

ACQUIRE = """
import sys
from legato.ha.lock import StoreLock
lock = StoreLock(sys.argv[1])
print("waiting", flush=True)
print(lock.acquire_blocking(), flush=True)
sys.stdin.read()
"""

Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process with the given code for the store in `tmp_path`; ends it after the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(code: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", code, str(tmp_path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def says(process: "subprocess.Popen[str]") -> str:
    """The next line that the process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def in_background() -> Iterator[Callable[[StoreLock], "Future[bool]"]]:
    """Waits for a lock in another thread; returns when that thread is asleep in the kernel."""

    def wait(lock: StoreLock) -> "Future[bool]":
        inode = lock.path.stat().st_ino
        waiting = pool.submit(lock.acquire_blocking)
        while not waiting.done() and not is_waited_for(inode):
            os.sched_yield()
        return waiting

    with ThreadPoolExecutor() as pool:
        yield wait


def is_waited_for(inode: int) -> bool:
    """True if someone sleeps until the file's lock is free."""
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(words[1] == "->" and words[6].endswith(f":{inode}") for words in lines)


def test_a_free_lock_is_taken_and_given_back(tmp_path: Path) -> None:
    first, second = StoreLock(tmp_path / "new" / "store"), StoreLock(tmp_path / "new" / "store")
    assert first.try_acquire()
    assert first.try_acquire()
    assert (first.held, first.still_mine()) == (True, True)
    assert not second.try_acquire()
    assert (second.held, second.still_mine()) == (False, False)
    first.release()
    first.release()
    assert (first.held, first.still_mine()) == (False, False)
    assert second.try_acquire()
    second.release()


def test_only_one_process_holds_it_and_says_who_it_is(tmp_path: Path, start: Start) -> None:
    holder = start(HOLD)
    assert [says(holder), says(holder)] == ["True", "described"]
    lock = StoreLock(tmp_path)
    assert not lock.try_acquire()
    described = Holder(holder.pid, 7, "127.0.0.1:5672", file=lock.path.stat().st_ino)
    assert lock.holder() == described
    with pytest.raises(StoreLockedError):
        lock.describe(8, "elsewhere")
    assert lock.holder() == described


def test_the_death_of_the_holder_wakes_who_waits(
    tmp_path: Path, start: Start, in_background: Callable[[StoreLock], "Future[bool]"]
) -> None:
    holder = start(HOLD)
    assert [says(holder), says(holder)] == ["True", "described"]
    lock = StoreLock(tmp_path)
    waiting = in_background(lock)
    assert not waiting.done()
    holder.send_signal(signal.SIGKILL)
    assert waiting.result(WAIT_S)
    assert lock.still_mine()
    assert lock.holder() == Holder(os.getpid(), file=lock.path.stat().st_ino)
    lock.release()
    assert lock.holder() is None


def test_of_several_waiters_one_at_a_time_gets_it(start: Start) -> None:
    holder = start(HOLD)
    assert [says(holder), says(holder)] == ["True", "described"]
    first = start(ACQUIRE)
    assert says(first) == "waiting"
    second = start(ACQUIRE)
    assert says(second) == "waiting"
    holder.kill()
    with ThreadPoolExecutor() as pool:
        answers = {process.pid: pool.submit(says, process) for process in (first, second)}
        winner = wait_for_one(answers)
        loser = first.pid if winner == second.pid else second.pid
        assert not answers[loser].done()
        os.kill(winner, signal.SIGKILL)
        assert answers[loser].result(WAIT_S) == "True"


def wait_for_one(answers: "dict[int, Future[str]]") -> int:
    """The first process to say that it has the lock."""
    first = threading.Event()
    for answer in answers.values():
        answer.add_done_callback(lambda _: first.set())
    assert first.wait(WAIT_S)
    ((pid, answer),) = [(pid, answer) for pid, answer in answers.items() if answer.done()]
    assert answer.result() == "True"
    return pid


def test_waiting_can_be_given_up_and_then_takes_nothing(
    tmp_path: Path, in_background: Callable[[StoreLock], "Future[bool]"]
) -> None:
    holder, waiter, next_one = StoreLock(tmp_path), StoreLock(tmp_path), StoreLock(tmp_path)
    assert holder.try_acquire()
    waiting = in_background(waiter)
    waiter.cancel()
    assert waiting.result(WAIT_S) is False
    assert waiter.acquire_blocking() is False
    holder.release()
    assert next_one.acquire_blocking()
    assert not waiter.held
    next_one.release()


def test_deleting_the_file_is_noticed_and_does_not_let_a_waiter_in(
    tmp_path: Path, in_background: Callable[[StoreLock], "Future[bool]"]
) -> None:
    holder, waiter = StoreLock(tmp_path), StoreLock(tmp_path)
    assert holder.try_acquire()
    waiting = in_background(waiter)
    holder.path.unlink()
    assert not holder.still_mine()
    assert not waiting.done()
    holder.release()
    assert waiting.result(WAIT_S)
    assert waiter.still_mine()
    waiter.release()


def test_replacing_the_file_is_noticed(tmp_path: Path) -> None:
    holder, other = StoreLock(tmp_path), StoreLock(tmp_path)
    assert holder.try_acquire()
    (tmp_path / "another").touch()
    (tmp_path / "another").replace(holder.path)
    assert holder.held
    assert not holder.still_mine()
    assert other.try_acquire()
    other.release()


def test_children_of_the_holder_do_not_keep_the_lock(tmp_path: Path, start: Start) -> None:
    holder = start(
        "import subprocess, os, sys\n"
        "from legato.ha.lock import StoreLock\n"
        "lock = StoreLock(sys.argv[1]); assert lock.try_acquire()\n"
        "begun, begins = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.write(begins, b'.')\n"
        "    sys.stdin.read()\n"
        "    os._exit(0)\n"
        "os.read(begun, 1)  # it lets go of the lock as it begins\n"
        "subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'], close_fds=False)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()"
    )
    assert says(holder) == "held"
    lock = StoreLock(tmp_path)
    assert not lock.try_acquire()
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert lock.try_acquire()
    lock.release()


def test_a_lock_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="lock"):
        StoreLock(tmp_path / "file").try_acquire()
    (tmp_path / "lock").mkdir()
    with pytest.raises(StoreError, match="lock"):
        StoreLock(tmp_path).acquire_blocking()


def test_a_file_that_says_nothing_sensible_has_no_holder(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path)
    assert lock.holder() is None
    lock.path.write_text("{half")
    assert lock.holder() is None
