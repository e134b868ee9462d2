"""Legato without its AMQP engine, which has to be compiled where there is no wheel of it, or with another version."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from legato.amqp.engine import ENGINE_VERSION

WITHOUT = "import sys; sys.modules['cproton_ffi'] = None; "


def test_a_client_without_the_engine_says_what_is_missing_in_a_sentence() -> None:
    """USERS B3."""
    done = subprocess.run(
        [sys.executable, "-c", f"{WITHOUT}import legato.client"], capture_output=True, text=True, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: Legato's AMQP engine is not installed: pip install python-qpid-proton.")


def test_a_command_without_the_engine_has_no_stack_trace() -> None:
    command = f"{WITHOUT}sys.argv = ['legato', 'send', 'q', 'x']; from legato.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install python-qpid-proton" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_version_that_is_required_is_the_one_that_is_asked_for_at_the_start() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (engine,) = (Requirement(each) for each in project["dependencies"] if each.startswith("python-qpid-proton"))
    major, minor = ENGINE_VERSION
    assert engine.specifier.contains(f"{major}.{minor}.0")
    assert engine.specifier.contains(f"{major}.{minor}.9"), "a patch of the engine may mend its security"
    for other in (minor - 1, minor + 1):
        assert not engine.specifier.contains(f"{major}.{other}.0")


@pytest.mark.parametrize("minor", [39, 41])
def test_another_version_of_the_engine_is_refused_in_a_sentence(minor: int) -> None:
    """With 0.41 transactions lost their ids without a word (docs/decisions/0078-wheels.md)."""
    other = (
        "import cproton; from types import SimpleNamespace; "
        f"cproton.lib = SimpleNamespace(PN_VERSION_MAJOR=0, PN_VERSION_MINOR={minor}); import legato.client"
    )
    done = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last == (
        f"ImportError: Legato needs version 0.40 of its AMQP engine, not 0.{minor}: "
        "pip install 'python-qpid-proton>=0.40,<0.41'."
    )
