"""P1: durable send and receive through one queue, the full broker against the bare prototype, with the same client.

RabbitMQ's quorum queue, with its own protocol and aio-pika, is measured beside for information.
"""

from functools import partial

from bench import rabbitmq
from bench.figures import Goal, interleave
from bench.harness import finish, note, options, pairs_table, temporary_store
from bench.processes import CEILING, LEGATO, broker, send_and_receive

WARM_UP = 20_000


def measure(command: list[str], count: int, size: int) -> float:
    """Messages a second through a fresh broker on an empty store."""
    with temporary_store() as store, broker(command, store) as running:
        send_and_receive(running.port, WARM_UP, size)
        rate = send_and_receive(running.port, count, size)
    note(f"{command[0]}: {rate:,.0f} msg/s")
    return rate


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=300_000)
    parser.add_argument("--no-rabbitmq", action="store_true", help="leave RabbitMQ out")
    given = parser.parse_args()
    legato = partial(measure, LEGATO, given.count, given.size)
    ceiling = partial(measure, CEILING, given.count, given.size)
    pairs = interleave(legato, ceiling, given.pairs)
    beside = None if given.no_rabbitmq else rabbitmq.rate_or_none("quorum", given.count // 10, given.size)
    text = pairs_table("Legato", "bare prototype", "msg/s", pairs)
    if beside:
        text += f"\n\nFor information: RabbitMQ quorum queue with aio-pika {beside:,.0f} msg/s"
    finish(
        "P1",
        f"durable send + receive of {given.count:,} messages of {given.size} bytes through one queue",
        text,
        pairs,
        Goal(0.6, at_least=True),
        unit="msg/s",
        rabbitmq_quorum=beside and round(beside),
    )


if __name__ == "__main__":
    main()
