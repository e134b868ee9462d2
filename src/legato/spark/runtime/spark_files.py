"""Files of the Spark that this process starts: its log, and the directory for all that it writes while it runs.

Both go when the process ends well. When it fails, the log stays for a week and its path is told; the directories of
processes that were killed are removed by the next one. A JVM has the log as its standard error, and with that a lock
on it: while it lives, even if it outlives this process, nobody removes its files.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

RUN = "run-"
FAILED = "failed-"
OLD_LOG = "spark-"
"""What logs of earlier versions begin with."""

_YOUNG_S = 60.0
"""Files that are younger may not be locked yet."""
_KEPT_S = 7 * 86_400.0


class SparkFiles:
    """The files of one run of Spark.

    Args:
        scratch: this user's directory for all runs.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._pid = os.getpid()
        self._directory = Path(tempfile.mkdtemp(prefix=f"{RUN}{self._pid}-", dir=scratch))
        self._failed = False
        self.log = self._directory / "spark.log"
        """What Spark's JVM writes to its standard error; its temporary directory is beside it."""
        self.temporary = self._directory / "tmp"
        self.temporary.mkdir()

    @contextmanager
    def open_log(self) -> Iterator[BinaryIO]:
        """The log, locked for as long as any process has it open."""
        # Appended to, also by this process when it fails.
        with self.log.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    def fail(self, error: BaseException | None = None) -> Path:
        """Keep the log when this process ends; returns where it will be.

        Args:
            error: is written to the log with its stack trace.
        """
        self._failed = True
        if error is not None:
            with suppress(OSError), self.log.open("a") as file:
                traceback.print_exception(error, file=file)
        return self._kept

    def end(self) -> Path | None:
        """Remove the files; returns where the log is if it is kept, because something failed."""
        if os.getpid() != self._pid:
            # A child of ours that was forked: the files are not its own.
            return None
        kept = None
        if self._failed and self.log.exists():
            kept = self.log.replace(self._kept)
        shutil.rmtree(self._directory, ignore_errors=True)
        return kept

    @property
    def _kept(self) -> Path:
        return self._scratch / f"{FAILED}{self._pid}.log"


def remove_abandoned(scratch: Path, now: float | None = None) -> None:
    """Remove what killed processes left, and logs that were kept long enough.

    Args:
        now: seconds since 1970, if not the present.
    """
    now = time.time() if now is None else now
    for directory in scratch.glob(f"{RUN}*"):
        with suppress(OSError):
            if now - directory.stat().st_mtime > _YOUNG_S and not _is_held(directory / "spark.log"):
                shutil.rmtree(directory, ignore_errors=True)
    for log in scratch.glob(f"{OLD_LOG}*.log"):
        with suppress(OSError):
            if now - log.stat().st_mtime > _YOUNG_S:
                log.unlink()
    for log in scratch.glob(f"{FAILED}*.log"):
        with suppress(OSError):
            if now - log.stat().st_mtime > _KEPT_S:
                log.unlink()


def _is_held(log: Path) -> bool:
    try:
        with log.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


_own: SparkFiles | None = None


def begin(scratch: Path) -> SparkFiles:
    """The files of the Spark that this process is about to start, after what others left was removed."""
    global _own
    remove_abandoned(scratch)
    if _own is None:
        atexit.register(_end)
    else:
        _own.end()
    _own = SparkFiles(scratch)
    return _own


def read_log() -> str:
    """What the JVM of this process has said; empty if there is none."""
    return "" if _own is None or not _own.log.exists() else _own.log.read_text(errors="replace")


def keep_log(error: BaseException) -> None:
    """Keep the log of this process's Spark, if there is one, and this error in it; its path is told at the end."""
    if _own is not None:
        _own.fail(error)


def _end() -> None:
    """As this process ends: what an uncaught exception leaves in `sys` says whether it ends well."""
    global _own
    own, _own = _own, None
    if own is None:
        return
    error = getattr(sys, "last_value", None)
    if error is not None and not isinstance(error, KeyboardInterrupt):
        own.fail()
    if (kept := own.end()) is not None:
        print(f"Spark's log is kept for a week: {kept}", file=sys.stderr)
