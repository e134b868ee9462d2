"""Migrations of a store that are killed, one at each stage from each format, until one comes to its end.

    python -m tests.integration.store.killed_migration STORE

Prints a line of JSON for each: the format it went from and the stage where it was killed, the format that was left, and
what is in the directory.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from legato.store.migration import Stage, migrate
from tests.support.stores import raw


def migrate_until(store: Path, version: int, survived: set[tuple[int, str]]) -> tuple[int, str]:
    """Migrate in another process, which is killed where none was before; returns that format and stage, or `done`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:

        def reach(stage: Stage) -> None:
            nonlocal version
            if (version, stage) not in survived:
                os.write(writing, json.dumps([version, stage]).encode())
                os.kill(os.getpid(), signal.SIGKILL)
            version += stage == Stage.COMMITTED

        migrate(store, reached=reach)
        os.write(writing, json.dumps([version, "done"]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        version, stage = json.loads(pipe.read())
    os.waitpid(child, 0)
    return version, stage


def format_left(store: Path) -> int:
    """The format in the file of a store."""
    return int(raw(store)["meta"][b"format"])


def main(store: Path) -> None:
    """Kill migrations until there is no other place for it."""
    survived: set[tuple[int, str]] = set()
    stage = ""
    while stage != "done":
        version, stage = migrate_until(store, format_left(store), survived)
        survived.add((version, stage))
        names = sorted(path.name for path in store.iterdir())
        print(json.dumps([version, stage, format_left(store), names]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
