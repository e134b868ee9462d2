"""P1 with a replicated log on three servers and a backup, beside RabbitMQ's quorum queue on three nodes, raw client.

All of both run on this machine, and share its cores and its disk.
"""

from __future__ import annotations

import sys

from bench.figures import Goal, interleave
from bench.harness import finish_pairs, note, options
from bench.processes import send_and_receive
from bench.rabbitmq import RabbitAbsent, measure_raw, release
from bench.replicated import WARM_UP, replicated
from legato.testing.log_servers import log_servers

NODES = 3
FEWER = 5
"""RabbitMQ is given so many times fewer messages: it takes as long over them."""


def main() -> None:
    """Command line; exit code 2 where RabbitMQ is absent."""
    parser = options(__doc__, count=100_000)
    parser.description = f"{__doc__} RabbitMQ gets --count / {FEWER}."
    given = parser.parse_args()
    try:
        installed = release()
    except RabbitAbsent as absent:
        print(absent, file=sys.stderr)
        sys.exit(2)
    with log_servers(NODES) as servers:

        def ours() -> float:
            with replicated(servers.url, backups=1) as running:
                send_and_receive(running.port, WARM_UP, given.size)
                rate = send_and_receive(running.port, given.count, given.size)
            note(f"Legato, replicated: {rate:,.0f} msg/s")
            return rate

        def theirs() -> float:
            return measure_raw("quorum", given.count // FEWER, given.size, nodes=NODES)

        pairs = interleave(ours, theirs, given.pairs)
    finish_pairs(
        "quorum",
        f"durable send + receive of {given.size} bytes, replicated on three servers, raw client",
        ("Legato", f"RabbitMQ {installed}, quorum queue"),
        pairs,
        Goal(2.0, at_least=True),
        unit="msg/s",
        rabbitmq=installed,
    )


if __name__ == "__main__":
    main()
