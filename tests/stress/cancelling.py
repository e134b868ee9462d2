"""Commits and rollbacks that are cancelled at random instants, and a session that is used on; an account of its own.

A run moves messages from one queue to another, one a transaction. Some transactions are rolled back, some commits are
refused because the other queue is full, and many of both are cancelled. What the client was told is written down: a
message whose `commit()` returned must not come again, and in the end each message is in the other queue once.

    python -m tests.stress.cancelling --runs 1000
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from legato.client import TextMessage, TransactionRolledBackError
from legato.client.aio import Connection, ConnectionFactory, MessageConsumer, MessageProducer, Session
from tests.support.broker import broker_pair

MESSAGES = 12
CONFIGURATION = """
[[address]]
match = "fail.#"
max_messages = 2
when_full = "fail"
[[address]]
match = "in.#"
maximum_deliveries = 0
"""
COMES_S = 60.0
CANCELLED_WITHIN_S = 0.004


@contextmanager
def brokers(directory: Path) -> Iterator[str]:
    """The URL of brokers with an address that is soon full."""
    configuration = directory / "legato.toml"
    configuration.write_text(CONFIGURATION)
    with broker_pair(directory, "--config", str(configuration)) as pair:
        yield pair.url


class Run:
    """One session that moves messages, and its account."""

    def __init__(self, number: int, seed: int) -> None:
        self.random = random.Random(f"{seed} {number}")
        self.source = f"in.{number}"
        self.refuses = self.random.random() < 0.5
        self.target = f"{'fail' if self.refuses else 'out'}.{number}"
        self.done: set[str] = set()
        self.twice: list[str] = []
        self.cancelled = 0
        self.moved: Counter[str] = Counter()

    async def tell(self, connection: Connection) -> list[str]:
        """Move all; returns what was wrong."""
        session = connection.create_session()
        producer = await session.create_producer(session.create_queue(self.source))
        for each in range(MESSAGES):
            await producer.send(TextMessage(str(each)))
        await session.close()
        draining = asyncio.create_task(self._drain(connection))
        session = connection.create_session(transacted=True)
        consumer = await session.create_consumer(session.create_queue(self.source))
        producer = await session.create_producer(session.create_queue(self.target))
        await self._move(session, consumer, producer)
        await session.close()
        await asyncio.wait_for(draining, COMES_S)
        wrong = [f"{body} came again after its commit() had returned" for body in self.twice]
        wrong += [f"{body} was moved {times} times" for body, times in self.moved.items() if times != 1]
        return wrong

    async def _move(self, session: Session, consumer: MessageConsumer, producer: MessageProducer) -> None:
        received: list[str] = []
        while sum(self.moved.values()) < MESSAGES:
            message = await consumer.receive(0.05)
            if message is not None:
                if message.body in self.done:
                    self.twice.append(message.body)
                received.append(message.body)
                await producer.send(TextMessage(message.body))
            if await self._end(session):
                self.done.update(received)
            received.clear()

    async def _end(self, session: Session) -> bool:
        """End a transaction, or begin to; whether it is known to be committed."""
        rolling_back = self.random.random() < 0.3
        cancelling = self.random.random() < 0.5
        try:
            async with asyncio.timeout(self.random.random() * CANCELLED_WITHIN_S if cancelling else None):
                await (session.rollback() if rolling_back else session.commit())
        except TimeoutError:
            self.cancelled += 1
            return False
        except TransactionRolledBackError:
            return False
        return not rolling_back

    async def _drain(self, connection: Connection) -> None:
        session = connection.create_session()
        consumer = await session.create_consumer(session.create_queue(self.target))
        while sum(self.moved.values()) < MESSAGES:
            message = await consumer.receive(COMES_S)
            assert message is not None, f"{self.moved} came of {MESSAGES}"
            self.moved[message.body] += 1
            if self.refuses:
                await asyncio.sleep(self.random.random() * 0.004)
        # What came twice comes at once after the last one.
        while (message := await consumer.receive_no_wait()) is not None:
            self.moved[message.body] += 1
        await session.close()


async def stress(url: str, runs: int, seed: int) -> tuple[list[str], int]:
    """So many runs; returns what was wrong and how many calls were cancelled."""
    wrong: list[str] = []
    cancelled = 0
    async with ConnectionFactory(url).create_connection() as connection:
        connection.start()
        for number in range(runs):
            run = Run(number, seed)
            wrong += [f"run {number}: {each}" for each in await run.tell(connection)]
            cancelled += run.cancelled
    return wrong, cancelled


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, brokers(Path(directory)) as url:
        wrong, cancelled = asyncio.run(stress(url, arguments.runs, arguments.seed))
    print(*wrong, sep="\n")
    runs = len({each.partition(":")[0] for each in wrong})
    print(f"{arguments.runs} runs, {cancelled} calls cancelled, {runs} runs with a message done twice")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
