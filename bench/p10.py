"""P10: the cost of the log of facts: P1 with it and without; with `--detail`, the cost of each detail.

With `--processor` messages are counted by second of the broker's processor time, which means something on a busy
machine too.
"""

from collections.abc import Mapping

from bench.figures import Goal, interleave
from bench.harness import finish_pairs, note, options, temporary_store
from bench.p1 import WARM_UP
from bench.processes import LEGATO, broker, send_and_receive

WITHOUT = {"LEGATO_STORE_LOG_FACTS": "false"}
DETAIL = {"LEGATO_LEDGER_DETAIL": "all"}


def measure(environment: Mapping[str, str], count: int, size: int, *, processor: bool) -> float:
    """Messages a second at once through a fresh broker with these settings."""
    with temporary_store() as store, broker(LEGATO, store, environment) as running:
        send_and_receive(running.port, WARM_UP, size)
        before_s = running.processor_s()
        rate = send_and_receive(running.port, count, size)
        if processor:
            rate = count / (running.processor_s() - before_s)
    note(f"{environment or 'as it is'}: {rate:,.0f} msg/s")
    return rate


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=300_000)
    parser.add_argument("--detail", action="store_true", help='compare detail = "all" with detail = "durable"')
    parser.add_argument("--processor", action="store_true", help="count by the broker's processor time")
    given = parser.parse_args()
    ours, theirs = (DETAIL, {}) if given.detail else ({}, WITHOUT)
    pairs = interleave(
        lambda: measure(ours, given.count, given.size, processor=given.processor),
        lambda: measure(theirs, given.count, given.size, processor=given.processor),
        given.pairs,
    )
    sides = ("detail all", "durable") if given.detail else ("with the log", "without")
    finish_pairs(
        "P10DETAIL" if given.detail else "P10",
        f"send + receive of {given.size} bytes, the log of facts: {sides[0]}, against {sides[1]}",
        sides,
        pairs,
        Goal(0.85, at_least=True),
        unit="msg/s of processor" if given.processor else "msg/s",
    )


if __name__ == "__main__":
    main()
