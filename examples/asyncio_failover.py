"""The same promises in asyncio: tasks send, receive and commit while the primary dies twice (CONTRACT A1, A9, E3, E13).

One task sends numbers, one doubles them in transactions, one collects. None of them needs to know of failovers; the
doubler knows one exception.

Run it: python examples/asyncio_failover.py
"""

import asyncio

from legato.client import TextMessage, TransactionRolledBackError
from legato.client.aio import Connection, ConnectionFactory
from legato.testing import BrokerPair, broker_pair

COUNT = 100


async def send(connection: Connection) -> None:
    async with connection.create_session() as session:
        producer = await session.create_producer(session.create_queue("numbers"))
        for number in range(COUNT):
            await producer.send(TextMessage(str(number)))
    print(f"sent {COUNT} numbers, each confirmed")


async def double(connection: Connection) -> None:
    async with connection.create_session(transacted=True) as session:
        numbers = await session.create_consumer(session.create_queue("numbers"))
        doubled = await session.create_producer(session.create_queue("doubled"))
        done = 0
        while done < COUNT:
            number = await numbers.receive()
            await doubled.send(TextMessage(str(2 * int(number.text))))
            try:
                await session.commit()
                done += 1
            except TransactionRolledBackError:
                print("a transaction was rolled back: its number comes again")


async def collect(connection: Connection, brokers: BrokerPair) -> list[int]:
    collected: list[int] = []
    async with connection.create_session() as session:
        async for message in await session.create_consumer(session.create_queue("doubled")):
            collected.append(int(message.text))
            if len(collected) in (COUNT // 3, COUNT * 2 // 3):
                await kill(brokers)
            if len(collected) == COUNT:
                break
    return collected


async def kill(brokers: BrokerPair) -> None:
    print(brokers.primary.name, "is killed")
    await asyncio.to_thread(brokers.fail_over)
    print(brokers.primary.name, "serves,", brokers.backup.name, "is its backup")


async def run(brokers: BrokerPair) -> None:
    async with ConnectionFactory(brokers.url).create_connection() as connection:
        connection.start()
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(send(connection))
            tasks.create_task(double(connection))
            collecting = tasks.create_task(collect(connection, brokers))
        assert collecting.result() == [2 * number for number in range(COUNT)]
        print(f"collected {COUNT} results, each once, in order; {len(connection.failovers)} failovers")


if __name__ == "__main__":
    with broker_pair() as brokers:
        asyncio.run(run(brokers))
