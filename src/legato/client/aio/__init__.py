"""The asyncio twin of `legato.client`: the same names and behaviour, from the same source; what waits is awaited.

```python
import asyncio

from legato.client import TextMessage
from legato.client.aio import ConnectionFactory


async def main():
    async with ConnectionFactory("amqp://one:5672,two:5672").create_connection() as connection:
        session = connection.create_session()
        orders = session.create_queue("orders")
        async with session.create_producer(orders) as producer:
            await producer.send(TextMessage("one pound of tea"))
        connection.start()
        async with session.create_consumer(orders) as consumer:
            async for message in consumer:
                print(message.text)
                break


asyncio.run(main())
```
"""

from legato.client.aio.browser import QueueBrowser
from legato.client.aio.connection import Connection, ConnectionFactory
from legato.client.aio.consumer import MessageConsumer
from legato.client.aio.context import JMSConsumer, JMSContext, JMSProducer
from legato.client.aio.destinations import TemporaryQueue, TemporaryTopic
from legato.client.aio.producer import MessageProducer
from legato.client.aio.requestor import QueueRequestor, TopicRequestor
from legato.client.aio.session import Session

__all__ = [
    "Connection",
    "ConnectionFactory",
    "JMSConsumer",
    "JMSContext",
    "JMSProducer",
    "MessageConsumer",
    "MessageProducer",
    "QueueBrowser",
    "QueueRequestor",
    "Session",
    "TemporaryQueue",
    "TemporaryTopic",
    "TopicRequestor",
]
