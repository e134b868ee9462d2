"""What a broker says that finds a store which nobody can serve from: what it is, and what to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.server import Server, server


def _cut_off(file: Path) -> None:
    os.truncate(file, 20_000)


def _overwrite(file: Path) -> None:
    file.write_bytes(b"no database\n" * 30_000)


def _replace(file: Path) -> None:
    file.unlink()
    file.mkdir(mode=0o755)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_cut_off, "is damaged: its file data.mdb was cut off"),
        (_overwrite, "MDB_INVALID: File is not an LMDB file"),
        (_replace, "data.mdb is a directory, and has to be the store's file"),
    ],
)
def test_a_broker_says_what_is_wrong_with_its_store_and_what_to_do(
    tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    with server(store := tmp_path / "store"):
        pass
    damage(store / "data.mdb")
    broker = Server(store).start()
    assert broker.wait() != 0
    logged = " ".join(broker.log.read_text().split())
    assert said in logged
    assert "legato store restore BACKUP STORE" in logged
    assert "fenced" not in logged
    assert "chmod" not in logged
