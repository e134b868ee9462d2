"""The simplified API, with asyncio (Jakarta Messaging 2.8)."""

from __future__ import annotations

from collections.abc import AsyncIterator

from legato.client.aio.browser import QueueBrowser
from legato.client.aio.steps import awaiting, opening
from legato.client.context_steps import ContextSteps
from legato.client.jms_consumer_steps import JMSConsumerSteps
from legato.client.jms_producer_steps import JMSProducerSteps
from legato.client.message import Message


class JMSProducer(JMSProducerSteps):
    __doc__ = JMSProducerSteps.__doc__

    send = awaiting(JMSProducerSteps._send)


class JMSConsumer(JMSConsumerSteps):
    __doc__ = JMSConsumerSteps.__doc__

    receive = awaiting(JMSConsumerSteps._receive)
    receive_no_wait = awaiting(JMSConsumerSteps._receive_no_wait)
    receive_body = awaiting(JMSConsumerSteps._receive_body)
    receive_body_no_wait = awaiting(JMSConsumerSteps._receive_body_no_wait)
    close = awaiting(JMSConsumerSteps._close)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (message := await self.receive()) is not None:
            yield message

    async def __aenter__(self) -> JMSConsumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class JMSContext(ContextSteps[JMSProducer, JMSConsumer, QueueBrowser]):
    __doc__ = ContextSteps.__doc__

    _producer_type = JMSProducer
    _consumer_type = JMSConsumer

    create_consumer = opening(ContextSteps[JMSProducer, JMSConsumer, QueueBrowser]._create_consumer)
    create_durable_consumer = opening(ContextSteps[JMSProducer, JMSConsumer, QueueBrowser]._create_durable_consumer)
    create_shared_consumer = opening(ContextSteps[JMSProducer, JMSConsumer, QueueBrowser]._create_shared_consumer)
    create_shared_durable_consumer = opening(
        ContextSteps[JMSProducer, JMSConsumer, QueueBrowser]._create_shared_durable_consumer
    )
    create_temporary_queue = awaiting(ContextSteps._create_temporary_queue)
    create_temporary_topic = awaiting(ContextSteps._create_temporary_topic)
    unsubscribe = awaiting(ContextSteps._unsubscribe)
    set_client_id = awaiting(ContextSteps._set_client_id)
    stop = awaiting(ContextSteps._stop)
    commit = awaiting(ContextSteps._commit)
    commit_outcome = awaiting(ContextSteps._commit_outcome)
    rollback = awaiting(ContextSteps._rollback)
    recover = awaiting(ContextSteps._recover)
    acknowledge = awaiting(ContextSteps._acknowledge)
    acknowledge_all = awaiting(ContextSteps._acknowledge_all)
    close = awaiting(ContextSteps._close)

    async def __aenter__(self) -> JMSContext:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
