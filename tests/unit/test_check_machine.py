"""What a machine must have before anything is built: a sentence each, and no more than the purpose needs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with a compiler and pkg-config, and nothing else."""
    for name in ("cc", "pkg-config"):
        (tmp_path / name).symlink_to(shutil.which(name) or "/bin/true")
    return tmp_path


def check(programs: Path, *arguments: str) -> str:
    """What `tools/check_machine.py` misses where these are all programs."""
    environment = {**os.environ, "PATH": str(programs), "CC": "cc"}
    environment.pop("JAVA_HOME", None)
    command = [sys.executable, "-I", str(ROOT / "tools" / "check_machine.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == bool(done.stderr)
    return done.stderr


def test_wheels_are_built_without_java(programs: Path) -> None:
    assert "Java is missing" in check(programs)
    assert check(programs, "--for", "wheels") == ""


def test_an_engine_without_tls_is_not_built_in_silence(programs: Path) -> None:
    (programs / "pkg-config").unlink()
    assert "pkg-config finds no OpenSSL" in check(programs, "--for", "wheels")


def test_making_wheels_does_not_install_what_only_development_needs() -> None:
    """A newcomer's first command is `make wheels`: it needs neither Spark nor the other locked packages."""
    plan = subprocess.run(
        ["make", "--dry-run", "--always-make", "wheels"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "tools.make_wheels" in plan
    assert "requirements.lock" not in plan
