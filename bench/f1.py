"""F1: one queue, durable send + receive at once: Legato beside Artemis, with the run client and with the raw client."""

from __future__ import annotations

from bench.beside import Case, Measured, Served, answer, at_least, only
from bench.harness import options
from bench.processes import RAW, RUN, send_and_receive


def through_a_queue(module: str, count: int, size: int) -> Case:
    """The case of one client; the goals are those of the issue's table."""
    client, bound = ("run client", 1.8) if module == RUN else ("raw client", 1.3)

    def run(served: Served) -> Measured:
        return Measured((send_and_receive(served.port, count, size, module=module),), count)

    return Case(f"{client}, {size} bytes", run, at_least("msg/s", bound))


def main() -> None:
    """Command line."""
    given = only(options(__doc__, count=300_000)).parse_args()
    cases = [through_a_queue(module, given.count, given.size) for module in (RUN, RAW)]
    answer("F1", "messages a second through one queue, sent and received at once", cases, given)


if __name__ == "__main__":
    main()
