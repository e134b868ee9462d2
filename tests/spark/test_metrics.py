"""Takeovers, latencies, throughput and the account of the queues, computed by hand for the small history."""

from io import StringIO

import pytest
from msgspec.structs import astuple, replace
from pyspark.sql import SparkSession
from rich.console import Console

from legato.core.facts import EpochEnded, MessageConsumed
from legato.spark.auditor.audit import audit, bucket_for
from legato.spark.auditor.metrics import latencies, lengths
from legato.spark.auditor.queue_rollup import TEMPORARIES_SHOWN_MAX
from legato.spark.auditor.throughput import activity, throughput
from legato.spark.ledger.fact_frames import commits
from legato.spark.ledger.segments import write_segment
from legato.spark.report.audit_page import report_page
from legato.spark.report.audit_terminal import print_audit
from legato.spark.result import AuditResult, Takeover, TopicAudit
from legato.spark.summaries.message_summary_sql import lifecycle
from tests.spark.conftest import Audit, MakeFacts
from tests.spark.history import (
    INVOICES,
    NEWS,
    ORDERS,
    history,
    idle_takeover,
    instead,
    ms_us,
    news_history,
    one_log,
    order,
    published,
    record,
)


def test_the_audit_accounts_for_every_queue_and_takeover(audit_of: Audit) -> None:
    result = audit_of(history())
    assert result.passes
    rollup = {
        queue.name: (
            queue.stored,
            queue.consumed,
            queue.forwarded,
            queue.dead_lettered,
            queue.waiting,
            queue.redelivered,
        )
        for queue in result.queues
    }
    assert rollup == {"orders": (6, 4, 4, 1, 1, 1), "invoices": (4, 4, 0, 0, 0, 0), "DLQ": (1, 0, 0, 0, 1, 0)}
    (takeover,) = result.takeovers
    assert (takeover.epoch, takeover.former_broker, takeover.broker, takeover.clean) == (2, "a", "b", False)
    assert (takeover.duration_ms, takeover.served_ms) == (200.0, 200.0)
    assert (takeover.how, takeover.at_most) == ("crash", True), "it may have been idle, and lived"
    assert result.facts == sum(len(each.facts) for each in history())
    assert result.flows is None
    assert result.actions is None
    page = report_page(result, None, {2: 250.0}, "A <small> history")
    assert "Who did what" not in page, "nobody did anything"
    assert "Every message is accounted for." in page
    assert "A &lt;small&gt; history" in page
    assert "http" not in page, "nothing comes from outside"


def test_copies_moves_and_deleted_queues_are_in_the_account(audit_of: Audit) -> None:
    result = audit_of(news_history())
    assert result.passes
    rollup = {
        queue.name: (queue.stored, queue.consumed, queue.dead_lettered, queue.moved, queue.deleted, queue.waiting)
        for queue in result.queues
    }
    assert rollup == {
        "subscription://c/readers": (6, 4, 0, 1, 0, 1),
        "volatile://c//link": (4, 1, 0, 1, 2, 0),
        "$schedule": (2, 0, 0, 2, 0, 0),
        "replies": (3, 1, 0, 0, 2, 0),
        "urgent": (7, 2, 1, 3, 0, 1),
        "DLQ": (1, 0, 0, 0, 0, 1),
    }
    causes = {
        queue.name: (queue.dead_letters, queue.moves) for queue in result.queues if queue.dead_letters or queue.moves
    }
    assert causes == {
        "subscription://c/readers": ({}, {"delayed": 1}),
        "volatile://c//link": ({}, {"expired": 1}),
        "$schedule": ({}, {"due": 2}),
        "urgent": ({"rejected": 1}, {"dropped": 1, "moved": 1, "purged": 1}),
    }
    assert result.topics == [TopicAudit(NEWS, "topic://news", published=8, copies=10, unheard=2, duplicated=0)]
    assert result.queue("subscription://c/readers").redelivered == 1, "a count that is carried is no new redelivery"
    assert result.facts == sum(len(each.facts) for each in news_history())
    page = report_page(result, None, {}, "news")
    console = Console(file=StringIO(), width=160, record=True)
    print_audit(result, console)
    table = console.export_text()
    assert all(text in page and text in table for text in ("expired", "delayed", "rejected", "purged", "topic://news"))


@pytest.mark.slow
def test_many_temporary_queues_share_a_line_of_the_account(audit_of: Audit) -> None:
    histories = [news_history() for _ in range(TEMPORARIES_SHOWN_MAX)]
    instead(histories[0], published(4, [], number=4), published(4, [], number=3))
    result = audit_of(one_log(histories))
    assert [check.name for check in result.checks if check.count] == ["number stored twice"]
    assert result.total("duplicated") == 1
    assert len(result.queues) == 2 + 4 * TEMPORARIES_SHOWN_MAX
    together = [
        (queue.name, queue.stored, queue.consumed, queue.moved, queue.deleted, queue.waiting, queue.lost)
        for queue in result.queues
        if queue.queue < 0
    ]
    assert together == [
        ("temporary queues", *(count * TEMPORARIES_SHOWN_MAX for count in (3, 1, 0, 2, 0, 0))),
        ("temporary subscriptions", *(count * TEMPORARIES_SHOWN_MAX for count in (4, 1, 1, 2, 0, 0))),
    ]
    assert {point.queue for point in result.timeline.throughput} == {queue.queue for queue in result.queues}


def test_an_audit_that_fails_says_so_with_examples(audit_of: Audit) -> None:
    records = history()
    records.append(record(2, 402, order(1)))
    result = audit_of(records)
    assert not result.passes
    assert result.queue("orders").duplicated == 2, "its place and its number were taken twice"
    assert b'"passes": false' in result.to_json()
    page = report_page(result, None, {}, "history")
    assert "Every message is accounted for." not in page
    assert "2 of" in page


@pytest.fixture(scope="module")
def four(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """The audit of four takeovers in one log: Spark spends its time on each query, not on its few rows."""
    stopped = history()
    stopped[7].facts.append(EpochEnded("shutdown"))
    ledger = tmp_path_factory.mktemp("takeovers")
    histories = [
        idle_takeover(EpochEnded("switchover"), cause="switchover"),
        idle_takeover(cause="crash", detection_us=30_000),
        idle_takeover(cause="start"),
        stopped,
    ]
    write_segment(ledger, list(enumerate(one_log(histories), 1)))
    return audit(ledger, spark)


def takeover_of(result: AuditResult, number: int) -> Takeover:
    """The takeover in the `number`-th history of that log, each of which has two epochs."""
    (found,) = (takeover for takeover in result.takeovers if takeover.epoch == 2 * number)
    return found


def page_of(result: AuditResult, takeover: Takeover) -> str:
    """The page, as if that had been the only takeover."""
    return report_page(replace(result, takeovers=[takeover]), None, {}, "idle")


def test_an_outage_is_the_time_in_which_nobody_served_however_long_nobody_sent(four: AuditResult) -> None:
    """After an idle switchover the report said 46 s instead of 71 ms, and called it a stop."""
    takeover = takeover_of(four, 1)
    assert (takeover.how, takeover.clean, takeover.at_most) == ("switchover", True, False)
    assert (takeover.duration_ms, takeover.served_ms) == (50.0, 71.0)
    page = page_of(four, takeover)
    assert '<span class="badge good">switchover</span>' in page
    assert "✓ epoch 2 · 71 ms" in page, "the label of the red band"
    assert '<td class="n">71 ms</td>' in page
    assert "≤ " not in page


def test_of_an_idle_primary_that_crashed_its_successor_says_when_it_was_lost(four: AuditResult) -> None:
    takeover = takeover_of(four, 2)
    assert (takeover.how, takeover.clean, takeover.at_most) == ("crash", False, False)
    assert (takeover.duration_ms, takeover.served_ms) == (30.0, 51.0)


def test_where_nobody_saw_an_idle_primary_die_an_outage_is_at_most_so_long(four: AuditResult) -> None:
    takeover = takeover_of(four, 3)
    assert (takeover.how, takeover.at_most) == ("crash", True)
    assert "≤ " in page_of(four, takeover)


def test_a_primary_that_stopped_is_told_from_one_that_crashed(four: AuditResult) -> None:
    takeover = takeover_of(four, 4)
    assert (takeover.clean, takeover.how) == (True, "stop")


def test_percentiles_are_those_of_the_messages(facts_of: MakeFacts) -> None:
    stored = [record(1, 1, *(order(seq) for seq in range(1, 101)))]
    consumed = [record(1, 10 + seq, consumption(seq)) for seq in range(1, 101)]
    rows = latencies(lengths(lifecycle(facts_of([*stored, *consumed])), 0, 1_000_000)).collect()
    found = {row["stage"]: (list(row["percentiles"]), row["longest"], row["messages"]) for row in rows}
    assert found == {
        "queueing": ([1000, 1000, 1000], 1000, 100),
        "processing": ([58_000, 103_000, 107_000], 108_000, 100),
        "end to end": ([59_000, 104_000, 108_000], 109_000, 100),
    }


def test_throughput_counts_in_buckets_from_the_start(facts_of: MakeFacts) -> None:
    points = throughput(activity(commits(facts_of(history())), ms_us(0), 100_000).collect())
    assert [astuple(point) for point in points if point.queue in (ORDERS, INVOICES)] == [
        (ORDERS, 0, 5, 2, 0),
        (ORDERS, 3, 1, 2, 1),
        (INVOICES, 0, 2, 2, 0),
        (INVOICES, 3, 2, 2, 0),
    ]


def test_a_timeline_never_has_too_many_buckets() -> None:
    for duration_us in (0, 10**6, 10**8, 10**11, 10**14):
        assert duration_us / bucket_for(duration_us) <= 240


def consumption(seq: int) -> MessageConsumed:
    """That order consumed, delivered 2 ms after the history began."""
    return MessageConsumed(ORDERS, seq, 1, ms_us(2), 1)
