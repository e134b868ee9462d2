"""The Jakarta Messaging API for Python, over AMQP 1.0, that carries on through the failure of its broker.

```python
from legato.client import ConnectionFactory

with ConnectionFactory("amqp://one:5672,two:5672").create_connection() as connection:
    session = connection.create_session()
    orders = session.create_queue("orders")
    session.create_producer(orders).send(session.create_text_message("one pound of tea"))
    connection.start()
    message = session.create_consumer(orders).receive(timeout_s=5)
    print(message.text)
```
"""

from legato.amqp.codec.types import Byte, Char, Float, Int, Short
from legato.client.browser import QueueBrowser
from legato.client.calls.metadata import ConnectionMetaData
from legato.client.connection import Connection, ConnectionFactory, ExceptionListener, FailoverListener
from legato.client.consumer import MessageConsumer, MessageListener
from legato.client.context import JMSConsumer, JMSContext, JMSProducer
from legato.client.failover.connection_options import ConnectionOptions
from legato.client.failover.disconnect_reason import Detection
from legato.client.failover.schedule import FailoverEvent
from legato.client.links.completion import CompletionListener
from legato.client.links.session_state import AcknowledgementOutcome, AcknowledgeMode
from legato.client.messages import (
    BytesMessage,
    DeliveryMode,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)
from legato.client.messages.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from legato.client.messages.java_object import JavaObject
from legato.client.messages.values import Long
from legato.client.producer import MessageProducer
from legato.client.requestor import QueueRequestor, TopicRequestor
from legato.client.session import Session
from legato.errors import (
    ConfigError,
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    InvalidSelectorError,
    JMSError,
    JMSSecurityError,
    MessageEOFError,
    MessageFormatError,
    MessageNotReadableError,
    MessageNotWriteableError,
    ResourceAllocationError,
    SpaceLostError,
    TransactionInProgressError,
    TransactionRolledBackError,
)

AckMode = AcknowledgeMode

__all__ = [
    "AckMode",
    "AcknowledgeMode",
    "AcknowledgementOutcome",
    "Byte",
    "BytesMessage",
    "Char",
    "CompletionListener",
    "ConfigError",
    "Connection",
    "ConnectionFactory",
    "ConnectionMetaData",
    "ConnectionOptions",
    "DeliveryMode",
    "Destination",
    "Detection",
    "ExceptionListener",
    "FailoverEvent",
    "FailoverListener",
    "Float",
    "IllegalStateError",
    "Int",
    "InvalidClientIDError",
    "InvalidDestinationError",
    "InvalidSelectorError",
    "JMSConsumer",
    "JMSContext",
    "JMSError",
    "JMSProducer",
    "JMSSecurityError",
    "JavaObject",
    "Long",
    "MapMessage",
    "Message",
    "MessageConsumer",
    "MessageEOFError",
    "MessageFormatError",
    "MessageListener",
    "MessageNotReadableError",
    "MessageNotWriteableError",
    "MessageProducer",
    "ObjectMessage",
    "Queue",
    "QueueBrowser",
    "QueueRequestor",
    "ResourceAllocationError",
    "Session",
    "Short",
    "SpaceLostError",
    "StreamMessage",
    "TemporaryQueue",
    "TemporaryTopic",
    "TextMessage",
    "Topic",
    "TopicRequestor",
    "TransactionInProgressError",
    "TransactionRolledBackError",
]
