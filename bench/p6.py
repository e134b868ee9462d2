"""P6: throughput with a long queue: P1 with a million messages waiting, against none."""

from pathlib import Path

from bench.figures import Goal, interleave
from bench.harness import finish_pairs, note, options, table, temporary_store
from bench.p1 import WARM_UP
from bench.processes import LEGATO, broker, load, send_and_receive


def fill(store: Path, waiting: int, size: int) -> None:
    """Leave `waiting` messages in the queue of a store; they come over the wire, like any others."""
    with broker(LEGATO, store) as running:
        load("send", running.port, waiting, size)


def measure(store: Path, count: int, size: int) -> float:
    """Messages a second through a broker that starts on `store`; as many wait afterwards as before."""
    with broker(LEGATO, store) as running:
        send_and_receive(running.port, WARM_UP, size)
        rate = send_and_receive(running.port, count, size)
    note(f"{store.name}: {rate:,.0f} msg/s")
    return rate


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=200_000)
    parser.add_argument("--backlog", type=int, default=1_000_000, help="messages that wait")
    parser.add_argument(
        "--growth", type=int, nargs="*", default=[10_000, 100_000], help="further backlogs, one run each"
    )
    given = parser.parse_args()
    with temporary_store() as base:
        full, empty = base / "waiting", base / "none"
        fill(full, given.backlog, given.size)
        pairs = interleave(
            lambda: measure(full, given.count, given.size), lambda: measure(empty, given.count, given.size), given.pairs
        )
        growth: list[list[object]] = []
        for waiting in given.growth:
            store = base / f"waiting-{waiting}"
            fill(store, waiting, given.size)
            growth.append([f"{waiting:,}", measure(store, given.count, given.size)])
    finish_pairs(
        "P6",
        f"send + receive of {given.size} bytes with {given.backlog:,} messages waiting in the queue, against none",
        (f"{given.backlog:,} waiting", "none waiting"),
        pairs,
        Goal(0.9, at_least=True),
        unit="msg/s",
        remark=table(["waiting", "msg/s, one run"], growth) if growth else "",
        backlog=given.backlog,
    )


if __name__ == "__main__":
    main()
