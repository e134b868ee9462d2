"""What a ledger says of flows, computed by hand for a few of them."""

from io import StringIO
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from legato.core.facts import (
    AnyFact,
    EpochBegan,
    Kind,
    LogRecord,
    MessageConsumed,
    MessageDeadLettered,
    MessageMoved,
    MessageOfFlow,
    MessagePublished,
    MessageStored,
    QueueCreated,
)
from legato.flows import Flows, Policy
from legato.spark.auditor.flows import FUTURES, audit_flows
from legato.spark.auditor.message_stories import tell
from legato.spark.exporter import export_all
from legato.spark.ledger.fact_frames import read_ledger
from legato.spark.report.audit_page import report_page
from legato.spark.report.audit_terminal import print_audit
from legato.spark.result import FlowsAudit, FlowsBegun, LatencySummary, StageAudit
from legato.spark.summaries.message_summary_sql import lifecycle
from legato.testing import broker
from tests.spark.conftest import Audit, MakeFacts
from tests.spark.history import DEAD, DUE, SCHEDULE, ms_us, record
from tests.support.shop import Order, Receipt, declare_shop

CHECK, PLACE, ADDRESS, NEWS, HEARD, BUNDLES = 11, 12, 13, 14, 15, 16

WAIT_S = 60.0
TEA = Receipt("tea", 6.0)


def called(queue: int, seq: int, flow: str, stage: str, number: int, call: str = "request") -> list[AnyFact]:
    return [MessageStored(queue, seq, 5, f"ID:{queue}.{seq}"), of_flow(queue, seq, flow, stage, number, call)]


def of_flow(queue: int, seq: int, flow: str, stage: str, number: int, call: str = "request") -> MessageOfFlow:
    return MessageOfFlow(queue, seq, flow, f"order {flow}", stage, call, number)


def worked_on(queue: int, seq: int, delivered_ms: int) -> MessageConsumed:
    return MessageConsumed(queue, seq, 7, ms_us(delivered_ms), 1)


def flow_history() -> list[LogRecord]:
    """Three flows begin at Order.check: f1 goes on to Order.place and is answered, f2 dies there, f3 is on its way.

    A bundle of 200 calls comes to Order.sum. f1 takes 5 ms until it is delivered and 5 ms at the first stage, then 20
    and 10 ms, and tells all who hear the news.
    """
    return [
        record(1, 1000, EpochBegan("a"), QueueCreated(DEAD, "DLQ"), QueueCreated(SCHEDULE, "$schedule", Kind.SCHEDULE)),
        record(1, 1000, QueueCreated(CHECK, "flows.Order.check"), QueueCreated(PLACE, "flows.Order.place")),
        record(1, 1000, QueueCreated(ADDRESS, "temp-queue://1", temporary=True)),
        record(1, 1000, QueueCreated(BUNDLES, "flows.Order.sum")),
        record(1, 1000, QueueCreated(NEWS, "flows.News", Kind.TOPIC)),
        record(1, 1000, QueueCreated(HEARD, "subscription", Kind.SUBSCRIPTION, NEWS)),
        record(1, 1010, *called(CHECK, 1, "f1", "Order.check", 1), *called(CHECK, 2, "f2", "Order.check", 1)),
        record(1, 1020, worked_on(CHECK, 1, 1015), *called(PLACE, 1, "f1", "Order.place", 2, "next")),
        record(1, 1030, worked_on(CHECK, 2, 1025), *called(PLACE, 2, "f2", "Order.place", 2, "next")),
        record(1, 1040, *called(CHECK, 3, "f3", "Order.check", 1)),
        record(
            1,
            1050,
            worked_on(PLACE, 1, 1040),
            *called(ADDRESS, 1, "f1", "temp-queue://1", 3, "reply"),
            MessagePublished(NEWS, 9, 5, "ID:news", [HEARD]),
            of_flow(NEWS, 9, "f1", "News", 3, "publish"),
        ),
        record(1, 1055, worked_on(ADDRESS, 1, 1051), worked_on(HEARD, 9, 1052)),
        record(1, 1056, MessageStored(BUNDLES, 1, 5, ""), MessageOfFlow(BUNDLES, 1, "", "", "Order.sum", "", 0, 200)),
        record(1, 1058, worked_on(BUNDLES, 1, 1057)),
        record(
            1,
            1060,
            MessageDeadLettered(PLACE, 2, 7, "refused", DEAD, 1),
            MessageStored(DEAD, 1, 5, "", origin=(PLACE, 2)),
        ),
    ]


def summary(stage: str, *ms: float) -> LatencySummary:
    """Of one or two lengths of time, in order."""
    return LatencySummary(stage, len(ms), ms[0], ms[-1], ms[-1], ms[-1])


def test_the_audit_names_stages_with_their_latencies_and_flows_with_their_ends(audit_of: Audit) -> None:
    result = audit_of(flow_history())
    assert result.passes, [check for check in result.checks if check.count]
    assert result.flows == FlowsAudit(
        stages=[
            StageAudit(FUTURES, 1, 1, 0, 0, times((1,), (4,), (5,))),
            StageAudit("News", 1, 1, 0, 0, times((2,), (3,), (5,))),
            StageAudit("Order.check", 3, 2, 0, 1, times((5, 15), (5, 5), (10, 20))),
            StageAudit("Order.place", 2, 1, 1, 0, times((20,), (10,), (30,))),
            StageAudit("Order.sum", 200, 200, 0, 0, times((1,) * 200, (1,) * 200, (2,) * 200)),
        ],
        begun=[FlowsBegun("Order.check", 3, 1, 1, 1, 6, summary("flow", 45))],
    )
    page = report_page(result, None, {}, "Flows")
    assert "Order.place, waited: p50 20 ms, p95 20 ms, p99 20 ms, 1 calls" in page
    printed = StringIO()
    print_audit(result, Console(file=printed, width=120))
    assert "Order.check 3 2 0 1 5 ms 15 ms 5 ms 5 ms" in " ".join(printed.getvalue().split())


def test_a_story_tells_whose_flow_a_message_was(facts_of: MakeFacts) -> None:
    story = tell(facts_of(flow_history()), f"{PLACE}/2")
    assert [chapter.event for chapter in story.chapters][:2] == [
        "stored, 5 bytes",
        "call 2, next of Order.place, in flow order f2 (f2)",
    ]


def times(queueing: tuple[float, ...], processing: tuple[float, ...], both: tuple[float, ...]) -> list[LatencySummary]:
    return [summary("queueing", *queueing), summary("processing", *processing), summary("end to end", *both)]


def test_a_call_that_was_put_off_counts_again_where_it_was_worked_on(facts_of: MakeFacts) -> None:
    again = [
        record(
            1,
            1100,
            MessageMoved(CHECK, 3, "delayed", SCHEDULE, DUE),
            MessageStored(SCHEDULE, DUE, 9, "", origin=(CHECK, 3)),
        ),
        record(
            1,
            1200,
            MessageMoved(SCHEDULE, DUE, "due", CHECK, 4),
            MessageStored(CHECK, 4, 5, "", origin=(SCHEDULE, DUE)),
            of_flow(CHECK, 4, "f3", "Order.check", 1),
        ),
        record(1, 1240, worked_on(CHECK, 4, 1230)),
    ]
    facts = facts_of([*flow_history(), *again])
    flows = audit_flows(facts, lifecycle(facts))
    check = next(each for each in flows.stages if each.stage == "Order.check")
    assert (check.consumed, check.waiting, check.latencies[0].max_ms) == (3, 0, 30)
    [begun] = flows.begun
    assert (begun.begun, begun.ended, begun.waiting) == (3, 2, 0)


def test_a_real_service_is_in_the_ledger_with_the_times_of_its_endpoints(spark: SparkSession, tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        shop = Flows(running.url, policy=Policy(concurrency=1))
        receipts = declare_shop(shop)
        shop.start()
        for number in range(3):
            with shop.initiate(f"order:{number}") as initiation:
                initiation.request("Orders.place", Order("tea", 2), reply_to="Orders.done")
        assert [receipts.get(timeout=WAIT_S)[1] for _ in range(3)] == [TEA] * 3
        shop.stop(timeout_s=WAIT_S)
    ledger = tmp_path / "ledger"
    export_all(running.store, ledger)
    facts = read_ledger(spark, ledger)
    flows = audit_flows(facts, lifecycle(facts))
    assert [(each.stage, each.calls, each.consumed) for each in flows.stages] == [
        (stage, 3, 3) for stage in ("Orders.done", "Orders.place", "Orders.place.stage1", "Prices.of")
    ]
    assert all(
        latency.messages == 3 and latency.max_ms < WAIT_S * 1e3 for each in flows.stages for latency in each.latencies
    )
    [begun] = flows.begun
    assert (begun.stage, begun.begun, begun.ended, begun.calls) == ("Orders.place", 3, 3, 12)
    assert begun.latency is not None
    assert begun.latency.p50_ms > 0
