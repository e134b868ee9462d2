"""F2: eight senders and eight receivers on eight queues at once: Legato beside Artemis, with the run client."""

from __future__ import annotations

from bench.beside import WARM_UP, Aim, Case, Measured, Served, answer, at_least, only, rate_of
from bench.harness import options
from bench.processes import RUN, together

QUEUES = 8


def through_queues(name: str, count: int, size: int, aims: tuple[Aim, ...], warm_up: int = WARM_UP) -> Case:
    """Messages through the queues, each with a sender and a receiver of its own; `count` of all together."""
    of_each = max(1, count // QUEUES)

    def run(served: Served) -> Measured:
        common = ("--port", served.port, "--count", of_each, "--size", size)
        queues = ("--connections", QUEUES, "--address", f"bench-of-{QUEUES}")
        results = together(RUN, [(what, *common, *queues) for what in ("receive", "send")])
        return Measured((rate_of(results, of_each * QUEUES),), of_each * QUEUES)

    return Case(name, run, aims, warm_up)


def main() -> None:
    """Command line."""
    given = only(options(__doc__, count=320_000)).parse_args()
    case = through_queues(f"8 queues, {given.size} bytes", given.count, given.size, at_least("msg/s", 1.2))
    answer("F2", "messages a second through 8 queues, each with its own sender and receiver", [case], given)


if __name__ == "__main__":
    main()
