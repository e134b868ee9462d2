"""What failed beside other tests gets one more run, alone: it has to pass that, and is named."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
from pathlib import Path

def test_steady(): pass

def test_wrong(): raise AssertionError

def test_wrong_too(): raise AssertionError

def test_wrong_as_well(): raise AssertionError

def test_first_run_only():
    marker = Path("has-run")
    has_run = marker.exists()
    marker.touch()
    assert has_run
"""


def retry(directory: Path, *failed: str) -> subprocess.CompletedProcess[str]:
    """Run some tests, of which all fail, and then what failed alone."""
    (directory / "test_it.py").write_text(TESTS)
    # Half of what these runs cost is the start of plugins that they do not need.
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **plugins}
    tests = [f"test_it.py::{name}" for name in failed]
    first = subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "0", *tests], cwd=directory, env=environment)
    assert first.returncode == 1
    assert len(json.loads((directory / ".pytest_cache/v/cache/lastfailed").read_text())) == len(failed)
    command = [sys.executable, "-m", "tools.retry_alone"]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)


def test_what_passes_alone_is_named_and_does_not_fail_the_run(tmp_path: Path) -> None:
    done = retry(tmp_path, "test_first_run_only")
    assert done.returncode == 0
    assert "UNSTABLE: test_it.py::test_first_run_only failed beside other tests and passed alone" in done.stdout


@pytest.mark.parametrize(
    "failed",
    [("test_wrong",), ("test_first_run_only", "test_wrong"), ("test_first_run_only", "test_wrong", "test_wrong_too")],
)
def test_what_fails_alone_or_in_numbers_has_failed(failed: tuple[str, ...], tmp_path: Path) -> None:
    done = retry(tmp_path, *failed)
    assert done.returncode == 1
    assert "UNSTABLE" not in done.stdout
