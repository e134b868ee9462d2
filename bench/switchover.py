"""The client's pause at a planned switchover: the longer of sender's and receiver's."""

from bench.failover import drill
from bench.figures import percentile
from bench.harness import finish, note, options, table, temporary_store

P99_GOAL_MS = 200.0


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=0)
    parser.description = f"{__doc__} --pairs and --count are ignored."
    parser.add_argument("--switchovers", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    gaps = []
    with temporary_store() as store, drill(store, given.size, given.seed) as running:
        for number in range(given.switchovers):
            gaps.append(running.switch_over())
            note(f"switchover {number + 1}: {gaps[-1]:.0f} ms")
    p50, p99 = percentile(gaps, 50), percentile(gaps, 99)
    found = {"min": min(gaps), "median": p50, "p99": p99, "max": max(gaps)}
    result = {
        "figure": round(p99, 1),
        "peer": P99_GOAL_MS,
        "ratio": round(p99 / P99_GOAL_MS, 3),
        **{name: round(value, 1) for name, value in found.items()},
        "goal": f"p99 below {P99_GOAL_MS:g} ms",
        "met": p99 < P99_GOAL_MS,
        "unit": "ms",
        "sides": ["p99 of the pauses", "its bound"],
        "switchovers": given.switchovers,
    }
    text = table(["ms", *found], [[f"{given.switchovers} switchovers", *found.values()]])
    runs = [round(gap, 1) for gap in gaps]
    finish("SWITCHOVER", "the pause a client sees at a planned switchover", text, result, runs=runs)


if __name__ == "__main__":
    main()
