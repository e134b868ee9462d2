"""Child processes report, stop when asked and do not outlive their parent."""

import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from legato.processes.child import Child


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children run modules; those of a test are in its directory."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)


def start(tmp_path: Path, code: str) -> tuple[Child, "queue.Queue[bytes | None]"]:
    """A child that runs `code`, and what it says; None at its end."""
    (tmp_path / "child_code.py").write_text(code)
    said: queue.Queue[bytes | None] = queue.Queue()
    child = Child(
        "child",
        ["child_code"],
        log_file=tmp_path / "child.log",
        on_line=lambda _, line: said.put(line),
        on_end=lambda _: said.put(None),
    )
    return child, said


def test_a_child_is_heard_and_stops_when_its_input_closes(tmp_path: Path) -> None:
    child, said = start(tmp_path, "import sys; print('ready', flush=True); sys.stdin.read(); print('bye')")
    assert said.get(timeout=60) == b"ready\n"
    child.ask_to_stop()
    assert said.get(timeout=60) == b"bye\n"
    assert said.get(timeout=60) is None
    assert child.exit_code == 0


def test_the_last_words_of_a_child_are_kept(tmp_path: Path) -> None:
    child, said = start(tmp_path, "raise SystemExit('the disk is on fire')")
    assert said.get(timeout=60) is None
    assert child.exit_code == 1
    assert child.last_words() == "the disk is on fire"


PARENT = """
import time
from pathlib import Path
from legato.processes.child import Child

Child(
    "child",
    ["child_code"],
    log_file=Path("child.log"),
    on_line=lambda child, line: print(child.pid, flush=True),
    on_end=lambda child: None,
)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends children with their parent")
def test_a_child_does_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "child_code.py").write_text("import time; print('ready', flush=True); time.sleep(600)")
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, cwd=tmp_path)
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    assert not select.select([child], [], [], 0)[0]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    ended, _, _ = select.select([child], [], [], 60)
    if not ended:
        signal.pidfd_send_signal(child, signal.SIGKILL)
    os.close(child)
    assert ended


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="without it children are forked")
def test_what_a_thread_holds_is_not_dropped_in_the_child_of_another_thread(tmp_path: Path) -> None:
    """As Py4J's connections, which shut their sockets down when they are dropped: the parent's are the same sockets."""
    dropped_in: list[int] = []
    reading, writing = os.pipe()

    class Held:
        def __del__(self) -> None:
            dropped_in.append(os.getpid())
            os.write(writing, b"dropped")

    held = threading.local()
    held.here = Held()
    with ThreadPoolExecutor(1) as executor:
        _, said = executor.submit(start, tmp_path, "print('ready')").result()
        assert said.get(timeout=60) == b"ready\n"
        assert said.get(timeout=60) is None
    assert not select.select([reading], [], [], 0)[0]
    del held
    assert dropped_in == [os.getpid()]
    os.close(reading)
    os.close(writing)
