"""Legato's own client as a load client: the blocking API, with the command line and output of `bench.rawclient`.

Sends with a completion listener and a flush at the end; receives in an AUTO_ACKNOWLEDGE session.
"""

import argparse
import json
import os
import time

from bench.engine import USER_VARIABLE
from legato.client import BytesMessage, Connection, ConnectionFactory, JMSError, Message

PREFETCH = 4_000
"""As many as a commit holds when senders and receivers keep the broker busy; RabbitMQ is given as much."""


def _begin() -> None:
    print("ready", flush=True)
    input()


def send(connection: Connection, address: str, count: int, size: int) -> dict[str, float]:
    """Send `count` durable messages without waiting for each; returns when all are confirmed."""
    confirmed = refused = 0

    def completed(_message: Message, error: JMSError | None) -> None:
        nonlocal confirmed, refused
        if error is None:
            confirmed += 1
        else:
            refused += 1

    with connection.create_session() as session:
        producer, body = session.create_producer(session.create_queue(address)), b"x" * size
        _begin()
        started = time.monotonic()
        for _ in range(count):
            producer.send(BytesMessage(body), completion_listener=completed)
        producer.flush()
        ended = time.monotonic()
    return {"started": started, "ended": ended, "count": confirmed, "refused": refused}


def receive(connection: Connection, address: str, count: int) -> dict[str, float]:
    """Receive `count` messages; closing the session confirms the last of them."""
    with connection.create_session() as session:
        consumer = session.create_consumer(session.create_queue(address))
        connection.start()
        _begin()
        started = time.monotonic()
        for _ in range(count):
            consumer.receive()
    return {"started": started, "ended": time.monotonic(), "count": count}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["send", "receive"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--address", default="bench")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=256)
    options = parser.parse_args()
    user = f"{login}@" if (login := os.environ.get(USER_VARIABLE)) else ""
    uri = f"amqp://{user}127.0.0.1:{options.port}?prefetch={PREFETCH}"
    with ConnectionFactory(uri).create_connection() as connection:
        if options.what == "send":
            result = send(connection, options.address, options.count, options.size)
        else:
            result = receive(connection, options.address, options.count)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
