"""The file system of a drill's own for the store: what becomes of its files, and of who still writes to them."""

import subprocess
import sys
from pathlib import Path

import pytest

from legato.drill.disk import Disk, users_of

WRITING = """
import os, sys, time
writing, done = sys.argv[1:]
file = open(writing, "w")
file.write("half")
file.flush()
print("began", flush=True)
while not os.path.exists(done + ".go"):
    time.sleep(0.001)
file.write(" and half")
file.close()
os.replace(writing, done)
"""


def test_nobody_goes_on_writing_when_the_files_are_where_the_file_system_was(tmp_path: Path) -> None:
    """An exporter that outlived its broker gave the copied half of a segment the name of a whole one."""
    disk = Disk.create(tmp_path / "store")
    if disk is None:
        pytest.skip("mounting is not permitted here")
    writing, done = tmp_path / "store" / ".writing-facts", tmp_path / "store" / "facts"
    program = [sys.executable, "-c", WRITING, str(writing), str(done)]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as exporter:
        assert exporter.stdout is not None
        exporter.stdout.readline()
        assert users_of(tmp_path / "store") == [exporter.pid]
        disk.bring_home()
        done.with_name("facts.go").touch()
        exporter.wait()
    assert writing.read_text() == "half"
    assert not done.exists()
