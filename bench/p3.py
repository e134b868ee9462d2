"""P3: the latency of a confirmed send at a steady rate, against one fsync of the same disk."""

import os
import time
from pathlib import Path

from bench.figures import Goal, Pair, interleave, percentile, spread, summary
from bench.harness import finish, note, options, table, temporary_store
from bench.processes import CEILING, LEGATO, RAW, broker, name_of, send_and_receive, together

FSYNCS = 300
PAGE = b"x" * 4096
P50_GOAL_MS = 1.0
P99_GOAL_MS = 5.0


def fsync_ms(directory: Path) -> float:
    """The median time to append one page to a file and make it durable, in milliseconds."""
    times = []
    file = os.open(directory / "fsync", os.O_CREAT | os.O_WRONLY)
    try:
        for _ in range(FSYNCS):
            started = time.perf_counter()
            os.write(file, PAGE)
            os.fdatasync(file)
            times.append((time.perf_counter() - started) * 1000)
    finally:
        os.close(file)
    return percentile(times, 50)


def latencies_ms(command: list[str], rate: float, count: int, size: int) -> list[float]:
    """Each confirmation's time, in milliseconds, while a second process receives everything."""
    with temporary_store() as store, broker(command, store) as running:
        send_and_receive(running.port, int(rate), size)
        common = ("--port", running.port, "--count", count, "--size", size)
        _, sent = together(RAW, [("receive", *common), ("latency", *common, "--rate", rate)])
    found = [value * 1000 for value in sent["latencies_s"]]
    note(f"{name_of(command)}: p50 {percentile(found, 50):.3f} ms, p99 {percentile(found, 99):.3f} ms")
    return found


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=20_000)
    parser.add_argument("--rate", type=float, default=5000.0, help="messages a second")
    given = parser.parse_args()
    runs: list[list[float]] = []

    def p99() -> float:
        runs.append(latencies_ms(LEGATO, given.rate, given.count, given.size))
        return percentile(runs[-1], 99)

    def fsync() -> float:
        with temporary_store() as directory:
            return fsync_ms(directory)

    pairs: list[Pair] = interleave(p99, fsync, given.pairs)
    bare = latencies_ms(CEILING, given.rate, given.count, given.size)
    p50s = [percentile(run, 50) for run in runs]
    rows: list[list[object]] = [
        [f"run {n}", p50, pair.figure, run[-1], pair.peer, pair.ratio]
        for n, (p50, pair, run) in enumerate(zip(p50s, pairs, map(sorted, runs), strict=True), 1)
    ]
    rows.append(["bare prototype", percentile(bare, 50), percentile(bare, 99), max(bare), "", ""])
    text = table(["ms", "p50", "p99", "max", "one fsync", "p99 / fsync"], rows)
    p50, p99_median = spread(p50s).median, spread([pair.figure for pair in pairs]).median
    result = summary(pairs, Goal(10.0, at_least=False)) | {
        "goal": f"p50 below {P50_GOAL_MS:g} ms, p99 below {P99_GOAL_MS:g} ms (p99 at most 10 fsyncs)",
        "met": p50 < P50_GOAL_MS and p99_median < P99_GOAL_MS,
        "unit": "ms",
        "sides": ["p99", "one fsync"],
        "p50_ms": round(p50, 3),
        "p99_ms": round(p99_median, 3),
        "within_10_fsyncs": summary(pairs, Goal(10.0, at_least=False))["met"],
    }
    finish(
        "P3",
        f"confirmed send latency at {given.rate:,.0f} msg/s of {given.size} bytes, received meanwhile",
        text,
        result,
        runs=[
            {"p50": round(a, 3), "p99": round(b.figure, 3), "fsync": round(b.peer, 3)}
            for a, b in zip(p50s, pairs, strict=True)
        ],
    )


if __name__ == "__main__":
    main()
