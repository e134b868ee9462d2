"""P10: what the log of facts costs: P1 with it against without."""

from collections.abc import Mapping

from bench.figures import Goal, interleave
from bench.harness import finish_pairs, note, options, temporary_store
from bench.p1 import WARM_UP
from bench.processes import LEGATO, broker, send_and_receive

WITHOUT = {"LEGATO_STORE_LOG_FACTS": "false"}


def measure(environment: Mapping[str, str], count: int, size: int) -> float:
    """Messages a second at once through a fresh broker with these settings."""
    with temporary_store() as store, broker(LEGATO, store, environment) as running:
        send_and_receive(running.port, WARM_UP, size)
        rate = send_and_receive(running.port, count, size)
    note(f"{'without' if environment else 'with'} the log: {rate:,.0f} msg/s")
    return rate


def main() -> None:
    """Command line."""
    given = options(__doc__, count=300_000).parse_args()
    pairs = interleave(
        lambda: measure({}, given.count, given.size), lambda: measure(WITHOUT, given.count, given.size), given.pairs
    )
    finish_pairs(
        "P10",
        f"send + receive of {given.size} bytes with the log of facts, against without",
        ("with the log", "without"),
        pairs,
        Goal(0.85, at_least=True),
        unit="msg/s",
    )


if __name__ == "__main__":
    main()
