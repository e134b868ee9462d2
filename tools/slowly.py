"""Run a command slowly, as a machine does that has other work: `python -m tools.slowly pytest -n 0 tests/...`.

The command and all of its children run for a part of the time only, `--run-ms` of each `--run-ms` and `--stop-ms`
(SIGSTOP and SIGCONT). What passes then depends on no speed: a lease that ends, an answer that is waited for once, a
message that expires before it is received. Who is stopped already, as a test may stop a broker, is left alone. Linux.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

RUN_MS, STOP_MS = 30, 120
STOPPED = "TtZX"
"""States of processes that do not run (proc(5))."""


def family(root: int) -> list[int]:
    """A process and its descendants, but for those that do not run, or are about to be stopped."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    running: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                lines = (entry / "status").read_text().splitlines()
                told = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
                process, pending = int(entry.name), int(told["ShdPnd"], 16)
                children[int(told["PPid"])].append(process)
                if told["State"][0] not in STOPPED and not pending >> (signal.SIGSTOP - 1) & 1:
                    running.add(process)
    found, todo = [], [root]
    while todo:
        process = todo.pop()
        found.append(process)
        todo += children[process]
    return [process for process in found if process in running]


def send(processes: list[int], number: signal.Signals) -> None:
    """A signal to each that is still there."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def slow_down(command: subprocess.Popen[bytes], run_s: float, stop_s: float) -> int:
    """Let it run for a part of the time until it ends; returns its exit code."""
    while True:
        # Who gives orders stands still first, so that nobody is stopped or begins while we look.
        first = family(command.pid)[:1]
        send(first, signal.SIGSTOP)
        rest = family(command.pid)
        send(rest, signal.SIGSTOP)
        time.sleep(stop_s)
        send([*rest, *first], signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return command.wait(run_s)


def main() -> int:
    """The command; its exit code is that of what it ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run-ms", type=int, default=RUN_MS, help=f"it runs so long at a time; {RUN_MS}")
    parser.add_argument("--stop-ms", type=int, default=STOP_MS, help=f"and then stands still so long; {STOP_MS}")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="with its arguments")
    arguments = parser.parse_args()
    if not arguments.command:
        parser.error("Name a command to run slowly.")
    with subprocess.Popen(arguments.command) as command:
        return slow_down(command, arguments.run_ms / 1000, arguments.stop_ms / 1000)


if __name__ == "__main__":
    sys.exit(main())
