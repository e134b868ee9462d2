"""F3: larger messages, of 1 KB and 16 KB, through eight queues: Legato beside Artemis, with the run client."""

from __future__ import annotations

from bench.beside import WARM_UP, answer, at_least, only
from bench.f2 import through_queues
from bench.harness import options

LARGE_SHARE = 8
"""Of messages of 16 KB there are so many times fewer."""


def main() -> None:
    """Command line."""
    parser = only(options(__doc__, count=240_000))
    parser.description = f"{__doc__} --size is ignored; of messages of 16 KB there are {LARGE_SHARE} times fewer."
    given = parser.parse_args()
    cases = [
        through_queues("1 KB", given.count, 1024, at_least("msg/s", 1.2)),
        through_queues("16 KB", given.count // LARGE_SHARE, 16384, at_least("msg/s", 1.0), WARM_UP // LARGE_SHARE),
    ]
    answer("F3", "messages a second of 1 KB and of 16 KB through 8 queues", cases, given)


if __name__ == "__main__":
    main()
