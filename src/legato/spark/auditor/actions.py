"""Actions: who purged, moved, edited or switched over, and who was not allowed to."""

from pyspark.sql import DataFrame

from legato.spark.auditor.scope import Scope
from legato.spark.ledger.fact_filter import is_kind
from legato.spark.ledger.fact_frames import aggregate
from legato.spark.result import Action, Actions

SHOWN_MAX = 200
"""Lines of a page; the ledger's table `actions` has all of them."""

_TEXTS = ("user_name", "origin", "operation", "name", "decision", "to_name", "reason", "object_type", "message_id")


def audited_actions(facts: DataFrame, scope: Scope) -> Actions:
    """What the ledger has of the audit trail in a span of time; equal actions of an epoch are one line."""
    found = facts.where(is_kind("ActionAudited")).where(scope.during("time_us"))
    # One client's addresses differ by the port that it happened to get.
    whence = "regexp_replace(origin, ':[0-9]+$', '') as origin"
    same = aggregate(
        found.selectExpr(
            "epoch",
            "time_us",
            "omitted",
            whence,
            "coalesce(operation, event) as operation",
            *(name for name in _TEXTS if name not in ("origin", "operation")),
        ),
        ", ".join(("epoch", *_TEXTS)),
        time_us="max(time_us)",
        count="count(*)",
        omitted="coalesce(sum(omitted), 0)",
    )
    rows = same.orderBy("time_us", ascending=False).limit(SHOWN_MAX).collect()
    totals = found.selectExpr("count(*) as total", "coalesce(sum(omitted), 0) as omitted").first()
    assert totals is not None, "an aggregate has one row"
    return Actions(
        latest=[
            Action(
                time_us=row["time_us"],
                user=row["user_name"] or "",
                origin=row["origin"] or "",
                operation=row["operation"] or "",
                object=row["name"] or "",
                decision=row["decision"] or "",
                to=row["to_name"] or "",
                reason=row["reason"] or "",
                type=row["object_type"] or "",
                epoch=row["epoch"],
                message_id=row["message_id"] or "",
                count=row["count"],
            )
            for row in rows
        ],
        total=totals["total"],
        omitted=totals["omitted"],
    )
