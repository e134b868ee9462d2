"""P12: fan-out: one durable publisher, ten durable subscribers, against RabbitMQ with the same raw AMQP 1.0 client.

Copies a second, each confirmed to the publisher once and acknowledged by each subscriber. RabbitMQ: a durable fanout
exchange and ten quorum queues bound to it. Exit code 2 without RabbitMQ.
"""

import asyncio
import sys

import aio_pika

from bench import rabbitmq
from bench.figures import Goal, interleave
from bench.harness import finish_pairs, note, options, temporary_store
from bench.processes import LEGATO, Client, broker

WARM_UP = 1000
EXCHANGE = "bench-fan"


def run(port: int, count: int, size: int, target: str, sources: list[str]) -> float:
    """Copies a second from `target` to all of `sources`."""
    common = ("--port", str(port), "--count", str(count))
    clients = [Client("bench.fanclient", "subscribe", *common, "--addresses", ",".join(sources))]
    try:
        clients.append(Client("bench.rawclient", "send", *common, "--size", str(size), "--address", target))
        for client in clients:
            client.begin()
        received, sent = [client.result() for client in clients]
    finally:
        for client in clients:
            client.end()
    elapsed_s: float = max(received["ended"], sent["ended"]) - sent["started"]
    return count * len(sources) / elapsed_s


def measure(count: int, size: int, subscribers: int) -> float:
    """Through a fresh Legato broker."""
    with temporary_store() as store, broker(LEGATO, store) as running:
        sources = ["topic://bench"] * subscribers
        run(running.port, WARM_UP, size, sources[0], sources)
        rate = run(running.port, count, size, sources[0], sources)
    note(f"Legato: {rate:,.0f} copies/s")
    return rate


async def _declare(port: int, subscribers: int) -> None:
    async with await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/") as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(EXCHANGE, aio_pika.ExchangeType.FANOUT, durable=True)
        for number in range(subscribers):
            queue = await channel.declare_queue(f"bench-{number}", durable=True, arguments={"x-queue-type": "quorum"})
            await queue.bind(exchange)


def measure_rabbitmq(count: int, size: int, subscribers: int) -> float:
    """Through a fresh RabbitMQ node."""
    with temporary_store() as directory, rabbitmq.node(directory) as port:
        asyncio.run(_declare(port, subscribers))
        sources = [f"/amq/queue/bench-{number}" for number in range(subscribers)]
        run(port, WARM_UP, size, f"/exchange/{EXCHANGE}", sources)
        rate = run(port, count, size, f"/exchange/{EXCHANGE}", sources)
    note(f"RabbitMQ: {rate:,.0f} copies/s")
    return rate


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=20_000)
    parser.add_argument("--subscribers", type=int, default=10)
    parser.add_argument("--rabbitmq-count", type=int, default=5_000, help="messages in a run of RabbitMQ")
    given = parser.parse_args()
    try:
        installed = rabbitmq.release()
    except rabbitmq.RabbitAbsent as absent:
        print(absent, file=sys.stderr)
        sys.exit(2)
    pairs = interleave(
        lambda: measure(given.count, given.size, given.subscribers),
        lambda: measure_rabbitmq(given.rabbitmq_count, given.size, given.subscribers),
        given.pairs,
    )
    finish_pairs(
        "P12",
        f"fan-out of {given.size} bytes to {given.subscribers} durable subscribers: Legato, RabbitMQ {installed}",
        ("Legato", "RabbitMQ quorum"),
        pairs,
        Goal(1.0, at_least=True),
        unit="copies/s",
        subscribers=given.subscribers,
    )


if __name__ == "__main__":
    main()
