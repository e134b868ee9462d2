"""Directories of audits: none is left for ever, and none is taken from an audit that runs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from legato.spark.runtime.scratch import scratch_directory

_HOLD = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from legato.spark.runtime.scratch import scratch_directory
with scratch_directory() as directory:
    (directory / "rows.parquet").write_text("rows")
    print(directory, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_audit_left_is_removed_by_the_next_one_but_not_while_it_runs(parent: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as audit:
        assert audit.stdout is not None
        left = Path(audit.stdout.readline().strip())
        os.utime(left, (0, 0))
        with scratch_directory():
            assert (left / "rows.parquet").exists(), "it was taken from an audit that runs"
        audit.kill()
        audit.wait()
    assert left.exists()
    os.utime(left, (0, 0))
    with scratch_directory() as own:
        assert list(parent.iterdir()) == [own]
    assert list(parent.iterdir()) == []


def test_a_directory_that_is_not_locked_yet_is_left_alone(parent: Path) -> None:
    (parent / "legato-audit-new").mkdir()
    with scratch_directory():
        pass
    assert (parent / "legato-audit-new").exists()


def test_a_link_to_elsewhere_is_left_alone(parent: Path) -> None:
    (parent / "own").mkdir()
    os.utime(parent / "own", (0, 0))
    (parent / "legato-audit-link").symlink_to(parent / "own")
    with scratch_directory():
        pass
    assert (parent / "own").exists()
