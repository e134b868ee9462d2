"""Stores that former versions of Legato wrote (tests/data/stores), and what those read from them."""

from __future__ import annotations

import importlib.util
import json
import lzma
from pathlib import Path
from typing import Any

import lmdb
import msgspec

DIRECTORY = Path(__file__).parents[1] / "data" / "stores"
NAMES = sorted(file.name.removesuffix(".mdb.xz") for file in DIRECTORY.glob("*.mdb.xz"))
FORMER = [name for name in NAMES if not name.startswith("3")]
"""Those of another format than the present one."""


def format_of(name: str) -> int:
    """The format of a store."""
    return int(name.partition("-")[0])


def unpack(name: str, directory: Path) -> Path:
    """Make a store in a directory, which only its owner may look into."""
    directory.mkdir(mode=0o700, exist_ok=True)
    file = directory / "data.mdb"
    file.touch(mode=0o600)
    file.write_bytes(lzma.decompress((DIRECTORY / f"{name}.mdb.xz").read_bytes()))
    return directory


def recorded(name: str) -> dict[str, Any]:
    """What the version that wrote a store read from it."""
    found: dict[str, Any] = json.loads(lzma.decompress((DIRECTORY / f"{name}.json.xz").read_bytes()))
    return found


def present(store: Path) -> dict[str, Any]:
    """What the present version reads from a store, in the same form."""
    found: dict[str, Any] = json.loads(msgspec.json.encode(_FILL.record(store)))
    return found


def raw(directory: Path) -> dict[str, dict[bytes, bytes]]:
    """All entries of all databases in the file of a store, of whatever format."""
    with lmdb.open(str(directory), readonly=True, max_dbs=64, lock=False) as environment:
        with environment.begin() as txn, txn.cursor() as cursor:
            names = [key for key, _ in cursor]
        handles = {name: environment.open_db(name, create=False) for name in names}
        with environment.begin() as txn:
            return {name.decode(): dict(txn.cursor(db=handle)) for name, handle in handles.items()}


def _load(file: Path) -> Any:
    """The module that also runs with former versions, which have no `tests` that could be imported."""
    spec = importlib.util.spec_from_file_location("fill", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_FILL: Any = _load(DIRECTORY / "fill.py")
LARGE_BYTES: int = _FILL.LARGE_BYTES
DUPLICATE_ID: str = _FILL.DUPLICATE_ID
