"""P2: Python users' throughput: Legato's client and broker against RabbitMQ's quorum queue with aio-pika.

Both durable, every message confirmed to its sender and acknowledged by its receiver. Exit code 2 without RabbitMQ.
"""

import sys

from bench import rabbitmq
from bench.figures import Goal, interleave
from bench.harness import finish_pairs, note, options, temporary_store
from bench.processes import LEGATO, broker, send_and_receive

CLIENT = "bench.legatoclient"
WARM_UP = 5000


def measure(count: int, size: int) -> float:
    """Messages a second at once through a fresh Legato broker, with its own client."""
    with temporary_store() as store, broker(LEGATO, store) as running:
        send_and_receive(running.port, WARM_UP, size, module=CLIENT)
        rate = send_and_receive(running.port, count, size, module=CLIENT)
    note(f"Legato's client: {rate:,.0f} msg/s")
    return rate


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=100_000)
    parser.add_argument("--rabbitmq-count", type=int, default=25_000, help="messages in a run of RabbitMQ")
    given = parser.parse_args()
    try:
        installed = rabbitmq.release()
    except rabbitmq.RabbitAbsent as absent:
        print(absent, file=sys.stderr)
        sys.exit(2)
    pairs = interleave(
        lambda: measure(given.count, given.size),
        lambda: rabbitmq.measure("quorum", given.rabbitmq_count, given.size),
        given.pairs,
    )
    finish_pairs(
        "P2",
        f"durable send + receive of {given.size} bytes from Python: Legato's client, RabbitMQ {installed} and aio-pika",
        ("Legato", "RabbitMQ quorum"),
        pairs,
        Goal(10.0, at_least=True),
        unit="msg/s",
    )


if __name__ == "__main__":
    main()
