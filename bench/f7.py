"""F7: one topic to ten durable subscribers, copies a second: Legato beside Artemis, with the run client.

Each message is confirmed once and each copy acknowledged; every subscriber checks that each message comes once.
"""

from __future__ import annotations

from bench.beside import Case, Measured, Served, answer, at_least, only, rate_of
from bench.harness import options
from bench.processes import RUN, together

TOPIC = "topic://bench"


def fanned_out(count: int, size: int, subscribers: int) -> Case:
    """The case; what is counted is copies."""

    def run(served: Served) -> Measured:
        common = ("--port", served.port, "--count", count, "--size", size, "--address", TOPIC)
        results = together(RUN, [("subscribe", *common, "--links", subscribers), ("send", *common)])
        return Measured((rate_of(results, count * subscribers),), count * subscribers)

    return Case(f"{subscribers} subscribers", run, at_least("copies/s", 1.3), subscribers * 30_000)


def main() -> None:
    """Command line."""
    parser = only(options(__doc__, count=40_000))
    parser.add_argument("--subscribers", type=int, default=10, help="durable subscriptions, all on one connection")
    given = parser.parse_args()
    case = fanned_out(given.count, given.size, given.subscribers)
    answer("F7", "copies a second of one topic to durable subscribers", [case], given)


if __name__ == "__main__":
    main()
