"""The frames that checks and metrics ask, made of a ledger's facts, each computed once."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from legato.core.facts import Kind
from legato.spark.auditor.check_runner import candidates_in_commits
from legato.spark.auditor.high_water_marks import marks, queue_and_epoch_facts
from legato.spark.checks.check import Frames
from legato.spark.ledger import fact_frames
from legato.spark.ledger.fact_filter import kind_in
from legato.spark.ledger.trimming import Trimmed
from legato.spark.runtime.session import SMALL_QUERY_SETTINGS, is_for_small_queries, session_like
from legato.spark.runtime.thresholds import INLINE_ROWS_MAX, INTERPRET_ROWS_MAX
from legato.spark.summaries.message_summary import KINDS, MESSAGES_SCHEMA
from legato.spark.summaries.message_summary_sql import AUDITED, audited, messages
from legato.spark.summaries.preaggregation import COMMITS, NUMBERS, QUEUE_AND_EPOCH_FACTS, REGISTRATIONS, TRANSACTIONS
from legato.spark.summaries.prefetch import PrefetchedLedger
from legato.spark.summaries.producer_order_numpy import odd_numbers_of, registered_anew_of
from legato.spark.summaries.producer_order_sql import odd_numbers, registered_anew

Keep = Callable[[DataFrame], DataFrame]
"""How what is asked often is computed but once."""


def cached(frame: DataFrame) -> DataFrame:
    """The same frame, whose rows stay with the executors that compute them first."""
    return frame.cache()


def as_rows(frame: DataFrame) -> DataFrame:
    """The same rows as a part of the plans that ask them: while they are few that is planned and asked soonest."""
    return frame.sparkSession.createDataFrame(frame.toArrow(), frame.schema)


class LazyFrames(Mapping[str, DataFrame]):
    """Frames by name, each made when it is first asked for: until then nobody has to wait for its plan."""

    def __init__(self, makers: Mapping[str, Callable[[], DataFrame]]) -> None:
        self._made = {name: Lazy(make) for name, make in makers.items()}

    def __getitem__(self, name: str) -> DataFrame:
        return self._made[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


class Lazy:
    """What is made once, by whichever thread asks first."""

    def __init__(self, make: Callable[[], DataFrame]) -> None:
        self._make = make
        self._lock = Lock()
        self._frame: DataFrame | None = None

    def __call__(self) -> DataFrame:
        """The frame."""
        with self._lock:
            if self._frame is None:
                self._frame = self._make()
            return self._frame


class _Base(NamedTuple):
    """What the other frames are made of.

    `queue_and_epoch_facts` are those of `high_water_marks.queue_and_epoch_facts`.
    """

    queue_and_epoch_facts: Lazy
    commits: Lazy
    transactions: Lazy
    messages: Lazy
    odd_numbers: Lazy
    reregistered: Lazy


@contextmanager
def frames_of(
    spark: SparkSession,
    facts: Callable[[], DataFrame],
    waiting: DataFrame | None = None,
    prefetched: PrefetchedLedger | None = None,
    keep: Keep = cached,
    trimmed: Trimmed | None = None,
) -> Iterator[Frames]:
    """The frames that checks ask, each computed once while the block lasts.

    Args:
        spark: the session that asks them.
        facts: makes the facts of the ledger.
        waiting: `queue`, `seq` of what waits, if that is known.
        prefetched: what was found in the same ledger aside; without it Spark looks at all facts for it.
        keep: how frames that Spark makes of all facts are kept.
        trimmed: what the ledger says of its beginning, if that was trimmed.
    """
    computed: list[DataFrame] = []

    def kept(frame: DataFrame, how: Keep = keep) -> DataFrame:
        computed.append(how(frame))
        return computed[-1]

    facts = Lazy(facts)
    base = _asked(facts, kept) if prefetched is None else _read(spark, prefetched, kept)
    few = keep if prefetched is None else as_rows
    commits, queue_and_epoch_facts = base.commits, base.queue_and_epoch_facts
    queue_facts = Lazy(lambda: kept(fact_frames.queue_facts(queue_and_epoch_facts()), few))
    queues = Lazy(lambda: fact_frames.created(queue_facts()))
    through, first = (trimmed.through, trimmed.first) if trimmed is not None else (0, 1)
    # What is left of commits that were trimmed is not all of them.
    records = Lazy(lambda: fact_frames.records(commits().where(f"position > {through}L")))

    def counted() -> DataFrame:
        found = marks(queue_and_epoch_facts(), commits())
        return found if trimmed is None else with_trimmed(found, trimmed)

    try:
        yield LazyFrames(
            {
                "facts": facts,
                "queue_and_epoch_facts": queue_and_epoch_facts,
                "commits": commits,
                "transactions": base.transactions,
                "queues": queues,
                "marks": lambda: kept(counted(), few),
                "trimmed": lambda: spark.range(1).selectExpr(f"{through}L as through", f"{first}L as begins_with"),
                "deletions": lambda: fact_frames.deletions(queue_facts()),
                "records": records,
                "epochs": lambda: fact_frames.epochs(records()),
                "unknown_queues": lambda: _unknown_queues(commits(), queues()),
                "messages": base.messages,
                "odd_numbers": base.odd_numbers,
                "reregistered": base.reregistered,
                **({} if waiting is None else {"waiting": lambda: waiting}),
            }
        )
    finally:
        for frame in computed:
            frame.unpersist()


def with_trimmed(marks: DataFrame, trimmed: Trimmed) -> DataFrame:
    """High-water marks, and what the facts before them come to with those that were trimmed.

    Of a mark that is older itself there is nothing to compare: it says how many waited.
    """
    is_since = f"position > {trimmed.through}L"
    counters = marks.sparkSession.createDataFrame(
        [(queue, *counts) for queue, counts in trimmed.counters.items()],
        "queue int, trimmed_stored bigint, trimmed_consumed bigint",
    )
    return marks.join(F.broadcast(counters), "queue", "left").selectExpr(
        *("queue", "position", "ordinal", "seq", "stored", "consumed", "place", "in_order"),
        f"if({is_since}, stored_found + coalesce(trimmed_stored, 0L), stored) as stored_found",
        f"if({is_since}, consumed_found + coalesce(trimmed_consumed, 0L), consumed) as consumed_found",
        f"if({is_since}, seq_found, seq) as seq_found",
    )


def _unknown_queues(commits: DataFrame, queues: DataFrame) -> DataFrame:
    """Queues of messages that were never created."""
    used = commits.where(kind_in(*KINDS)).selectExpr("queue", "false as known")
    both = used.unionAll(queues.selectExpr("queue", "true as known"))
    return fact_frames.aggregate(both, "queue", known="max(known)").where("not known").select("queue")


def _asked(facts: Callable[[], DataFrame], kept: Callable[[DataFrame], DataFrame]) -> _Base:
    """All of it by Spark."""
    return _Base(
        queue_and_epoch_facts=Lazy(lambda: kept(queue_and_epoch_facts(facts()))),
        commits=Lazy(lambda: kept(fact_frames.commits(facts(), **candidates_in_commits()))),
        transactions=Lazy(lambda: kept(fact_frames.transactions(facts()))),
        messages=Lazy(lambda: messages(kept(audited(facts())), AUDITED)),
        odd_numbers=Lazy(lambda: kept(odd_numbers(facts()))),
        reregistered=Lazy(lambda: kept(registered_anew(facts()))),
    )


def _read(spark: SparkSession, prefetched: PrefetchedLedger, kept: Callable[[DataFrame], DataFrame]) -> _Base:
    """What was found aside. Few rows become parts of plans, and little is asked of a session for that."""
    little = spark if is_for_small_queries(spark) else session_like(spark, SMALL_QUERY_SETTINGS)

    def table(name: str) -> pa.Table:
        return pa.concat_tables([pq.read_table(file) for file in prefetched.preaggregated(name)])

    def given(rows: pa.Table) -> DataFrame:
        return little.createDataFrame(rows)

    def frame(name: str) -> DataFrame:
        files = prefetched.preaggregated(name)
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        if rows <= INLINE_ROWS_MAX:
            return given(table(name))
        schema = from_arrow_schema(pq.read_schema(files[0]))
        asking = little if rows <= INTERPRET_ROWS_MAX else spark
        return kept(asking.read.schema(schema).parquet(*map(str, files)))

    return _Base(
        queue_and_epoch_facts=Lazy(lambda: frame(QUEUE_AND_EPOCH_FACTS)),
        commits=Lazy(lambda: fact_frames.with_kind(frame(COMMITS))),
        transactions=Lazy(lambda: fact_frames.transactions_added_up(frame(TRANSACTIONS))),
        messages=Lazy(lambda: spark.read.schema(MESSAGES_SCHEMA).parquet(*map(str, prefetched.silver()))),
        odd_numbers=Lazy(lambda: given(odd_numbers_of(table(NUMBERS), _schedules(table(QUEUE_AND_EPOCH_FACTS))))),
        reregistered=Lazy(lambda: given(registered_anew_of(table(REGISTRATIONS)))),
    )


def _schedules(queue_and_epoch_facts: pa.Table) -> list[int]:
    """The queues whose places are due times."""
    found = queue_and_epoch_facts.filter(pc.equal(queue_and_epoch_facts.column("queue_kind"), int(Kind.SCHEDULE)))
    queues: list[int] = found.column("queue").to_pylist()
    return queues
