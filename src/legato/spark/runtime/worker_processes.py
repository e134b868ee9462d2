"""A pool of processes of this machine that read a ledger while Spark still starts.

Not `ProcessPoolExecutor`: spawned processes import the script of their caller again, and run it if it has no guard;
they hold both ends of their queue, and outlive a caller that is killed; and one that is killed may hold a lock for
which the others wait for ever (docs/decisions/0066).
"""

import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

Run = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Calls a function with each of some values, wherever that is; returns the answers in their order."""


def here(function: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    """A `Run` of this process alone."""
    return [function(value) for value in values]


@contextmanager
def workers(count: int) -> Iterator[Run]:
    """A `Run` of so many processes, which begin now and end with the block.

    They are Pythons of their own, not forks: the caller may have threads. Functions are those of modules.
    """
    # Without -P a file of the directory that we happen to be in could be imported.
    command = [sys.executable, "-P", "-m", "legato.spark.runtime.worker_processes"]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)]
    idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
    for worker in started:
        idle.put(worker)

    def call(function: Callable[[Any], Any], value: Any) -> Any:
        worker = idle.get()
        try:
            return _ask(worker, function, value)
        finally:
            idle.put(worker)

    pool = ThreadPoolExecutor(count)
    try:
        yield lambda function, values: list(pool.map(call, [function] * len(values), values))
    finally:
        # Whoever leaves the block early does not want the rest.
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in started:
            worker.kill()
            worker.communicate()


def _ask(worker: "subprocess.Popen[bytes]", function: Callable[[Any], Any], value: Any) -> Any:
    assert worker.stdin, "it is a pipe"
    assert worker.stdout, "it is a pipe"
    try:
        pickle.dump((function, value), worker.stdin)
        worker.stdin.flush()
        answer, error = pickle.load(worker.stdout)
    except (OSError, EOFError, ValueError) as ended:  # a ValueError if its pipe is closed beneath the reading
        raise ChildProcessError(
            f"A process that was reading the ledger ended (code {worker.wait()}): is there enough memory?"
        ) from ended
    if error is not None:
        raise error
    return answer


def main() -> None:
    """Entry point of a worker: answers what it is asked on its standard input until that ends."""
    # Who interrupts the command ends us by ending our input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    while True:
        try:
            function, value = pickle.load(asked)
        except EOFError:
            return
        answer: tuple[Any, Exception | None]
        try:
            answer = (function(value), None)
        except Exception as error:
            answer = (None, error)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
