"""Pages of results: whatever a broker's names contain, it is shown and never read as markup."""

from typing import Any

import msgspec

from legato.spark.report import page
from legato.spark.report.audit_page import report_page
from legato.spark.report.flights import CarrierComparison, CarrierTotals, TotalsComparison
from legato.spark.result import (
    AuditResult,
    CheckResult,
    FlowsAudit,
    FlowsBegun,
    LatencyCell,
    LatencySummary,
    QueueAudit,
    StageAudit,
    Takeover,
    ThroughputPoint,
    Timeline,
    TopicAudit,
)

HOSTILE = "<b onclick='x()'>\"&"
SHOWN = "&lt;b onclick="


def audited() -> AuditResult:
    times = [LatencySummary(stage, 9, 1.0, 2.0, 3.0, 4.0) for stage in ("queueing", "processing", "end to end")]
    cells = [LatencyCell(1, 0, 60, 9)]
    return AuditResult(
        facts=9,
        first_us=0,
        last_us=9_000_000,
        last_position=3,
        queues=[QueueAudit(1, HOSTILE, 9, 5, 1, 2, 1, 1, 1, 1, times, 1, 0, {HOSTILE: 2}, {HOSTILE: 1})],
        takeovers=[Takeover(2, HOSTILE, HOSTILE + "2", False, 1, 2, 1.0, 2.0, HOSTILE)],
        checks=[
            CheckResult("x", HOSTILE, 1, [{}], {HOSTILE: [HOSTILE]}, HOSTILE, HOSTILE, [HOSTILE]),
            CheckResult("y", HOSTILE, 0),
        ],
        timeline=Timeline(0, 1_000_000, [ThroughputPoint(1, 0, 9, 5, 2)], cells),
        topics=[TopicAudit(2, HOSTILE, 1, 1, 1, 1)],
        flows=FlowsAudit([StageAudit(HOSTILE, 9, 5, 2, 2, times)], [FlowsBegun(HOSTILE, 9, 5, 2, 2, 9, times[0])]),
    )


def test_names_and_texts_are_never_markup() -> None:
    totals = TotalsComparison(
        [CarrierComparison(HOSTILE, CarrierTotals(1, 1, 1, 1), CarrierTotals(2, 2, 2, 2))], 1, 1, 1, [HOSTILE]
    )
    text = report_page(audited(), totals, {2: 3.0}, HOSTILE, complaints=[HOSTILE])
    assert "<b onclick" not in text
    assert text.count(SHOWN) > 20


def test_parts_escape_texts_and_keep_markup() -> None:
    for part in (
        page.header(HOSTILE, HOSTILE, HOSTILE, good=True),
        page.tile(HOSTILE, HOSTILE),
        page.section(HOSTILE, HOSTILE, page.badge(HOSTILE, good=False), [(HOSTILE, "red")]),
        page.subhead(HOSTILE),
        page.table([HOSTILE], [[HOSTILE]], [HOSTILE]),
        page.folded(HOSTILE, page.paragraphs([HOSTILE], [HOSTILE])),
        page.codes([HOSTILE]),
        page.page(HOSTILE, []),
    ):
        assert "<b onclick" not in part
        assert SHOWN in part
    assert page.table(["#n"], [[page.badge("no", good=False)]]).count('<span class="badge bad">no</span>') == 1


def test_the_numbers_of_an_audit_are_on_its_page() -> None:
    result = msgspec.structs.replace(audited(), checks=[])
    text = report_page(result, None, {}, "Audit")
    shown: dict[str, Any] = {"stored": 9, "dead-lettered": 2, "lost": 1}
    for label, value in shown.items():
        assert f'<div class="value">{value}</div><div class="label">{label}</div>' in text
