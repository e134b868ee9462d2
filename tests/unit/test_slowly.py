"""A command that is run slowly gets its part of the time, its exit code is told, and who is stopped stays so."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORK = """
import sys, time
began = time.monotonic()
while time.process_time() < 0.15:
    pass
print((time.monotonic() - began) / 0.15)
sys.exit(7)
"""
STOPPED = """
import os, signal, subprocess, time
child = subprocess.Popen(["sleep", "600"])
child.send_signal(signal.SIGSTOP)
time.sleep(0.3)
print(open(f"/proc/{child.pid}/stat").read().split()[2])
child.kill()
"""


def slowly(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.slowly", "--run-ms", "10", "--stop-ms", "40", sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_command_takes_longer_and_its_exit_code_is_told() -> None:
    done = slowly(WORK)
    assert done.returncode == 7, done.stderr
    assert float(done.stdout) > 1.5


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_child_that_its_parent_has_stopped_is_not_woken() -> None:
    done = slowly(STOPPED)
    assert (done.returncode, done.stdout) == (0, "T\n"), done.stderr
