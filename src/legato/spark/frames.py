"""The frames that checks and measures ask: made of a ledger's facts, each computed but once."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from legato.spark import ledger
from legato.spark.check import Frames
from legato.spark.checking import suspects_in_commits
from legato.spark.digest import COMMITS, LANDMARKS, TRANSACTIONS
from legato.spark.messages import AUDITED, audited, messages
from legato.spark.preparing import Prepared
from legato.spark.session import FOR_LITTLE, session_like
from legato.spark.tally import KINDS, MESSAGES_SCHEMA

Keep = Callable[[DataFrame], DataFrame]
"""How what is asked often is computed but once."""

FEW_ROWS = 2_000
"""Rows of which Spark asks more in interpreting than in compiling, and that may be carried from plan to plan."""


def cached(frame: DataFrame) -> DataFrame:
    """The same frame, whose rows stay with the executors that compute them first."""
    return frame.cache()


def as_rows(frame: DataFrame) -> DataFrame:
    """The same rows as a part of the plans that ask them: while they are few that is planned and asked soonest."""
    return frame.sparkSession.createDataFrame(frame.toArrow(), frame.schema)


class _Base(NamedTuple):
    """What the other frames are made of. `landmarks` holds at least what is said of queues, marks and epochs."""

    landmarks: DataFrame
    commits: DataFrame
    transactions: DataFrame
    lifecycle: Callable[[], DataFrame]
    keep: Keep


@contextmanager
def frames_of(
    facts: DataFrame,
    waiting: DataFrame | None = None,
    prepared: Prepared | None = None,
    keep: Keep = cached,
) -> Iterator[Frames]:
    """The frames that checks ask, each computed once while the block lasts.

    Args:
        facts: of the ledger.
        waiting: `queue`, `seq` of what waits, if that is known.
        prepared: what was found in the same ledger aside; without it Spark looks at all facts for it.
        keep: how frames that Spark makes of all facts are kept.
    """
    computed: list[DataFrame] = []

    def kept(frame: DataFrame, how: Keep = keep) -> DataFrame:
        computed.append(how(frame))
        return computed[-1]

    base = _asked(facts, keep, kept) if prepared is None else _read(facts.sparkSession, prepared)
    commits, landmarks = base.commits, base.landmarks
    queues = kept(ledger.queues(landmarks), base.keep)
    records = ledger.records(commits)
    told = commits.where(f"kind in ({', '.join(map(repr, KINDS))})").select("queue").distinct()
    try:
        yield {
            "facts": facts,
            "landmarks": landmarks,
            "commits": commits,
            "transactions": base.transactions,
            "queues": queues,
            "marks": kept(ledger.marks(landmarks, commits), base.keep),
            "deletions": kept(ledger.deletions(landmarks), base.keep),
            "records": records,
            "epochs": ledger.epochs(records),
            "strangers": told.join(queues, "queue", "left_anti"),
            # The last one: while it is made the others are thought of.
            "lifecycle": base.lifecycle(),
            **({} if waiting is None else {"waiting": waiting}),
        }
    finally:
        for frame in computed:
            frame.unpersist()


def _asked(facts: DataFrame, keep: Keep, kept: Callable[[DataFrame], DataFrame]) -> _Base:
    """All of it by Spark."""
    with ThreadPoolExecutor(1) as pool:
        # While one is planned another is computed.
        transactions = pool.submit(lambda: kept(ledger.transactions(facts)))
        commits = kept(ledger.commits(facts, **suspects_in_commits()))
    return _Base(facts, commits, transactions.result(), lambda: messages(kept(audited(facts)), AUDITED), keep)


def _read(spark: SparkSession, prepared: Prepared) -> _Base:
    """What was found aside: if it is few rows they become parts of plans, and a session for little is asked of them."""
    commits, landmarks, transactions = (prepared.digest(name) for name in (COMMITS, LANDMARKS, TRANSACTIONS))
    few = max(map(_count, (commits, landmarks, transactions))) <= FEW_ROWS
    session = session_like(spark, FOR_LITTLE) if few else spark
    read = _from_rows if few else _from_files
    return _Base(
        read(session, landmarks),
        ledger.with_kind(read(session, commits)),
        ledger.transactions_added_up(read(session, transactions)),
        lambda: spark.read.schema(MESSAGES_SCHEMA).parquet(*map(str, prepared.silver())),
        as_rows if few else cached,
    )


def _from_rows(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    return spark.createDataFrame(pa.concat_tables([pq.read_table(file) for file in files]))


def _from_files(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    schema = from_arrow_schema(pq.read_schema(files[0]))
    return spark.read.schema(schema).parquet(*map(str, files)).cache()


def _count(files: Sequence[Path]) -> int:
    return sum(pq.read_metadata(file).num_rows for file in files)
