"""P7: private memory (`RssAnon`) of the broker with many messages waiting; pages of the mapped store do not count."""

from bench.figures import spread
from bench.harness import finish, note, options, table, temporary_store
from bench.processes import LEGATO, broker, load

BOUND_MB = 300.0
RECEIVED = 10_000


def measure(waiting: int, size: int) -> tuple[float, float, float]:
    """Megabytes after `waiting` messages were sent; after a restart; after some were then received and sent again."""
    with temporary_store() as store:
        with broker(LEGATO, store) as running:
            if waiting:
                load("send", running.port, waiting, size)
            filled = running.anonymous_bytes() / 1e6
        with broker(LEGATO, store) as running:
            restarted = running.anonymous_bytes() / 1e6
            load("send", running.port, RECEIVED, size)
            load("receive", running.port, RECEIVED, size)
            used = running.anonymous_bytes() / 1e6
    note(f"{waiting:,} waiting: {filled:.0f}, {restarted:.0f}, {used:.0f} MB")
    return filled, restarted, used


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=1_000_000)
    parser.description = f"{__doc__} --count is the number of messages waiting; --pairs is ignored."
    given = parser.parse_args()
    steps = [waiting for waiting in (0, 10_000, 100_000, 1_000_000, 10_000_000) if waiting < given.count]
    found = {waiting: measure(waiting, given.size) for waiting in [*steps, given.count]}
    headings = ["waiting", "after filling, MB", "after a restart, MB", "after use, MB"]
    text = table(headings, [[f"{waiting:,}", *megabytes] for waiting, megabytes in found.items()])
    figure, peer = max(found[given.count]), max(found[0])
    megabytes = spread(found[given.count])
    result = {
        "figure": round(figure, 1),
        "peer": round(peer, 1),
        "ratio": round(figure / peer, 3),
        "min": round(megabytes.minimum, 1),
        "median": round(megabytes.median, 1),
        "max": round(megabytes.maximum, 1),
        "goal": f"below {BOUND_MB:g} MB",
        "met": figure < BOUND_MB,
        "unit": "MB",
        "sides": [f"{given.count:,} waiting", "none waiting"],
    }
    question = f"private memory with {given.count:,} messages of {given.size} bytes waiting, against none"
    runs = [{"waiting": waiting, "mb": [round(value, 1) for value in values]} for waiting, values in found.items()]
    finish("P7", question, text, result, runs=runs)


if __name__ == "__main__":
    main()
