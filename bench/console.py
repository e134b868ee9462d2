"""Times of the console's views, with many queues and many dead letters.

    make bench-console                             1,000 queues, 100,000 dead letters
    make bench-console ARGS="--queues 100 --letters 5000"

A pair of brokers and a console are processes of their own; the last line is one JSON object. Each view is asked for
while the dead letters are looked through for the first time, and several times afterwards. What the console and the
primary spend of the processor for a view says more than its time if others use the machine.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from bench.processes import processor_s_of_family
from legato.client import ConnectionFactory, Queue, TextMessage
from legato.client.messages.properties import Properties
from legato.core.dead_letters import (
    DEAD_LETTER_COUNT,
    DEAD_LETTERED_AT_MS,
    DELIVERIES,
    EXCEPTION,
    ORIGINAL_DESTINATION,
)
from legato.testing import broker_pair

TIMES = 5
CAUSES = ("ConnectionError: no route to payments after {} tries", "KeyError: 'customer {}'", "ValueError: negative")
COMMIT_MESSAGES = 1000
WAIT_S = 600.0


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--letters", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, broker_pair(Path(directory)) as pair:
        id = fill(pair.url, given.queues, given.letters)
        command = [sys.executable, "-m", "legato.cli", "console", "--url", pair.url, "--store", str(pair.store)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            with httpx.Client(base_url=address, timeout=WAIT_S, follow_redirects=True) as client:
                measured = measure(client, id, lambda: sum(map(processor_s_of_family, (process.pid, pair.primary.pid))))
                print(json.dumps({"queues": given.queues, "letters": given.letters} | measured))
            process.terminate()


def fill(url: str, queues: int, letters: int) -> str:
    """Queues with a few messages each, and dead letters; returns the id of the last one."""
    with (
        ConnectionFactory(url).create_connection() as connection,
        connection.create_session(transacted=True) as session,
    ):
        for number in range(queues):
            with session.create_producer(Queue(f"queue.{number:04}")) as producer:
                producer.send(TextMessage("x"))
            if number % 100 == 99:
                session.commit()
        message = TextMessage("")
        producer = session.create_producer(Queue("DLQ.orders"))
        for number in range(letters):
            message = TextMessage(json.dumps({"order": number, "text": "x" * 200}))
            # As the broker says it of dead letters; applications may not.
            message._properties = Properties(
                {
                    EXCEPTION: CAUSES[number % len(CAUSES)].format(number),
                    ORIGINAL_DESTINATION: "orders",
                    DELIVERIES: 6,
                    DEAD_LETTERED_AT_MS: int(time.time() * 1000),
                    DEAD_LETTER_COUNT: 1,
                    "legato_stack_trace": "x" * 500,
                }
            )
            producer.send(message)
            if number % COMMIT_MESSAGES == COMMIT_MESSAGES - 1:
                session.commit()
        session.commit()
        return message.message_id or ""


def measure(client: httpx.Client, id: str, processor_s: Callable[[], float]) -> dict[str, object]:
    """Milliseconds that each view took, at first and at worst; and those of the processor, in steps of ten or so."""
    views = {
        "queues": "/queues",
        "queues by name": "/queues?sort=name&order=asc&page=12",
        "queue": "/queues/one?name=queue.0500",
        "messages": "/queues/messages?name=DLQ.orders",
        "dead letters": "/dead-letters",
        "dead letters of a queue": "/dead-letters/queue?queue=DLQ.orders",
        "last page of them": "/dead-letters/queue?queue=DLQ.orders&page=999999",
        "last dead letter": f"/dead-letters/letter?queue=DLQ.orders&id={id}",
        "connections": "/connections",
        "members": "/members",
        "story": "/story",
        "flows": "/flows",
    }
    began_s = time.monotonic()
    looking = {name: took_ms(client, path) for name, path in views.items()}
    while len(re.findall(r"looked through: [\d,]+", client.get(views["dead letters of a queue"]).text)):
        time.sleep(0.5)
    looked_s = time.monotonic() - began_s
    after: dict[str, list[int]] = {}
    spent_ms: dict[str, int] = {}
    for name, path in views.items():
        before_s = processor_s()
        after[name] = [took_ms(client, path) for _ in range(TIMES)]
        spent_ms[name] = round((processor_s() - before_s) * 1000 / TIMES)
    return {
        "looked_through_s": round(looked_s, 1),
        "first_ms": looking,
        "median_ms": {name: round(statistics.median(times)) for name, times in after.items()},
        "worst_ms": {name: max(times) for name, times in after.items()},
        "processor_ms": spent_ms,
    }


def took_ms(client: httpx.Client, path: str) -> int:
    """How long a view took."""
    began_s = time.monotonic()
    answer = client.get(path)
    assert answer.status_code == 200, (path, answer.text[:2000])
    return round((time.monotonic() - began_s) * 1000)


if __name__ == "__main__":
    main()
