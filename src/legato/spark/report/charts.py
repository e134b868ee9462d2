"""SVG charts of an audit: plain functions from data to markup, coloured by the page's style sheet."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

from legato.spark.auditor.metrics import LATENCY_BUCKETS_PER_DECADE
from legato.spark.quantities import duration, human
from legato.spark.result import AuditResult, LatencyCell, Takeover

WIDTH = 1080
LEFT, RIGHT = 64, 16
PLOT = WIDTH - LEFT - RIGHT
HEAT_LEVELS = 9
LATENCY_FLOOR = 2 * LATENCY_BUCKETS_PER_DECADE
"""Faster than 100 µs is all the same in pictures."""

Scale = Callable[[float], float]


def throughput_chart(result: AuditResult) -> str:
    """Messages a second over time, stored and consumed, with the takeovers marked."""
    height, top, bottom = 300, 44, 30
    bucket_s = result.timeline.bucket_us / 1e6
    length = _buckets(result)
    series = {"stored": [0.0] * length, "consumed": [0.0] * length}
    for point in result.timeline.throughput:
        series["stored"][point.bucket] += point.stored / bucket_s
        series["consumed"][point.bucket] += point.consumed / bucket_s
    peak = max(max(values) for values in series.values())
    x = linear(0, length * bucket_s, LEFT, LEFT + PLOT)
    y_ticks = nice_ticks(peak)
    y = linear(0, y_ticks[-1], height - bottom, top)
    parts = [horizontal_grid(y_ticks, y, human), time_axis(length * bucket_s, x, height - bottom)]
    parts += [_takeover_band(takeover, result, x, top, height - bottom) for takeover in result.takeovers]
    parts.append(f'<path class="area consumed" d="{steps(series["consumed"], bucket_s, x, y, closed=True)}"/>')
    parts += [
        f'<path class="line {name}" d="{steps(values, bucket_s, x, y, closed=False)}"/>'
        for name, values in series.items()
    ]
    parts.append(_takeover_labels(result, x, top))
    parts.append(_hover_columns(series, bucket_s, x, top, height - bottom))
    return svg(
        height,
        "Messages a second over time",
        f"Stored and consumed messages a second; the peak is {human(peak)}. {_takeover_sentence(result)}",
        parts,
    )


def reign_chart(result: AuditResult) -> str:
    """Who was the primary when: a lane for each broker, a bar for each epoch."""
    reigns = _reigns(result)
    brokers = list(dict.fromkeys(broker for broker, _, _, _ in reigns))
    lane, top, bottom = 34, 6, 30
    height = top + lane * len(brokers) + bottom
    seconds = _buckets(result) * result.timeline.bucket_us / 1e6
    x = linear(0, seconds, LEFT, LEFT + PLOT)
    parts = [time_axis(seconds, x, height - bottom)]
    labels = _short_names(brokers)
    for index in range(len(brokers)):
        middle = top + lane * (index + 0.5)
        parts.append(
            f'<text class="tick" x="{LEFT - 10}" y="{middle + 4:.1f}" text-anchor="end">{labels[index]}</text>'
        )
        parts.append(f'<path class="grid" d="M{LEFT} {middle:.1f}H{LEFT + PLOT}"/>')
    for broker, epoch, start_us, end_us in reigns:
        left, right = x((start_us - result.first_us) / 1e6), x((end_us - result.first_us) / 1e6)
        y = top + lane * brokers.index(broker) + 6
        label = f"epoch {epoch}" if right - left > 60 else str(epoch)
        parts.append(
            f"<g><title>{escape(broker)}, epoch {epoch}: {(end_us - start_us) / 1e6:.1f} s</title>"
            f'<rect class="reign r{brokers.index(broker) % 2}" x="{left:.1f}" y="{y}" rx="4"'
            f' width="{max(right - left, 2):.1f}" height="{lane - 12}"/>'
            f'<text class="on-bar" x="{(left + right) / 2:.1f}" y="{y + lane / 2 - 2:.1f}" text-anchor="middle">'
            f"{label}</text></g>"
        )
    for takeover in result.takeovers:
        if not takeover.clean:
            at = x((takeover.former_last_us - result.first_us) / 1e6)
            middle = top + lane * (brokers.index(takeover.former_broker) + 0.5)
            parts.append(f'<path class="kill" d="M{at - 5:.1f} {middle - 5}l10 10m0 -10l-10 10"/>')
    return svg(height, "Which broker was the primary", _takeover_sentence(result), parts)


def latency_heat_map(result: AuditResult) -> str:
    """How long messages took, over the time of their consumption: the darker, the more messages."""
    height, top, bottom = 260, 8, 30
    rows = _merged(result.timeline.latency, LATENCY_BUCKETS_PER_DECADE // 10)
    if not rows:
        return ""
    low, high = min(row for _, row in rows), max(row for _, row in rows) + 1
    length = _buckets(result)
    x = linear(0, length, LEFT, LEFT + PLOT)
    y = linear(low, high, height - bottom, top)
    most = max(rows.values())
    paths: dict[int, list[str]] = defaultdict(list)
    cell_width, cell_height = x(1) - x(0) + 0.3, y(0) - y(1) + 0.3
    for (bucket, row), messages in sorted(rows.items()):
        level = 1 + round((HEAT_LEVELS - 1) * math.log1p(messages) / math.log1p(most))
        paths[level].append(f"M{x(bucket):.1f} {y(row + 1):.1f}h{cell_width:.1f}v{cell_height:.1f}h-{cell_width:.1f}z")
    decades = range(math.ceil(low / 10), math.floor(high / 10) + 1)
    parts = [horizontal_grid([float(d * 10) for d in decades], y, lambda row: duration(10 ** (row / 10)))]
    parts += [f'<path class="heat h{level}" d="{"".join(path)}"/>' for level, path in sorted(paths.items())]
    seconds = length * result.timeline.bucket_us / 1e6
    parts.append(time_axis(seconds, linear(0, seconds, LEFT, LEFT + PLOT), height - bottom))
    return svg(
        height,
        "End-to-end latency over time",
        "Each cell counts messages by the time at which they were consumed and by how long they had taken.",
        parts,
    )


def latency_curve(result: AuditResult) -> str:
    """Which share of each queue's messages took at most how long, end to end."""
    height, top, bottom = 260, 12, 30
    curves = latency_curves(result)
    if not curves:
        return ""
    low = min(min(curve.messages) for curve in curves)
    high = max(max(curve.messages) for curve in curves) + 1
    x = linear(low, high, LEFT, LEFT + PLOT)
    y = linear(0, 1, height - bottom, top)
    parts = [horizontal_grid([0, 0.25, 0.5, 0.75, 1], y, lambda share: f"{share:.0%}")]
    per_decade = LATENCY_BUCKETS_PER_DECADE
    for decade in range(math.ceil(low / per_decade), math.floor(high / per_decade) + 1):
        at = x(decade * per_decade)
        parts.append(f'<path class="grid" d="M{at:.1f} {top}V{height - bottom}"/>')
        parts.append(
            f'<text class="tick" x="{at:.1f}" y="{height - 10}" text-anchor="middle">{duration(10**decade)}</text>'
        )
    for curve in reversed(curves):
        path = _cumulative_path(curve.messages, x, y)
        parts.append(f'<path class="line q{curve.colour}" d="{path}"><title>{escape(curve.name)}</title></path>')
    return svg(
        height,
        "Share of messages by end-to-end latency",
        "One curve for each of the queues with the most messages, and one for all others.",
        parts,
    )


class LatencyCurve(NamedTuple):
    """A curve of `latency_curve`: messages by logarithmic bucket of microseconds."""

    name: str
    colour: int
    messages: dict[int, int]


_CURVE_COLOURS = (0, 1, 2, 3, 5)
_OTHERS_COLOUR = 4


def latency_curves(result: AuditResult) -> list[LatencyCurve]:
    """The queues with the most messages, a colour each, and all others as one: more cannot be told apart."""
    names = {queue.queue: queue.name for queue in result.queues}
    counts: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for cell in result.timeline.latency:
        counts[cell.queue][max(cell.latency, LATENCY_FLOOR)] += cell.messages
    largest = sorted(counts, key=lambda queue: (-sum(counts[queue].values()), queue))
    alone = len(_CURVE_COLOURS)
    curves = [
        LatencyCurve(names.get(queue, str(queue)), colour, counts[queue])
        for queue, colour in zip(largest, _CURVE_COLOURS, strict=False)
    ]
    if len(largest) == alone + 1:
        curves.append(LatencyCurve(names.get(largest[-1], str(largest[-1])), _OTHERS_COLOUR, counts[largest[-1]]))
    elif others := largest[alone:]:
        merged: dict[int, int] = defaultdict(int)
        for queue in others:
            for row, messages in counts[queue].items():
                merged[row] += messages
        curves.append(LatencyCurve(f"{len(others)} other queues", _OTHERS_COLOUR, merged))
    return curves


def _cumulative_path(rows: dict[int, int], x: Scale, y: Scale) -> str:
    total, so_far = sum(rows.values()), 0
    points = [f"M{x(min(rows)):.1f} {y(0):.1f}"]
    for row in range(min(rows), max(rows) + 1):
        so_far += rows.get(row, 0)
        points.append(f"L{x(row + 1):.1f} {y(so_far / total):.1f}")
    return "".join(points)


def nice_ticks(highest: float, count: int = 4) -> list[float]:
    """Round numbers from 0 to at least `highest`, about `count` steps apart."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    return [step * index for index in range(math.ceil(highest / step - 1e-9) + 1)]


def _buckets(result: AuditResult) -> int:
    return int((result.last_us - result.first_us) // result.timeline.bucket_us) + 1


def linear(from_low: float, from_high: float, to_low: float, to_high: float) -> Scale:
    """A scale that maps one range to another."""
    factor = (to_high - to_low) / ((from_high - from_low) or 1)
    return lambda value: to_low + (value - from_low) * factor


def svg(height: float, title: str, description: str, parts: Iterable[str]) -> str:
    """A picture as wide as the page, with a text for those who cannot see it."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}. {escape(description)}">'
        f"{''.join(parts)}</svg>"
    )


def horizontal_grid(ticks: Sequence[float], y: Scale, label: Callable[[float], str]) -> str:
    """Lines across the plot, and what they stand for."""
    return "".join(
        f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{LEFT + PLOT}"/>'
        f'<text class="tick" x="{LEFT - 10}" y="{y(tick) + 4:.1f}" text-anchor="end">{label(tick)}</text>'
        for tick in ticks
    )


def time_axis(seconds: float, x: Scale, base: float) -> str:
    """The axis below a plot, from 0 to so many seconds."""
    parts = [f'<path class="axis" d="M{LEFT} {base:.1f}H{LEFT + PLOT}"/>']
    for tick in time_ticks(seconds):
        label = duration(tick * 1e6) if tick else "0"
        parts.append(f'<text class="tick" x="{x(tick):.1f}" y="{base + 20:.1f}" text-anchor="middle">{label}</text>')
    return "".join(parts)


_DAY_S = 86_400
_TIME_STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12, 24, 48, 168)),
)


def time_ticks(seconds: float, count: int = 8) -> list[float]:
    """Times from 0 to at most `seconds` that are round on a clock, about `count` steps apart."""
    if seconds <= count:
        return [tick for tick in nice_ticks(seconds, count) if tick <= seconds]
    weeks = 7 * _DAY_S * math.ceil(seconds / count / (7 * _DAY_S))
    step = next((step for step in _TIME_STEPS_S if step * count >= seconds), weeks)
    return [float(step * index) for index in range(int(seconds // step) + 1)]


def steps(values: Sequence[float], width_s: float, x: Scale, y: Scale, *, closed: bool) -> str:
    """A path that keeps each value for `width_s` seconds; closed, it goes back along zero."""
    points = [f"M{x(0):.1f} {y(0 if closed else values[0]):.1f}"]
    for index, value in enumerate(values):
        points.append(f"L{x(index * width_s):.1f} {y(value):.1f}H{x((index + 1) * width_s):.1f}")
    if closed:
        points.append(f"V{y(0):.1f}Z")
    return "".join(points)


def _hover_columns(series: dict[str, list[float]], width_s: float, x: Scale, top: float, base: float) -> str:
    width = x(width_s) - x(0)
    return "".join(
        f'<rect class="hover" x="{x(index * width_s):.1f}" y="{top}" width="{width:.1f}" height="{base - top}">'
        f"<title>{duration(index * width_s * 1e6)}: {human(stored)} stored, {human(consumed)} consumed a second</title>"
        f"</rect>"
        for index, (stored, consumed) in enumerate(zip(series["stored"], series["consumed"], strict=True))
    )


def _takeover_band(takeover: Takeover, result: AuditResult, x: Scale, top: float, base: float) -> str:
    left = x((takeover.former_last_us - result.first_us) / 1e6)
    gap_ms = takeover.duration_ms if takeover.served_ms is None else takeover.served_ms
    right = x((takeover.former_last_us - result.first_us) / 1e6 + gap_ms / 1e3)
    return (
        f'<rect class="gap" x="{left - 1:.1f}" y="{top}" width="{max(right - left, 0) + 2:.1f}" height="{base - top}"/>'
    )


def _takeover_labels(result: AuditResult, x: Scale, top: float) -> str:
    parts = []
    last_right = [-1.0, -1.0]
    for takeover in result.takeovers:
        at = x((takeover.former_last_us - result.first_us) / 1e6)
        gap_ms = takeover.duration_ms if takeover.served_ms is None else takeover.served_ms
        text = f"{'✓' if takeover.clean else '✕'} epoch {takeover.epoch} · {duration(gap_ms * 1000)}"
        half = len(text) * 3.4
        at = min(max(at, LEFT + half), LEFT + PLOT - half)
        level = 0 if at - half > last_right[0] else 1
        last_right[level] = at + half + 8
        parts.append(
            f'<text class="takeover" x="{at:.1f}" y="{top - 8 - 16 * level:.1f}" text-anchor="middle">{text}</text>'
        )
    return "".join(parts)


def _takeover_sentence(result: AuditResult) -> str:
    if not result.takeovers:
        return "No broker was taken over from."
    gaps = ", ".join(duration(takeover.duration_ms * 1000) for takeover in result.takeovers[:10])
    return f"Takeovers: {len(result.takeovers)}, after {gaps}."


def _reigns(result: AuditResult) -> list[tuple[str, int, int, int]]:
    """Broker, epoch, first and last time in microseconds of each epoch."""
    reigns = []
    start_us = result.first_us
    for takeover in result.takeovers:
        reigns.append((takeover.former_broker, takeover.epoch - 1, start_us, takeover.former_last_us))
        start_us = takeover.began_us
    if result.takeovers:
        last = result.takeovers[-1]
        reigns.append((last.broker, last.epoch, start_us, result.last_us))
    return reigns


def _short_names(brokers: Sequence[str]) -> list[str]:
    """What tells brokers apart: their ports if they share a host."""
    hosts = {broker.rpartition(":")[0] for broker in brokers}
    names = [f":{broker.rpartition(':')[2]}" for broker in brokers] if len(hosts) == 1 and hosts != {""} else brokers
    return [escape(broker if len(broker) <= 9 else f"…{broker[-8:]}") for broker in names]


def _merged(cells: Iterable[LatencyCell], rows_per_row: int) -> dict[tuple[int, int], int]:
    """Messages by time bucket and coarser latency row, all queues together."""
    merged: dict[tuple[int, int], int] = defaultdict(int)
    for cell in cells:
        merged[cell.bucket, max(cell.latency, LATENCY_FLOOR) // rows_per_row] += cell.messages
    return merged
