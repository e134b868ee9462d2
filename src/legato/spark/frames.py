"""The frames that checks and measures ask: made of a ledger's facts, each computed but once."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from pyspark.sql import DataFrame

from legato.spark import ledger
from legato.spark.check import Frames
from legato.spark.checking import suspects_in_commits
from legato.spark.messages import AUDITED, audited, messages
from legato.spark.tally import KINDS

Keep = Callable[[DataFrame], DataFrame]
"""How what is asked often is computed but once."""


def cached(frame: DataFrame) -> DataFrame:
    """The same frame, whose rows stay with the executors that compute them first."""
    return frame.cache()


def as_rows(frame: DataFrame) -> DataFrame:
    """The same rows as a part of the plans that ask them: while they are few that is planned and asked soonest."""
    return frame.sparkSession.createDataFrame(frame.toArrow(), frame.schema)


@contextmanager
def frames_of(
    facts: DataFrame,
    waiting: DataFrame | None = None,
    lifecycle: Callable[[], DataFrame] | None = None,
    keep: Keep = cached,
) -> Iterator[Frames]:
    """The frames that checks ask, each computed once while the block lasts."""
    with ThreadPoolExecutor(1) as pool:
        # While one is planned another is computed.
        transactions = pool.submit(lambda: keep(ledger.transactions(facts)))
        deletions = pool.submit(lambda: keep(ledger.deletions(facts)))
        commits = keep(ledger.commits(facts, **suspects_in_commits()))
        kept = {
            "commits": commits,
            "queues": keep(ledger.queues(facts)),
            "marks": keep(ledger.marks(facts, commits)),
            "transactions": transactions.result(),
            "deletions": deletions.result(),
        }
    records = ledger.records(commits)
    computed = list(kept.values())
    if lifecycle is None:
        computed.append(keep(audited(facts)))
    told = commits.where(f"kind in ({', '.join(map(repr, KINDS))})").select("queue").distinct()
    asked = {
        "facts": facts,
        "records": records,
        "epochs": ledger.epochs(records),
        "strangers": told.join(kept["queues"], "queue", "left_anti"),
        # The last one: while it is made the others are thought of.
        "lifecycle": lifecycle() if lifecycle else messages(computed[-1], AUDITED),
    }
    try:
        yield kept | asked | ({} if waiting is None else {"waiting": waiting})
    finally:
        for frame in computed:
            frame.unpersist()
