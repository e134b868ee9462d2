"""Prefetch of a ledger: pre-aggregates and silver, written by processes of our own while Spark starts."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from legato.spark.ledger.fact_filter import FactFilter
from legato.spark.ledger.segments import last_commit_of, live, segments_of
from legato.spark.runtime.scratch import scratch_directory
from legato.spark.runtime.thresholds import IN_PROCESS_BYTES_MAX
from legato.spark.runtime.worker_processes import Run, here, workers
from legato.spark.summaries.preaggregation import HELD, SegmentBatch, preaggregate
from legato.spark.summaries.silver_writer import CLOSED, OPEN, SEGMENTS_PER_TASK, write_silver
from legato.store.segment_names import spans


class PrefetchedLedger:
    """Files made of a ledger, in a directory that is removed afterwards; to ask for them is to wait for them.

    Attributes:
        through: the last commit in the segments that they are made of.
    """

    def __init__(
        self, directory: Path, through: int, preaggregates: "Future[list[None]]", silver: "Future[None]"
    ) -> None:
        self.through = through
        self._directory = directory
        self._preaggregates, self._silver = preaggregates, silver

    def preaggregated(self, name: str) -> list[Path]:
        """The files of one of `preaggregation.HELD`."""
        self._preaggregates.result()
        return sorted((self._directory / name).glob("*.parquet"))

    def silver(self) -> list[Path]:
        """The directories of the rows of messages: see `silver_writer.py`."""
        self._silver.result()
        return [self._directory / "silver" / name for name in (CLOSED, OPEN)]


@contextmanager
def prefetching(ledger_dir: Path, candidates: Mapping[str, FactFilter]) -> Iterator[PrefetchedLedger]:
    """Read a ledger aside while the block goes on.

    Args:
        ledger_dir: directory of the segments.
        candidates: facts to count in each commit, by the name of the column.

    Raises:
        ConfigError: there is no ledger in the directory.
        StoreCorruptError: a segment is not whole.
    """
    segments = segments_of(ledger_dir)
    is_small = ledger_bytes(ledger_dir) < IN_PROCESS_BYTES_MAX
    with scratch_directory() as directory, ThreadPoolExecutor(2) as pool:
        if is_small:
            yield _begin(pool, segments, directory, candidates, here)
            return
        with workers(os.cpu_count() or 1) as run:
            yield _begin(pool, segments, directory, candidates, run)


def _begin(
    pool: ThreadPoolExecutor, segments: Sequence[Path], directory: Path, candidates: Mapping[str, FactFilter], run: Run
) -> PrefetchedLedger:
    for name in HELD:
        (directory / name).mkdir()
    batches = [
        SegmentBatch(begin, segments[begin : begin + SEGMENTS_PER_TASK], directory, dict(candidates))
        for begin in range(0, len(segments), SEGMENTS_PER_TASK)
    ]
    preaggregates = pool.submit(run, preaggregate, batches)
    silver = pool.submit(write_silver, segments, [], directory / "silver", run)
    return PrefetchedLedger(directory, last_commit_of(segments), preaggregates, silver)


def ledger_bytes(ledger_dir: Path) -> int:
    """The size of a ledger's segments together."""
    return sum((ledger_dir / span.file_name).stat().st_size for span in live(spans(ledger_dir)))
