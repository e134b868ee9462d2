"""The page of a drill: the audit's, with what the clients saw and when which fault struck."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from legato.drill.outcome import COLUMNS, Outcome, verdict_line
from legato.drill.run import RunResult, Struck
from legato.spark.charts import LEFT, PLOT, duration, horizontal_grid, human, linear, nice_ticks, steps, svg, time_axis
from legato.spark.report import header, page, section, table, write_report
from legato.spark.result import AuditResult

STEP_S = 1.0


def write_page(path: Path, outcome: Outcome, result: RunResult, audit: AuditResult | None) -> None:
    """Write the page; without an audit it has the clients' part only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    title = f"Drill, seed {outcome.seed}"
    sections = [_clients(result), _told(outcome), _strikes(result.strikes), _complaints(outcome)]
    if audit is not None:
        write_report(
            path,
            audit,
            client_gaps_ms=result.gaps_ms,
            title=title,
            more=sections,
            complaints=outcome.complaints,
        )
        return
    headline = "Every message is accounted for." if outcome.passes else "Not every message is accounted for."
    top = header(title, headline, escape(verdict_line(outcome)[2:]) + ".", good=outcome.passes)
    path.write_text(page(title, [top, *sections]), encoding="utf-8")


def _clients(result: RunResult) -> str:
    note = f"messages a second, in steps of {duration(STEP_S * 1e6)}, and the faults"
    legend = [("confirmed to producers", "orange"), ("received", "blue"), ("a fault", "red")]
    return section("What clients saw", note, f'<div class="scroll">{clients_chart(result)}</div>', legend)


def clients_chart(result: RunResult) -> str:
    """Messages confirmed and received a second by the clients' own clock, with the faults marked."""
    height, top, bottom = 260, 12, 30
    stored, seen = rates(result.samples, result.seconds)
    x = linear(0, len(stored) * STEP_S, LEFT, LEFT + PLOT)
    ticks = nice_ticks(max([*stored, *seen, 1.0]))
    y = linear(0, ticks[-1], height - bottom, top)
    parts = [horizontal_grid(ticks, y, human), time_axis(len(stored) * STEP_S, x, height - bottom)]
    for strike in result.strikes:
        left, right = x(strike.at_s), x(strike.at_s + strike.took_s)
        parts.append(
            f'<rect class="gap" x="{left:.1f}" y="{top}" width="{max(right - left, 2):.1f}"'
            f' height="{height - bottom - top}"><title>{escape(strike.fault)}</title></rect>'
        )
    parts.append(f'<path class="area consumed" d="{steps(seen, STEP_S, x, y, closed=True)}"/>')
    parts.append(f'<path class="line consumed" d="{steps(seen, STEP_S, x, y, closed=False)}"/>')
    parts.append(f'<path class="line stored" d="{steps(stored, STEP_S, x, y, closed=False)}"/>')
    return svg(height, "Messages a second as clients saw them", f"{len(result.strikes)} faults are marked.", parts)


def rates(samples: Sequence[tuple[float, int, int]], seconds: float) -> tuple[list[float], list[float]]:
    """Messages stored and seen in each second, of samples of the totals: seconds since the start, stored, seen."""
    length = max(1, int(seconds / STEP_S) + 1)
    stored, seen = [0.0] * length, [0.0] * length
    before = (0, 0)
    for at_s, stored_total, seen_total in samples:
        step = min(int(at_s / STEP_S), length - 1)
        stored[step] += (stored_total - before[0]) / STEP_S
        seen[step] += (seen_total - before[1]) / STEP_S
        before = (stored_total, seen_total)
    return stored, seen


def _told(outcome: Outcome) -> str:
    rows = [
        [escape(str(row["subscription"])), *(f"{row[name]:,}" for name in COLUMNS)] for row in outcome.subscriptions
    ]
    note = "each client's own record: what its producers were told, and what its consumers received"
    return section(
        "What clients were told", note, table(["subscription", *(f"#{each}" for each in COLUMNS.values())], rows)
    )


def _strikes(strikes: Sequence[Struck]) -> str:
    rows = [
        [f"{number:,}", escape(strike.fault), f"{strike.at_s:.1f} s", f"{strike.took_s:.1f} s"]
        for number, strike in enumerate(strikes, 1)
    ]
    return section("Faults", "until all was whole again", table(["", "fault", "#after", "#took"], rows))


def _complaints(outcome: Outcome) -> str:
    if not outcome.complaints:
        return ""
    items = "".join(f"<p><code>{escape(sentence)}</code></p>" for sentence in outcome.complaints)
    return section("Complaints", "what must not be", items)
