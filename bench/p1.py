"""P1: durable send and receive through one queue: the full broker against the bare prototype, with the run client.

Beside it: sending alone and receiving alone; RabbitMQ's quorum queue with the raw client, and with aio-pika.
"""

from functools import partial

from bench import rabbitmq
from bench.figures import Goal, interleave
from bench.harness import finish_pairs, note, options, table, temporary_store
from bench.processes import CEILING, LEGATO, RUN, broker, load, name_of, send_and_receive

WARM_UP = 20_000


def measure(command: list[str], count: int, size: int, module: str = RUN) -> float:
    """Messages a second at once through a fresh broker on an empty store."""
    with temporary_store() as store, broker(command, store) as running:
        send_and_receive(running.port, WARM_UP, size, module=module)
        rate = send_and_receive(running.port, count, size, module=module)
    note(f"{name_of(command)}: {rate:,.0f} msg/s")
    return rate


def measure_apart(command: list[str], count: int, size: int) -> tuple[float, float]:
    """Messages a second when all are sent first, and then all are received."""
    with temporary_store() as store, broker(command, store) as running:
        send_and_receive(running.port, WARM_UP, size, module=RUN)
        sent = load("send", running.port, count, size, module=RUN)
        received = load("receive", running.port, count, size, module=RUN)
    return count / (sent["ended"] - sent["started"]), count / (received["ended"] - received["started"])


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=300_000)
    parser.add_argument("--no-rabbitmq", action="store_true", help="leave RabbitMQ out")
    given = parser.parse_args()
    legato = partial(measure, LEGATO, given.count, given.size)
    ceiling = partial(measure, CEILING, given.count, given.size)
    pairs = interleave(legato, ceiling, given.pairs)
    legato_send, legato_receive = measure_apart(LEGATO, given.count, given.size)
    ceiling_send, ceiling_receive = measure_apart(CEILING, given.count, given.size)
    remark = table(
        ["one run each, msg/s", "Legato", "bare prototype", "ratio"],
        [
            ["send only", legato_send, ceiling_send, legato_send / ceiling_send],
            ["receive only", legato_receive, ceiling_receive, legato_receive / ceiling_receive],
        ],
    )
    quorum = None if given.no_rabbitmq else rabbitmq.rates_or_none("quorum", given.count // 10, given.size)
    if quorum:
        remark += (
            f"\n\nOne run each of a RabbitMQ {rabbitmq.release()} quorum queue, at once: "
            f"{quorum[0]:,.0f} msg/s with the raw client, {quorum[1]:,.0f} msg/s with aio-pika"
        )
    finish_pairs(
        "P1",
        f"durable send + receive of {given.count:,} messages of {given.size} bytes through one queue",
        ("Legato", "bare prototype"),
        pairs,
        Goal(0.6, at_least=True),
        unit="msg/s",
        remark=remark,
        send_only=[round(legato_send), round(ceiling_send)],
        receive_only=[round(legato_receive), round(ceiling_receive)],
        rabbitmq_quorum_raw_client=quorum and round(quorum[0]),
        rabbitmq_quorum_aio_pika=quorum and round(quorum[1]),
    )


if __name__ == "__main__":
    main()
