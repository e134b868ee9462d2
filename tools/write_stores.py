"""Writer of the stores of former versions that the tests open: tests/data/stores.

    python -m tools.write_stores            those that are missing
    python -m tools.write_stores 2 3        these, anew

Each store is written by its own version: the commit is checked out into a temporary git worktree, and
`tests/data/stores/fill.py` runs with the sources there. So the repository needs its history, and the environment what
those versions imported. When the format changes, add the last commit with the former format here, and run this.
"""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import lmdb

ROOT = Path(__file__).parents[1]
STORES = ROOT / "tests" / "data" / "stores"

COMMITS = {
    "1": "d0ed8975",
    "2-first": "f335e7cc",
    "2": "6beefd08",
    "3-first": "6e41805b",
    "3": "a06bcab5",
}
"""What wrote each store.

1: queues only; the last one with that format. 2-first: the first one whose broker ran with format 2, without databases
for large messages. 2: the last one. 3-first: the first one with format 3, without the database of messages taken.
3: the one before stores were migrated.
"""


def write(name: str, commit: str) -> None:
    """Write the store `name`, what is in it, and the ledger of its broker, each packed."""
    with tempfile.TemporaryDirectory() as directory:
        there = Path(directory)
        sources = there / "sources"
        subprocess.run(["git", "worktree", "add", "--detach", sources, commit], cwd=ROOT, check=True)
        try:
            environment = {**os.environ, "PYTHONPATH": str(sources / "src")}
            command = [sys.executable, str(STORES / "fill.py"), str(there)]
            subprocess.run(command, cwd=there, env=environment, check=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", sources], cwd=ROOT, check=True)
        (there / "packed").mkdir()
        opened = lmdb.open(str(there / "store"), readonly=True)
        opened.copy(str(there / "packed"), compact=True)
        opened.close()
        pack(there / "packed" / "data.mdb", STORES / f"{name}.mdb.xz")
        pack(there / "record.json", STORES / f"{name}.json.xz")
        (segment,) = (there / "ledger").glob("*.parquet")
        (STORES / "ledgers" / name).mkdir(parents=True, exist_ok=True)
        for former in (STORES / "ledgers" / name).iterdir():
            former.unlink()
        (STORES / "ledgers" / name / segment.name).write_bytes(segment.read_bytes())


def pack(file: Path, to: Path) -> None:
    """Compress a file."""
    to.write_bytes(lzma.compress(file.read_bytes(), preset=9 | lzma.PRESET_EXTREME))


def main(names: list[str]) -> None:
    """Write the stores of these names, or those that are missing."""
    for name in names or [name for name in COMMITS if not (STORES / f"{name}.mdb.xz").exists()]:
        write(name, COMMITS[name])


if __name__ == "__main__":
    main(sys.argv[1:])
