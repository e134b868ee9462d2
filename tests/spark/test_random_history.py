"""What a real broker does, whatever it is asked, gives the audit nothing to complain of."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from legato.core.facts import (
    LogRecord,
    MessageDelivered,
    MessageMoved,
    MessagePublished,
    MessageReleased,
    MessageSeen,
    QueueDeleted,
)
from legato.spark.auditor.audit import audit_facts
from legato.spark.ledger.fact_frames import read_ledger
from legato.spark.ledger.segments import write_segment
from legato.spark.ledger.waiting import waiting_in
from legato.spark.summaries.message_summary_numpy import add_up, messages_of, read_segment
from legato.spark.summaries.message_summary_sql import lifecycle
from tests.spark.history import QUEUES_EACH, one_log
from tests.unit.core.test_random import History

HISTORIES = 20


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_random_histories_of_a_real_broker_raise_no_alarm(spark: SparkSession, tmp_path: Path) -> None:
    """Topics, selectors, priorities, groups, delays, expiry, transactions, administration, full disks and crashes."""
    histories: list[list[LogRecord]] = []
    waiting: list[tuple[int, int]] = []
    for seed in range(HISTORIES):
        history = History(seed, detailed=seed % 3 == 0)
        history.run(400)
        if seed % 2:
            history.heal()
        store = history.s.store
        histories.append([record for _, record in store.log(0, 1 << 40)])
        waiting += [(row["queue"] + QUEUES_EACH * seed, row["seq"]) for row in waiting_in(store).to_pylist()]
    facts = {fact.__class__ for records in histories for record in records for fact in record.facts}
    assert {MessagePublished, MessageMoved, QueueDeleted, MessageDelivered, MessageSeen, MessageReleased} <= facts
    span = write_segment(tmp_path, list(enumerate(one_log(histories), 1)))
    frame, segment = read_ledger(spark, tmp_path), tmp_path / span.file_name
    in_tasks = messages_of(add_up(read_segment(segment))).to_pylist()
    assert sorted(map(repr, in_tasks)) == sorted(repr(row.asDict()) for row in lifecycle(frame).collect())
    exact = audit_facts(frame, spark.createDataFrame(waiting, "queue int, seq bigint"))
    assert [(check.name, check.examples) for check in exact.checks if check.count] == []
    assert exact.total("waiting") == len(waiting)
    by_marks = audit_facts(frame)
    assert [(check.name, check.examples) for check in by_marks.checks if check.count] == []
    account = sum(exact.total(column) for column in ("consumed", "dead_lettered", "moved", "deleted", "waiting"))
    assert account == exact.total("stored") > 1000
    assert {"expired", "due", "delayed", "purged"} <= {cause for queue in exact.queues for cause in queue.moves}
