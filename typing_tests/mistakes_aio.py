"""The same mistakes with asyncio, and the one that only asyncio has."""

from __future__ import annotations

from legato.client import TextMessage
from legato.client.aio import ConnectionFactory

ConnectionFactory("amqp://localhost:5672", prefetc=10)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
ConnectionFactory("amqp://localhost:5672", prefetch="many")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def main() -> None:
    """Five mistakes."""
    async with ConnectionFactory("amqp://localhost:5672").create_connection() as connection:
        connection.start()
        async with connection.create_session(transacted=True) as session:
            orders = session.create_queue("orders")
            producer = await session.create_producer(orders)
            await producer.sendd(TextMessage("tea"))  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

            await producer.send(42)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

            consumer = await session.create_consumer(orders)
            await consumer.receive(timeout_ms=5)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
            await consumer.receive(timeout=5)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
            await consumer.receive_body(str, timeout=5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

            message = await consumer.receive(timeout_s=5)
            assert message is not None
            print(message.txt)  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]

            await session.comit()  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            session.commit()  # type: ignore[unused-coroutine] # pyright: ignore[reportUnusedCoroutine]
