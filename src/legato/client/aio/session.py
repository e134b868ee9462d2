"""A context for one task at a time, for sending and receiving with asyncio."""

from __future__ import annotations

from legato.client.aio.browser import QueueBrowser
from legato.client.aio.consumer import MessageConsumer
from legato.client.aio.producer import MessageProducer
from legato.client.aio.steps import awaiting, opening
from legato.client.session_steps import SessionSteps


class Session(SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]):
    __doc__ = SessionSteps.__doc__

    _producer_type = MessageProducer
    _consumer_type = MessageConsumer
    _browser_type = QueueBrowser

    create_producer = opening(SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]._create_producer)
    create_consumer = opening(SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]._create_consumer)
    create_durable_consumer = opening(
        SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]._create_durable_consumer
    )
    create_durable_subscriber = opening(
        SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]._create_durable_subscriber
    )
    create_shared_consumer = opening(
        SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]._create_shared_consumer
    )
    create_shared_durable_consumer = opening(
        SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]._create_shared_durable_consumer
    )
    unsubscribe = awaiting(SessionSteps._unsubscribe)
    create_temporary_queue = awaiting(SessionSteps._create_temporary_queue)
    create_temporary_topic = awaiting(SessionSteps._create_temporary_topic)
    commit = awaiting(SessionSteps._commit)
    commit_outcome = awaiting(SessionSteps._commit_outcome)
    rollback = awaiting(SessionSteps._rollback)
    recover = awaiting(SessionSteps._recover)
    acknowledge_all = awaiting(SessionSteps._acknowledge_all)
    close = awaiting(SessionSteps._close)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
