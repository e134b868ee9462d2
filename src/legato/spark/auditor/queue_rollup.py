"""Roll-up of queues into lines of the account: a line for each, or one for all temporary queues if these are many."""

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from legato.core.facts import Kind

TEMPORARIES_SHOWN_MAX = 20

_TOGETHER = {
    Kind.QUEUE: "temporary queues",
    Kind.TOPIC: "temporary topics",
    Kind.SUBSCRIPTION: "temporary subscriptions",
}


class QueueRollup:
    """The lines that an audit's account has, by number.

    If each request has a temporary queue for its reply, a line for each queue would tell nobody anything. What is put
    together has a negative number. `known` are the ledger's queues.
    """

    def __init__(self, known: DataFrame) -> None:
        temporary = known.where("temporary")
        some = temporary.limit(TEMPORARIES_SHOWN_MAX + 1)
        rows = known.where("not temporary").unionAll(some).collect()
        self._together: DataFrame | None = None
        self._names: dict[int, str] = {}
        if sum(row["temporary"] for row in rows) > TEMPORARIES_SHOWN_MAX:
            self._together = temporary.selectExpr("queue", "cast(-1 - queue_kind as int) as account").cache()
            self._names = {-1 - kind: name for kind, name in _TOGETHER.items()}
            rows = [row for row in rows if not row["temporary"]]
        self._names |= {row["queue"]: row["name"] for row in rows}

    def name(self, number: int) -> str:
        """The name of a line: the queue's, or what is put together in it."""
        return self._names.get(number, f"queue {number}")

    def of(self, frame: DataFrame) -> DataFrame:
        """The frame with the line's number in place of the queue's, in its column `queue`."""
        if self._together is None:
            return frame
        joined = frame.join(F.broadcast(self._together), "queue", "left")
        return joined.withColumn("queue", F.coalesce("account", "queue")).drop("account")

    def rolled_up(self, totals: pa.Table) -> list[dict[str, int]]:
        """A row for each line, with the sums of its queues.

        Args:
            totals: sums for each `queue`.
        """
        if self._together is not None:
            known = self._together.toArrow()
            queue = totals.column("queue")
            account = pc.take(known.column("account"), pc.index_in(queue, known.column("queue").combine_chunks()))
            totals = totals.set_column(totals.column_names.index("queue"), "queue", pc.coalesce(account, queue))
        sums = [name for name in totals.column_names if name != "queue"]
        found = totals.group_by("queue").aggregate([(name, "sum") for name in sums])
        lines: list[dict[str, int]] = found.rename_columns({f"{name}_sum": name for name in sums}).to_pylist()
        return lines

    def close(self) -> None:
        """Give back what was kept in memory."""
        if self._together is not None:
            self._together.unpersist()
