"""Bar chart of messages that were not consumed, by queue and cause."""

from html import escape

from legato.spark.quantities import human
from legato.spark.report.charts import LEFT, RIGHT, WIDTH, linear, svg
from legato.spark.result import AuditResult

_LANE = 26
_LABELS = 300
_BARS_MAX = 20


def causes_chart(result: AuditResult) -> str:
    """Messages that left their queue without having been consumed, by queue and cause; the longest bars first."""
    bars = [
        (f"{queue.name} · {cause}", kind, messages)
        for queue in result.queues
        for kind, causes in (("dead", queue.dead_letters), ("moved", queue.moves))
        for cause, messages in causes.items()
    ]
    bars.sort(key=lambda bar: -bar[2])
    shown = bars[:_BARS_MAX]
    x = linear(0, max(messages for _, _, messages in shown), LEFT + _LABELS, WIDTH - RIGHT - 60) if shown else None
    if x is None:
        return ""
    parts = []
    for index, (label, kind, messages) in enumerate(shown):
        y = 6 + index * _LANE
        colour = "cause-dead" if kind == "dead" else "cause-moved"
        short = label if len(label) <= 48 else f"…{label[-47:]}"
        parts.append(
            f"<g><title>{escape(label)}: {messages:,}</title>"
            f'<text class="tick" x="{LEFT + _LABELS - 10}" y="{y + 15}" text-anchor="end">{escape(short)}</text>'
            f'<rect class="{colour}" x="{LEFT + _LABELS}" y="{y}" rx="3" height="{_LANE - 8}"'
            f' width="{max(x(messages) - LEFT - _LABELS, 2):.1f}"/>'
            f'<text class="tick" x="{max(x(messages), LEFT + _LABELS + 2) + 8:.1f}" y="{y + 15}">'
            f"{human(messages)}</text></g>"
        )
    words = ", ".join(f"{label}: {messages:,}" for label, _, messages in shown[:5])
    return svg(12 + _LANE * len(shown), "What was not consumed, by cause", words, parts)
