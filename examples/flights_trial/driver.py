"""The pipeline as a process that can be killed with all that belongs to it, and how far it is by its checkpoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


class Driver:
    """Spark's driver, its JVM and its Python workers: one session of processes, started again when it was killed.

    Args:
        script: the pipeline.
        out: the directory that the pipeline is given; its log goes there too.
    """

    def __init__(self, script: Path, url: str, out: Path) -> None:
        self._command = [sys.executable, str(script), "--url", url, "--out", str(out)]
        self._out = out
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    @property
    def log(self) -> Path:
        """What Spark and the pipeline wrote."""
        return self._out / "driver.log"

    def keep_running(self) -> bool:
        """Start it if it does not run; returns whether it did not."""
        if self._process is not None and self._process.poll() is None:
            return False
        self.starts += 1
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        return True

    def kill(self) -> None:
        """SIGKILL to the whole session."""
        if self._process is None:
            return
        for pid in self._members():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()

    def finish(self) -> int:
        """Have it finish what is there, and end; returns its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait()

    def _members(self) -> Iterator[int]:
        assert self._process is not None
        for entry in Path("/proc").iterdir():
            try:
                # The JVM and the workers may be in groups of their own; the session is what they share.
                if entry.name.isdecimal() and os.getsid(int(entry.name)) == self._process.pid:
                    yield int(entry.name)
            except ProcessLookupError:
                continue

    @property
    def batches(self) -> int:
        """Batches of the first stream that are committed."""
        return len(_numbers(self._checkpoint / "commits"))

    @property
    def taken(self) -> int:
        """How many messages of the queue are in batches that were begun."""
        offsets = self._checkpoint / "offsets"
        numbers = _numbers(offsets)
        if not numbers:
            return 0
        # A version, Spark's own words, then a line for each source.
        told = (offsets / str(numbers[-1])).read_text().splitlines()[2]
        return int(json.loads(told).get("flights", 0))

    @property
    def _checkpoint(self) -> Path:
        return self._out / "checkpoints" / "delays"


def _numbers(directory: Path) -> list[int]:
    return sorted(int(file.name) for file in directory.glob("[0-9]*") if file.name.isdecimal())
