"""F5: transactions of one receive and one send in 16 sessions, each commit confirmed: Legato beside Artemis.

All sessions share one connection. Afterwards everything is taken from both queues: nothing may be lost or come twice.
"""

from __future__ import annotations

from bench.beside import Case, Measured, Served, answer, at_least, only, rate_of
from bench.harness import options
from bench.processes import RUN, load

CLIENT = "bench.rawtx"
SOURCE, TARGET = "bench-in", "bench-out"
SPARE = 2000
"""Messages that wait beyond those that are counted, so that no session waits for one."""
WARM_UP = 60_000


def transacted(count: int, size: int, sessions: int) -> Case:
    """The case."""

    def run(served: Served) -> Measured:
        filled = count + SPARE
        load("send", served.port, filled, size, "--address", SOURCE, module=RUN)
        more = ("--address", SOURCE, "--target", TARGET, "--sessions", sessions)
        before = served.processor_s()
        done = load("transact", served.port, count, size, *more, module=CLIENT)
        processor_s = served.processor_s() - before
        left, moved = (
            load("drain", served.port, 0, size, "--address", address, module=RUN)["count"]
            for address in (SOURCE, TARGET)
        )
        if moved < done["count"] or moved + left != filled:
            raise RuntimeError(f"of {filled} messages {moved} were moved, {left} left; {done['count']} commits")
        return Measured((rate_of([done], done["count"]),), done["count"], processor_s)

    return Case(f"{sessions} sessions", run, at_least("tx/s", 1.2), WARM_UP)


def main() -> None:
    """Command line."""
    parser = only(options(__doc__, count=30_000))
    parser.add_argument("--sessions", type=int, default=16, help="transacted sessions")
    given = parser.parse_args()
    case = transacted(given.count, given.size, given.sessions)
    answer("F5", "transactions a second, each of one receive and one send", [case], given)


if __name__ == "__main__":
    main()
