"""F4: latency of a confirmed send at 1,000 and at 5,000 messages a second, received meanwhile: Legato beside Artemis.

A send's time runs from the instant at which it was due, so that a stall counts against every message it delayed.
"""

from __future__ import annotations

from bench.beside import WARM_UP, Aim, Case, Measured, Served, answer, only
from bench.figures import Goal, percentile
from bench.harness import options
from bench.processes import RAW, RUN, send_and_receive, together

RATES = (1000, 5000)
AIMS = tuple(Aim(f"ms p{percent}", Goal(1.0, at_least=False)) for percent in (50, 99))


def at_rate(rate: int, seconds: float, size: int, warm_up: int) -> Case:
    """The latencies at one rate."""
    count = max(100, round(rate * seconds))

    def run(served: Served) -> Measured:
        common = ("--port", served.port, "--count", count, "--size", size)
        _, sent = together(RAW, [("receive", *common), ("latency", *common, "--rate", rate)])
        found = [value * 1000 for value in sent["latencies_s"]]
        if len(found) != count:
            raise RuntimeError(f"{len(found)} of {count} sends were confirmed")
        return Measured((percentile(found, 50), percentile(found, 99)), count)

    def warm(served: Served) -> None:
        send_and_receive(served.port, warm_up, size, module=RUN)

    return Case(f"{rate:,} messages a second", run, AIMS, warm=warm)


def main() -> None:
    """Command line."""
    parser = only(options(__doc__, count=0))
    parser.description = f"{__doc__} --count is ignored."
    parser.add_argument("--seconds", type=float, default=15.0, help="how long a run takes")
    given = parser.parse_args()
    warm_up = WARM_UP if given.warm_up is None else given.warm_up
    cases = [at_rate(rate, given.seconds, given.size, max(1, warm_up)) for rate in RATES]
    answer("F4", "time until a send is confirmed, while all is received", cases, given)


if __name__ == "__main__":
    main()
