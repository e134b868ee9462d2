"""RabbitMQ's load client: aio-pika on uvloop, with the same command line and output as `bench.rawclient`.

Persistent messages, publisher confirms with many publishes in flight, one acknowledgement a message.
"""

import argparse
import asyncio
import json
import sys
import time
from typing import Any

import aio_pika
import uvloop

IN_FLIGHT = 500
PREFETCH = 1000


async def _begin() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def send(channel: Any, queue: str, count: int, size: int) -> dict[str, Any]:
    """Publish `count` messages, at most `IN_FLIGHT` of them unconfirmed."""
    exchange, body, numbers = channel.default_exchange, b"x" * size, iter(range(count))

    async def publish() -> None:
        for number in numbers:
            message = aio_pika.Message(
                body, message_id=f"ID:{number:012d}", delivery_mode=aio_pika.DeliveryMode.PERSISTENT
            )
            await exchange.publish(message, routing_key=queue)

    await _begin()
    started = time.monotonic()
    await asyncio.gather(*(publish() for _ in range(IN_FLIGHT)))
    return {"started": started, "ended": time.monotonic(), "count": count}


async def receive(channel: Any, queue: Any, count: int) -> dict[str, Any]:
    """Consume and acknowledge `count` messages."""
    await channel.set_qos(prefetch_count=PREFETCH)
    received, done = 0, asyncio.Event()

    async def take(message: Any) -> None:
        nonlocal received
        await message.ack()
        received += 1
        if received == count:
            done.set()

    await queue.consume(take)
    await _begin()
    started = time.monotonic()
    await done.wait()
    return {"started": started, "ended": time.monotonic(), "count": received}


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Connect, declare the queue, and do what is asked."""
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{options.port}/")
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        arguments = {"x-queue-type": options.queue_type}
        queue = await channel.declare_queue(options.address, durable=True, arguments=arguments)
        if options.what == "send":
            return await send(channel, options.address, options.count, options.size)
        return await receive(channel, queue, options.count)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["send", "receive"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--address", default="bench")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--queue-type", choices=["quorum", "classic"], default="quorum")
    print(json.dumps(uvloop.run(run(parser.parse_args()))), flush=True)


if __name__ == "__main__":
    main()
