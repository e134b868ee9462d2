"""Planted defects: each is put into a copy of the sources, and `legato drill` must find it.

`python tools/drill_planted.py` tries all, `python tools/drill_planted.py NAME ...` some. A drill takes half a minute.
The exit code is the number of defects that were not found.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parent.parent / "src" / "legato"


class Change(NamedTuple):
    """In a file below `SOURCES`: the text that is there once, and what is there instead."""

    file: str
    right: str
    wrong: str


class Planted(NamedTuple):
    """A defect, which drill is to find it, and a part of the sentence that it does so with."""

    what: str
    options: str
    told: str
    changes: tuple[Change, ...]


PLANTED: dict[str, Planted] = {
    "members-end-a-broker": Planted(
        "On a full disk a broker ends that cannot record itself among the store's members.",
        "--faults full-disk-kill --count 1 --seed 1",
        "full-disk-kill",
        (
            Change("ha/members.py", "                _overwrite(path, record)\n", "                raise error\n"),
            Change(
                "ha/members.py",
                "                if not self._told:\n",
                "                raise StoreError(str(error)) from error\n                if not self._told:\n",
            ),
        ),
    ),
    "dead-readers-stay": Planted(
        "The upkeep does not clear the reads of processes that were killed.",
        "--faults kill-reader --count 1 --seed 1",
        "after a reader was killed",
        (Change("store/lmdb.py", "cleared = int(self._env.reader_check())", "cleared = 0"),),
    ),
    "stopped-readers-unnamed": Planted(
        "The status does not name a living reader that holds pages.",
        "--faults stop-reader --count 1 --seed 1",
        "does not name a stopped reader",
        (Change("server/storage/long_readers.py", "if monotonic_ms - since_ms >= PATIENCE_MS:", "if False:"),),
    ),
    "stuck-loop-keeps-the-lock": Planted(
        "A primary whose loop does not turn lives on, and keeps the lock.",
        "--faults loop-stuck --count 1 --seed 1",
        "nobody took over",
        (
            Change(
                "server/process/watchdog.py",
                "        if not self._limit_s or self._timer is not None:\n",
                "        if True:\n",
            ),
        ),
    ),
    "lost-lock-ends-a-broker": Planted(
        "A primary whose lock's file was deleted ends its process.",
        "--faults delete-lock --count 1 --seed 1",
        "ended by itself",
        (
            Change(
                "server/process/primary_epoch.py", "        if isinstance(error, FencedError):\n", "        if False:\n"
            ),
            Change(
                "server/process/runtime.py",
                "        except FencedError as error:\n",
                "        except ImportError as error:\n",
            ),
        ),
    ),
    "healthy-messages-die": Planted(
        "Each rollback counts as all the deliveries that a message may have.",
        "--faults cut --count 1 --seed 1",
        "died: message",
        (
            Change(
                "core/redelivery.py",
                "        message.count += 1\n",
                "        message.count += 10 if cause == 'rollback' else 1\n",
            ),
        ),
    ),
    "clients-leave-unasked": Planted(
        "A process of clients ends before it is asked to, with exit code 0 (the drill's own defect).",
        "--faults cut --count 2 --seed 1",
        "ended before it was asked to stop",
        (
            Change(
                "drill/clients.py",
                "                for client in as_completed(running):\n",
                "                for client in []:\n",
            ),
        ),
    ),
    "interrupted-receive-keeps": Planted(
        "A receive() that is interrupted does not put back the message that it was about to return.",
        "--faults cut --count 12 --seed 1 --every 5",
        "interrupted",
        (
            Change(
                "client/calls/consumer_work.py",
                "        delivery = end.handing\n        if delivery is None:\n            return\n",
                "        delivery = end.handing\n        end.handing = None\n        if True:\n            return\n",
            ),
        ),
    ),
    "inbox-not-consulted": Planted(
        "A stage of a flow works on a message that its inbox has already.",
        "--faults kill-client --count 3 --seed 1 --at between-database-commit-and-messaging-commit",
        "drill.1.flows",
        (
            Change(
                "flows/database/inbox.py",
                "        return {row[0] for row in connection.exec_driver_sql(sql, arguments)}\n",
                "        connection.exec_driver_sql(sql, arguments)\n        return set(message_ids)\n",
            ),
        ),
    ),
    "batches-published-again": Planted(
        "A sink's batch is published again when its driver, killed after it had published it, repeats it.",
        "--spark-load --faults kill-driver --count 1 --seed 1 --at between-publish-and-commit",
        "spark/end-to-end",
        (
            Change(
                "core/staged_batches.py",
                "        if producer.may_be_stored(number):\n            self._repeat",
                "        if False:\n            self._repeat",
            ),
            Change(
                "server/management/staged_batches.py",
                "            published = self._broker.staged_batches.is_published(name, number)\n",
                "            published = False\n",
            ),
        ),
    ),
    "batches-left-out": Planted(
        "A sink's driver hears that its batch is published, and the batch is not in the queue.",
        "--spark-load --faults kill-driver --count 1 --seed 1 --at between-stage-and-publish",
        "spark/end-to-end",
        (
            Change(
                "server/management/staged_batches.py",
                "            published = self._broker.staged_batches.is_published(name, number)\n",
                "            published = number % 4 == 3\n",
            ),
        ),
    ),
}


def plant(name: str, directory: Path) -> Path:
    """Copy the sources to `directory`, with a defect in them; returns where Python is to look for them.

    Raises:
        ValueError: the place of the defect is not what it was.
    """
    shutil.copytree(SOURCES, directory / "legato", ignore=shutil.ignore_patterns("__pycache__"))
    for file, right, wrong in PLANTED[name].changes:
        path = directory / "legato" / file
        text = path.read_text()
        if text.count(right) != 1:
            raise ValueError(f"{file} has {right!r} {text.count(right)} times: the defect {name} must be planted anew")
        path.write_text(text.replace(right, wrong))
    return directory


def is_found(name: str) -> bool:
    """Run the drill over sources with that defect, and print what it says."""
    planted = PLANTED[name]
    with tempfile.TemporaryDirectory(prefix="planted-") as scratch:
        sources = plant(name, Path(scratch) / "sources")
        result = Path(scratch) / "result.json"
        command = [sys.executable, "-m", "legato.cli", "drill", *planted.options.split()]
        command += [] if "--at" in command else ["--at", "any-instant"]
        command += [] if "--every" in command else ["--every", "1"]
        command += ["--no-spark", "--out", str(Path(scratch) / "out"), "--json", str(result)]
        environment = os.environ | {"PYTHONPATH": str(sources)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=scratch)
        complaints = json.loads(result.read_text())["complaints"] if result.exists() else [done.stderr]
    found = done.returncode == 1 and any(planted.told in complaint for complaint in complaints)
    print(f"{'found' if found else 'NOT FOUND'}: {name}: legato drill {planted.options}", flush=True)
    for complaint in complaints:
        print(f"    {complaint}", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(sum(not is_found(name) for name in sys.argv[1:] or PLANTED))
