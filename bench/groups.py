"""Two groups, each a broker with a store of its own, on this machine's cores, against one: messages a second in all."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from bench.figures import Goal, Pair, percentile
from bench.harness import finish_pairs, note, options, table, temporary_store
from bench.processes import LEGATO, RUN, broker, load, processor_s_of_family, together


def measure(groups: int, count: int, size: int) -> dict[str, float]:
    """So many groups at once, with a queue, a sender and a receiver each; `count` messages through each queue."""
    with ExitStack() as stack:
        running = [stack.enter_context(broker(LEGATO, stack.enter_context(temporary_store()))) for _ in range(groups)]
        for each in running:
            load("send", each.port, 5_000, size, module=RUN)
            load("receive", each.port, 5_000, size, module=RUN)
        arguments: list[tuple[Any, ...]] = []
        for each in running:
            common = ("--port", each.port, "--count", count, "--size", size)
            arguments += [("receive", *common), ("send", *common)]
        before = sum(processor_s_of_family(each.process.pid) for each in running)
        own = sum(each.processor_s() for each in running)
        began = time.monotonic()
        results = together(RUN, arguments)
        took_s = max(each["ended"] for each in results) - min(each["started"] for each in results)
        all_s = time.monotonic() - began
        found = {
            "rate": groups * count / took_s,
            "broker_us": 1e6 * (sum(each.processor_s() for each in running) - own) / (groups * count),
            "family_us": 1e6 * (sum(processor_s_of_family(e.process.pid) for e in running) - before) / (groups * count),
            "brokers_cores": (sum(each.processor_s() for each in running) - own) / all_s,
        }
    note(f"{groups} group{'s' * (groups > 1)}: " + ", ".join(f"{name} {value:,.2f}" for name, value in found.items()))
    return found


def main() -> None:
    """Command line."""
    given = options(__doc__, count=200_000).parse_args()
    twos: list[dict[str, float]] = []
    ones: list[dict[str, float]] = []
    pairs: list[Pair] = []
    for _ in range(given.pairs):
        twos.append(measure(2, given.count, given.size))
        ones.append(measure(1, given.count, given.size))
        pairs.append(Pair(twos[-1]["rate"], ones[-1]["rate"]))
    rows = [
        [name, *(percentile([run[name] for run in runs], 50) for runs in (twos, ones))]
        for name in ("broker_us", "family_us", "brokers_cores")
    ]
    finish_pairs(
        "GROUPS",
        f"P1 with two groups at once, {given.count:,} messages of {given.size} bytes through each, against one group",
        ("two groups", "one group"),
        pairs,
        Goal(1.5, at_least=True),
        unit="msg/s in all",
        remark=table(["medians: processor for each message", "two groups", "one group"], rows),
        costs={"two": twos, "one": ones},
    )


if __name__ == "__main__":
    main()
