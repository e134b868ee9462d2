"""Spark's scratch directory: nobody else on the machine has a say in what is in it."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from legato.errors import ConfigError
from legato.spark.runtime.session import _scratch_directory


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"legato-spark-{os.getuid()}"


def test_it_is_made_for_its_owner_only_and_found_again(expected: Path) -> None:
    assert _scratch_directory() == _scratch_directory() == expected
    assert stat.S_IMODE(expected.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_one_that_others_may_write_to_is_refused(expected: Path, mode: int) -> None:
    """SECURITY 27: whoever made it first chose the settings of the JVM's log."""
    expected.mkdir()
    expected.chmod(mode)
    with pytest.raises(ConfigError, match="remove it"):
        _scratch_directory()


def test_a_link_to_elsewhere_is_refused(expected: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    expected.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="remove it"):
        _scratch_directory()


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_one_of_another_user_is_refused(expected: Path) -> None:
    expected.mkdir(mode=0o700)
    os.chown(expected, 65534, 65534)
    with pytest.raises(ConfigError, match="remove it"):
        _scratch_directory()
