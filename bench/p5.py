"""P5: takeover with a long queue: P4 with a million messages waiting, against none."""

from bench.failover import Drill, drill
from bench.figures import Goal, interleave, percentile
from bench.harness import finish_pairs, note, options, table, temporary_store
from bench.p6 import fill


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=0)
    parser.description = f"{__doc__} --count is ignored."
    parser.add_argument("--backlog", type=int, default=1_000_000, help="messages that wait")
    parser.add_argument(
        "--growth", type=int, nargs="*", default=[10_000, 100_000], help="further backlogs, one run each"
    )
    parser.add_argument("--kills", type=int, default=5, help="in a run; its figure is their median")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()

    def pause_ms(running: Drill, name: str) -> float:
        found = percentile([running.kill() for _ in range(given.kills)], 50)
        note(f"{name}: {found:.0f} ms")
        return found

    with temporary_store() as base:
        for waiting in (given.backlog, *given.growth):
            fill(base / str(waiting), waiting, given.size)
        with (
            drill(base / str(given.backlog), given.size, given.seed) as full,
            drill(base / "none", given.size, given.seed) as empty,
        ):
            pairs = interleave(
                lambda: pause_ms(full, f"{given.backlog:,} waiting"), lambda: pause_ms(empty, "none"), given.pairs
            )
        growth: list[list[object]] = []
        for waiting in given.growth:
            with drill(base / str(waiting), given.size, given.seed) as running:
                growth.append([f"{waiting:,}", pause_ms(running, f"{waiting:,} waiting")])
    finish_pairs(
        "P5",
        f"the pause at a takeover, median of {given.kills} kills: {given.backlog:,} messages waiting, against none",
        (f"{given.backlog:,} waiting", "none waiting"),
        pairs,
        Goal(1.2, at_least=False),
        unit="ms",
        remark=table(["waiting", "ms, one run"], growth) if growth else "",
        backlog=given.backlog,
    )


if __name__ == "__main__":
    main()
