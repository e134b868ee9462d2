"""SVG charts of a drill: throughput, lost connections, primaries."""

from collections.abc import Sequence
from html import escape

from legato.drill.faults import Fault
from legato.drill.result import Gap, RunResult, Struck
from legato.spark.quantities import duration, human
from legato.spark.report.charts import (
    LEFT,
    PLOT,
    Scale,
    horizontal_grid,
    linear,
    nice_ticks,
    steps,
    svg,
    time_axis,
)

STEP_S = 1.0
BANDS_MAX = 60
"""More faults than that are marked above the picture only."""
GAPS_MAX = 3_000
"""More gaps than that are drawn without saying what they are."""
STRIP = 14
LONG_GAP_MS, VERY_LONG_GAP_MS = 300.0, 1500.0

FAMILIES: dict[str, tuple[str, frozenset[Fault]]] = {
    "brokers": ("red", frozenset({Fault.KILL, Fault.KILL_BOTH, Fault.STOP, Fault.LOOP_STUCK, Fault.SWITCHOVER})),
    "clients": ("orange", frozenset({Fault.KILL_CLIENT, Fault.STOP_CLIENT, Fault.KILL_DRIVER})),
    "the network": ("blue", frozenset({Fault.CUT, Fault.FREEZE, Fault.PARTITION})),
    "the machine": ("green", frozenset({Fault.FULL_DISK, Fault.SLOW_DISK, Fault.CLOCK_JUMP})),
}
"""What a fault befalls, and its colour."""


def clients_chart(result: RunResult) -> str:
    """Messages confirmed and received a second by the clients' own clock, with the faults marked above."""
    height, top, bottom = 280, 12 + STRIP, 30
    stored, seen = rates(result.samples, result.seconds)
    x = linear(0, len(stored) * STEP_S, LEFT, LEFT + PLOT)
    ticks = nice_ticks(max([*stored, *seen, 1.0]))
    y = linear(0, ticks[-1], height - bottom, top)
    parts = [horizontal_grid(ticks, y, human), time_axis(len(stored) * STEP_S, x, height - bottom)]
    if len(result.strikes) <= BANDS_MAX:
        parts += [_mark(strike, x, top, height - bottom - top, opacity=0.13) for strike in result.strikes]
    parts += [_mark(strike, x, 2, STRIP - 2, opacity=0.85) for strike in result.strikes]
    parts.append(f'<path class="area consumed" d="{steps(seen, STEP_S, x, y, closed=True)}"/>')
    parts.append(f'<path class="line consumed" d="{steps(seen, STEP_S, x, y, closed=False)}"/>')
    parts.append(f'<path class="line stored" d="{steps(stored, STEP_S, x, y, closed=False)}"/>')
    return svg(height, "Messages a second as clients saw them", f"{len(result.strikes)} faults are marked.", parts)


def colour_of(kind: str) -> str:
    """The colour of a fault's family."""
    return next((colour for colour, kinds in FAMILIES.values() if kind in kinds), "soft")


def _mark(strike: Struck, x: Scale, top: float, height: float, *, opacity: float) -> str:
    left, right = x(strike.at_s), x(strike.at_s + strike.took_s)
    return (
        f'<rect x="{left:.1f}" y="{top}" width="{max(right - left, 2):.1f}" height="{height}"'
        f' style="fill:var(--{colour_of(strike.kind)});opacity:{opacity}">'
        f"<title>{escape(strike.fault)}, after {strike.at_s:.1f} s, for {strike.took_s:.1f} s</title></rect>"
    )


def rates(samples: Sequence[tuple[float, int, int]], seconds: float) -> tuple[list[float], list[float]]:
    """Messages stored and seen in each second, of samples of the totals: seconds since the start, stored, seen."""
    length = max(1, int(seconds / STEP_S) + 1)
    stored, seen = [0.0] * length, [0.0] * length
    before = (0, 0)
    for at_s, stored_total, seen_total in samples:
        step = min(int(at_s / STEP_S), length - 1)
        stored[step] += max(stored_total - before[0], 0) / STEP_S
        seen[step] += max(seen_total - before[1], 0) / STEP_S
        before = (stored_total, seen_total)
    return stored, seen


def gaps_chart(result: RunResult) -> str:
    """A row for each client, and a bar for each time during which it had no broker."""
    clients = sorted({gap.client for gap in result.gaps})
    if not clients:
        return ""
    row, top, bottom, left = 15, 6, 30, LEFT + 130
    height = top + row * len(clients) + bottom
    x = linear(0, max(result.seconds, 1.0), left, LEFT + PLOT)
    parts = [_named_axis(result.seconds, x, left, height - bottom)]
    for index, client in enumerate(clients):
        middle = top + row * (index + 0.5)
        parts.append(f'<path class="grid" d="M{left} {middle:.1f}H{LEFT + PLOT}"/>')
        parts.append(
            f'<text class="tick" x="{left - 10}" y="{middle + 4:.1f}" text-anchor="end">{escape(client)}</text>'
        )
    parts += _gap_bars(result.gaps, {client: top + row * index + 2 for index, client in enumerate(clients)}, row - 4, x)
    return svg(height, "When clients had no broker", f"{len(result.gaps)} gaps of {len(clients)} clients.", parts)


def _gap_bars(gaps: Sequence[Gap], tops: dict[str, int], height: int, x: Scale) -> list[str]:
    """Bars that say what they are; very many of them only in three shapes, as a page must not weigh megabytes."""
    shapes: dict[str, list[str]] = {}
    bars = []
    for gap in gaps:
        begin, top = x(gap.ended_s - gap.gap_ms / 1000), tops[gap.client]
        width = max(x(gap.ended_s) - begin, 1.0 if len(gaps) > GAPS_MAX else 2.5)
        colour = _gap_colour(gap)
        if len(gaps) > GAPS_MAX:
            shapes.setdefault(colour, []).append(f"M{begin:.1f} {top}h{width:.1f}v{height}h-{width:.1f}z")
        else:
            bars.append(
                f'<rect x="{begin:.1f}" y="{top}" rx="2" width="{width:.1f}" height="{height}"'
                f' style="fill:var(--{colour})"><title>{escape(gap.client)}: {duration(gap.gap_ms * 1000)} until'
                f" {gap.ended_s:.1f} s</title></rect>"
            )
    return bars + [f'<path d="{"".join(each)}" style="fill:var(--{colour})"/>' for colour, each in shapes.items()]


def _gap_colour(gap: Gap) -> str:
    return "blue" if gap.gap_ms < LONG_GAP_MS else "orange" if gap.gap_ms < VERY_LONG_GAP_MS else "red"


def _named_axis(seconds: float, x: Scale, left: float, bottom: float) -> str:
    """An axis of time that leaves more room for names than those of the audit."""
    ticks = nice_ticks(max(seconds, 1.0), 8)
    return f'<path class="axis" d="M{left} {bottom}H{LEFT + PLOT}"/>' + "".join(
        f'<text class="tick" x="{x(tick):.1f}" y="{bottom + 18}" text-anchor="middle">'
        f"{duration(tick * 1e6) if tick else '0'}</text>"
        for tick in ticks
        if tick <= seconds
    )


def takeovers_chart(result: RunResult) -> str:
    """Chart of the primaries over time, by the brokers' lines, with the faults."""
    brokers = sorted({epoch.broker for epoch in result.epochs})
    if not brokers:
        return ""
    lane, top, bottom, left = 40, 6, 30, LEFT + 20
    height = top + lane * len(brokers) + bottom
    x = linear(0, max(result.seconds, 1.0), left, LEFT + PLOT)
    parts = [_named_axis(result.seconds, x, left, height - bottom)]
    for index, broker in enumerate(brokers):
        middle = top + lane * (index + 0.5)
        parts.append(f'<text class="tick" x="{left - 10}" y="{middle + 4:.1f}" text-anchor="end">{broker}</text>')
        parts.append(f'<path class="grid" d="M{left} {middle:.1f}H{LEFT + PLOT}"/>')
    for epoch in result.epochs:
        began_s, ended_s = max(epoch.began_s, 0.0), result.seconds if epoch.ended_s is None else epoch.ended_s
        if ended_s <= 0:
            continue
        begin, end = x(began_s), x(ended_s)
        y = top + lane * brokers.index(epoch.broker) + 8
        text = f"epoch {epoch.epoch}" if end - begin > 60 else str(epoch.epoch) if end - begin > 20 else ""
        parts.append(
            f"<g><title>{epoch.broker}, epoch {epoch.epoch}: {ended_s - began_s:.1f} s</title>"
            f'<rect class="reign r{brokers.index(epoch.broker) % 2}" x="{begin:.1f}" y="{y}" rx="4"'
            f' width="{max(end - begin, 2):.1f}" height="{lane - 16}"/>'
            f'<text class="on-bar" x="{(begin + end) / 2:.1f}" y="{y + lane / 2 - 4:.1f}" text-anchor="middle">'
            f"{text}</text></g>"
        )
    parts += [_mark(strike, x, 0, 6, opacity=0.9) for strike in result.strikes if colour_of(strike.kind) == "red"]
    return svg(height, "Which broker was the primary", f"{result.takeovers} takeovers.", parts)
