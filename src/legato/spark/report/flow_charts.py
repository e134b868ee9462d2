"""Flows in the page of an audit: latencies of each stage as a chart and tables."""

import math
from html import escape

from markupsafe import Markup

from legato.spark.quantities import duration
from legato.spark.report import page
from legato.spark.report.charts import (
    LEFT,
    RIGHT,
    WIDTH,
    Scale,
    linear,
    svg,
)
from legato.spark.result import PROCESSING, QUEUEING, FlowsAudit, LatencySummary, StageAudit

_LANE = 40
_LABELS = 220
_BAR = 11
_TOP, _BOTTOM = 6, 30
_STAGES_MAX = 24
_DRAWN = {QUEUEING: "waited", PROCESSING: "at the service"}
_FLOOR_MS = 0.01
"""Faster than 10 µs is all the same in the picture."""


def flows_section(flows: FlowsAudit | None) -> Markup:
    """The part of the page about flows; nothing if there are none."""
    if flows is None:
        return page.NOTHING
    body = page.picture(stages_chart(flows)) + _stages_table(flows)
    if flows.begun:
        body += page.subhead("Flows, by the stage at which they began") + _begun_table(flows)
    note = "calls of each stage: the bar goes from the median to the 99th percentile, the mark is at the 95th"
    return page.section("Flows", note, body, [("waited in the queue", "orange"), ("at the service", "blue")])


def stages_chart(flows: FlowsAudit) -> str:
    """For each stage two bars on a logarithmic axis, from p50 to p99: queueing and processing; the slowest first."""
    measured = [stage for stage in flows.stages if stage.latencies]
    measured.sort(key=lambda stage: -max(each.p99_ms for each in stage.latencies))
    shown = measured[:_STAGES_MAX]
    if not shown:
        return ""
    times = [_decade(ms) for stage in shown for each in stage.latencies for ms in (each.p50_ms, each.p99_ms)]
    low, high = math.floor(min(times)), max(math.ceil(max(times)), math.floor(min(times)) + 1)
    x = linear(low, high, LEFT + _LABELS, WIDTH - RIGHT - 70)
    base = _TOP + _LANE * len(shown)
    parts = []
    for decade in range(low, high + 1):
        at, label = x(decade), duration(10.0 ** (decade + 3))
        parts.append(f'<path class="grid" d="M{at:.1f} {_TOP}V{base}"/>')
        parts.append(f'<text class="tick" x="{at:.1f}" y="{base + 20}" text-anchor="middle">{label}</text>')
    for index, stage in enumerate(shown):
        parts.append(_lane(stage, _TOP + index * _LANE, x))
    words = "; ".join(
        f"{stage.stage}: " + ", ".join(f"{each.stage} p99 {duration(each.p99_ms * 1e3)}" for each in stage.latencies)
        for stage in shown[:5]
    )
    return svg(base + _BOTTOM, "How long calls waited for each stage and were at the service", words, parts)


def _lane(stage: StageAudit, top: float, x: Scale) -> str:
    name = stage.stage if len(stage.stage) <= 34 else f"…{stage.stage[-33:]}"
    parts = [
        f'<text class="tick" x="{LEFT + _LABELS - 10}" y="{top + _LANE / 2 + 2:.1f}" text-anchor="end">'
        f"{escape(name)}</text>"
    ]
    drawn = [each for each in stage.latencies if each.stage in _DRAWN]
    for index, latency in enumerate(drawn):
        left, mark, right = (x(_decade(ms)) for ms in (latency.p50_ms, latency.p95_ms, latency.p99_ms))
        y = top + 5 + index * (_BAR + 3)
        words = f"{_DRAWN[latency.stage]}: {_told(latency)}, {latency.messages:,} calls"
        parts.append(
            f"<g><title>{escape(stage.stage)}, {words}</title>"
            f'<rect class="span {latency.stage}" x="{left:.1f}" y="{y}" rx="3" height="{_BAR}"'
            f' width="{max(right - left, 3):.1f}"/>'
            f'<path class="span-mark" d="M{mark:.1f} {y}v{_BAR}"/>'
            f'<text class="tick" x="{max(right, left + 3) + 6:.1f}" y="{y + _BAR - 1}">'
            f"{duration(latency.p99_ms * 1e3)}</text></g>"
        )
    return "".join(parts)


def _decade(ms: float) -> float:
    return math.log10(max(ms, _FLOOR_MS))


def _told(latency: LatencySummary) -> str:
    return ", ".join(
        f"{name} {duration(ms * 1e3)}"
        for name, ms in (("p50", latency.p50_ms), ("p95", latency.p95_ms), ("p99", latency.p99_ms))
    )


def _stages_table(flows: FlowsAudit) -> Markup:
    rows = [
        [
            stage.stage if latency is stage.latencies[0] else "",
            latency.stage,
            f"{latency.messages:,}",
            *_times(latency),
        ]
        for stage in flows.stages
        for latency in stage.latencies
    ]
    return page.table(["stage", "", "#calls", "#p50", "#p95", "#p99", "#longest"], rows)


def _begun_table(flows: FlowsAudit) -> Markup:
    rows = [
        [
            each.stage,
            *(page.count(number) for number in (each.begun, each.ended, each.failed, each.waiting, each.calls)),
            *(_times(each.latency) if each.latency else [""] * 4),
        ]
        for each in flows.begun
    ]
    columns = ["first stage", "#begun", "#ended", "#with a dead letter", "#on their way", "#calls"]
    return page.table([*columns, "#p50", "#p95", "#p99", "#longest"], rows)


def _times(latency: LatencySummary) -> list[str]:
    return [duration(ms * 1e3) for ms in (latency.p50_ms, latency.p95_ms, latency.p99_ms, latency.max_ms)]
