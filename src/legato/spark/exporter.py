"""The exporter process beside a broker: copies the log of facts into ledger segments, off the broker's loop.

Run as `python -m legato.spark.exporter --store DIR --ledger DIR`. It polls the log (LMDB cannot notify another process)
and ends after a last export when its standard input ends: that is a pipe held by the broker, so it outlives no broker.
"""

import argparse
import contextlib
import gc
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from legato.bulk.arrays import leave_pandas_out
from legato.core.facts import LogRecord
from legato.errors import ConfigError, LegatoError
from legato.spark.ledger.fact_schema import row_count
from legato.spark.ledger.segments import LedgerLock, SegmentSpan, commit_in, exported_through, sweep, write_segment
from legato.store.lmdb import LmdbStore
from legato.store.settling import settle_store

POLL_S = 0.2
RETRY_S = 2.0
"""Until a ledger that cannot be written is tried again."""
SEGMENT_S = 2.0
"""A segment is closed after this long: how far the ledger may lag behind the log."""

SEGMENT_ROWS_MAX = 250_000
"""... or when it holds this many rows, which bounds the exporter's memory."""

BEGUN = "begun"
"""What a follower says on standard output when it has seen that the ledger is the store's."""

_READ_RECORDS = 64
_NICE = 10
_ALLOCATIONS = 100_000
"""Until the youngest objects are looked at for cycles."""


class Log(Protocol):
    """The part of a `Store` that an export reads."""

    def log(self, after: int, limit: int) -> Sequence[tuple[int, LogRecord]]: ...

    def log_range(self) -> tuple[int, int]: ...


class Exporter:
    """Copies a log into a ledger from where the ledger's last segment ends. The caller holds the `LedgerLock`.

    Args:
        log: the store to read, opened read-only.
        ledger: directory of the segments.
        segment_s: longest time in seconds that a fact waits in memory before it is written.

    Raises:
        ConfigError: the ledger holds positions that the log never reached, or other commits than the log.
    """

    def __init__(self, log: Log, ledger: Path, segment_s: float = SEGMENT_S) -> None:
        self._log = log
        self._ledger = ledger
        self._segment_s = segment_s
        self._pending: list[tuple[int, LogRecord]] = []
        self._pending_rows = 0
        self._pending_since = 0.0
        sweep(ledger)
        self._through = exported_through(ledger)
        if self._through > log.log_range()[1]:
            raise ConfigError(f"ledger {ledger} is ahead of the store's log: it was written from another store")
        self._refuse_other_commits()

    def _refuse_other_commits(self) -> None:
        """See that the ledger's last commit is the log's, if that still has it.

        A store that was restored, and then served without this ledger, may have got past the ledger's end.
        """
        records = self._log.log(self._through - 1, 1) if self._through else ()
        if not records or records[0][0] != self._through:
            return
        record, written = records[0][1], commit_in(self._ledger, self._through)
        if written and written != {(record.epoch, record.time_us)}:
            raise ConfigError(
                f"ledger {self._ledger} holds other commits than the store's log, up to commit {self._through}: the "
                "store was restored since, or it is another one. Name another directory ([ledger] directory), or move "
                "this one away, and audit it where it is"
            )

    def poll(self, now_s: float) -> list[SegmentSpan]:
        """Read what the log has now; returns the segments that were written because they were due at `now_s`.

        Raises:
            OSError: one cannot be written; nothing is forgotten, and no more is read than one segment may hold.
        """
        written = self._read_through(self._log.log_range()[1], now_s)
        if self._pending and now_s - self._pending_since >= self._segment_s:
            written.append(self._write())
        return written

    def finish(self, now_s: float) -> list[SegmentSpan]:
        """Write everything up to the end that the log has now, which a new primary may already be moving on."""
        written = self._read_through(self._log.log_range()[1], now_s)
        if self._pending:
            written.append(self._write())
        return written

    def _read_through(self, last: int, now_s: float) -> list[SegmentSpan]:
        # What could not be written before goes first.
        written = [self._write()] if self._pending_rows >= SEGMENT_ROWS_MAX else []
        while self._through < last:
            records = self._log.log(self._through, _READ_RECORDS)
            if not records:
                break
            if self._pending and records[0][0] > self._through + 1:
                # The store forgot what was between: that is told by the names of segments alone.
                written.append(self._write())
            if not self._pending:
                self._pending_since = now_s
            self._pending.extend(records)
            self._pending_rows += sum(row_count(record) for _, record in records)
            self._through = records[-1][0]
            if self._pending_rows >= SEGMENT_ROWS_MAX:
                written.append(self._write())
        return written

    def _write(self) -> SegmentSpan:
        span = write_segment(self._ledger, self._pending)
        self._pending = []
        self._pending_rows = 0
        return span


def export_all(store_dir: Path, ledger_dir: Path) -> int:
    """Export all that the store's log holds now, after any other exporter has ended; returns the position reached.

    Raises:
        StoreError: the store cannot be read.
        ConfigError: the ledger belongs to another store.
    """
    while not try_export(store_dir, ledger_dir):
        time.sleep(POLL_S)
    return exported_through(ledger_dir)


def try_export(store_dir: Path, ledger_dir: Path) -> bool:
    """Like `export_all`, but returns False at once if another exporter is at work, as beside a running broker."""
    settle_store(store_dir)
    with _Opened(store_dir, ledger_dir) as opened:
        if not opened.lock.acquire():
            return False
        Exporter(opened.store, ledger_dir).finish(time.monotonic())
    return True


def follow(store_dir: Path, ledger_dir: Path, segment_s: float = SEGMENT_S) -> None:
    """Export until the process is asked to stop, then once more; or until standard input ends, then not."""
    stop = _StopRequest()
    with _Opened(store_dir, ledger_dir) as opened:
        while not opened.lock.acquire():
            if stop.wait(POLL_S):
                return
        exporter = Exporter(opened.store, ledger_dir, segment_s)
        with contextlib.suppress(OSError):
            print(BEGUN, flush=True)
        failing = False
        while not stop.wait(RETRY_S if failing else POLL_S):
            try:
                exporter.poll(time.monotonic())
            except OSError as error:
                if not failing:
                    _say(f"the ledger {ledger_dir} cannot be written: {_reason(error)}. {_KEPT}")
                failing = True
            else:
                if failing:
                    _say(f"the ledger {ledger_dir} is written again")
                failing = False
        if not stop.orphaned:
            exporter.finish(time.monotonic())


_KEPT = "The store keeps the facts meanwhile, up to store.log_bytes"


def _reason(error: OSError) -> str:
    """In one line: Arrow's messages name its own source files."""
    return os.strerror(error.errno) if error.errno else " ".join(str(error).split())


def _say(sentence: str) -> None:
    """A line for the broker, which puts it into its log."""
    with contextlib.suppress(OSError):
        print(sentence, file=sys.stderr, flush=True)


class _Opened:
    """A store open for reading and the ledger's lock, both closed at the end of the block."""

    def __init__(self, store_dir: Path, ledger_dir: Path) -> None:
        self.store = LmdbStore(store_dir, read_only=True)
        self.lock = LedgerLock(ledger_dir)

    def __enter__(self) -> "_Opened":
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.close()
        self.store.close()


class _StopRequest:
    """A line on standard input, its end, SIGTERM or SIGINT."""

    def __init__(self) -> None:
        self._asked = False
        self.orphaned = False
        """The broker died without a word. Its successor starts an exporter that continues; we must not cost it time."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, *_: object) -> None:
        self._asked = True

    def wait(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` seconds; returns whether to stop."""
        readable, _, _ = select.select([sys.stdin], [], [], timeout_s)
        if readable:
            self._asked = True
            self.orphaned = not os.read(sys.stdin.fileno(), 4096)
        return self._asked


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `python -m legato.spark.exporter`."""
    parser = argparse.ArgumentParser(prog="legato.spark.exporter", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--store", type=Path, required=True, help="directory of the broker's store")
    parser.add_argument("--ledger", type=Path, required=True, help="directory of the ledger's segments")
    parser.add_argument("--segment-s", type=float, default=SEGMENT_S, help="seconds of facts in a segment")
    parser.add_argument("--once", action="store_true", help="export what there is and end")
    options = parser.parse_args(arguments)
    os.nice(_NICE)
    # Facts make no cycles, and what was imported stays: looking at all of it again and again took a tenth of the work.
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, 50, 100)
    try:
        if options.once:
            export_all(options.store, options.ledger)
        else:
            follow(options.store, options.ledger, options.segment_s)
    except LegatoError as error:
        _say(str(error))
        sys.exit(1)
    except OSError as error:
        _say(f"the ledger {options.ledger} cannot be written: {_reason(error)}. {_KEPT}")
        sys.exit(1)


if __name__ == "__main__":
    leave_pandas_out()
    main()
