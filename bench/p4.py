"""P4: the client's pause when the primary is killed with SIGKILL: the longer of sender's and receiver's."""

from bench.failover import drill
from bench.figures import percentile
from bench.harness import finish, note, options, table, temporary_store

P50_GOAL_MS = 150.0
P99_GOAL_MS = 500.0


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=0)
    parser.description = f"{__doc__} --pairs and --count are ignored."
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    gaps = []
    with temporary_store() as store, drill(store, given.size, given.seed) as running:
        for number in range(given.kills):
            gaps.append(running.kill())
            note(f"kill {number + 1}: {gaps[-1]:.0f} ms")
    p50, p99 = percentile(gaps, 50), percentile(gaps, 99)
    found = {"min": min(gaps), "median": p50, "p99": p99, "max": max(gaps)}
    result = {
        "figure": round(p50, 1),
        "peer": P50_GOAL_MS,
        "ratio": round(p50 / P50_GOAL_MS, 3),
        **{name: round(value, 1) for name, value in found.items()},
        "goal": f"p50 below {P50_GOAL_MS:g} ms, p99 below {P99_GOAL_MS:g} ms",
        "met": p50 < P50_GOAL_MS and p99 < P99_GOAL_MS,
        "unit": "ms",
        "sides": ["p50 of the pauses", "its bound"],
        "kills": given.kills,
    }
    text = table(["ms", *found], [[f"{given.kills} kills", *found.values()]])
    runs = [round(gap, 1) for gap in gaps]
    finish("P4", "the pause a client sees when the primary is killed", text, result, runs=runs)


if __name__ == "__main__":
    main()
