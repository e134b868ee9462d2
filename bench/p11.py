"""P11: transactions of one receive and one send, each commit confirmed after its fsync, against P1 in the same run.

Both with raw clients, of which a message costs about as much.
"""

from bench import p1
from bench.figures import Goal, interleave
from bench.harness import finish_pairs, note, options, temporary_store
from bench.processes import LEGATO, RAW, broker, load

CLIENT = "bench.rawtx"
SPARE = 2000


def measure(count: int, size: int, sessions: int) -> float:
    """Transactions a second through a fresh broker whose source queue was filled before."""
    with temporary_store() as store, broker(LEGATO, store) as running:
        load("send", running.port, count + SPARE, size)
        done = load("transact", running.port, count, size, "--sessions", sessions, module=CLIENT)
    rate: float = done["count"] / (done["ended"] - done["started"])
    note(f"transactions: {rate:,.0f} a second")
    return rate


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=20_000)
    parser.add_argument("--sessions", type=int, default=16, help="transacted sessions, all on one connection")
    parser.add_argument("--plain-count", type=int, default=200_000, help="messages in a run without transactions")
    given = parser.parse_args()
    pairs = interleave(
        lambda: measure(given.count, given.size, given.sessions),
        lambda: p1.measure(LEGATO, given.plain_count, given.size, RAW),
        given.pairs,
    )
    finish_pairs(
        "P11",
        f"transactions of one receive and one send of {given.size} bytes in {given.sessions} sessions, against P1",
        ("transactions", "P1"),
        pairs,
        Goal(0.1, at_least=True),
        unit="1/s",
    )


if __name__ == "__main__":
    main()
