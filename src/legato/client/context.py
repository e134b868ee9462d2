"""The simplified API (Jakarta Messaging 2.8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from legato.client.browser import QueueBrowser
from legato.client.context_steps import ContextSteps
from legato.client.handing import handing, making
from legato.client.jms_consumer_steps import JMSConsumerSteps
from legato.client.jms_producer_steps import JMSProducerSteps
from legato.client.message import Message
from legato.client.steps import blocking


class JMSProducer(JMSProducerSteps):
    __doc__ = JMSProducerSteps.__doc__

    send = blocking(JMSProducerSteps._send)


class JMSConsumer(JMSConsumerSteps):
    __doc__ = JMSConsumerSteps.__doc__

    receive = handing(JMSConsumerSteps._getting, JMSConsumerSteps._receive)
    receive_no_wait = handing(JMSConsumerSteps._getting_now, JMSConsumerSteps._receive_no_wait)
    receive_body = handing(JMSConsumerSteps._getting_body, JMSConsumerSteps._receive_body)
    receive_body_no_wait = handing(JMSConsumerSteps._getting_body_now, JMSConsumerSteps._receive_body_no_wait)
    close = blocking(JMSConsumerSteps._close)

    def __iter__(self) -> Iterator[Message]:
        return cast(Iterator[Message], iter(self.receive, None))

    def __enter__(self) -> JMSConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class JMSContext(ContextSteps[JMSProducer, JMSConsumer, QueueBrowser]):
    __doc__ = ContextSteps.__doc__

    _producer_type = JMSProducer
    _consumer_type = JMSConsumer

    create_consumer = making(ContextSteps[JMSProducer, JMSConsumer, QueueBrowser]._create_consumer)
    create_durable_consumer = making(ContextSteps[JMSProducer, JMSConsumer, QueueBrowser]._create_durable_consumer)
    create_shared_consumer = making(ContextSteps[JMSProducer, JMSConsumer, QueueBrowser]._create_shared_consumer)
    create_shared_durable_consumer = making(
        ContextSteps[JMSProducer, JMSConsumer, QueueBrowser]._create_shared_durable_consumer
    )
    create_temporary_queue = blocking(ContextSteps._create_temporary_queue)
    create_temporary_topic = blocking(ContextSteps._create_temporary_topic)
    unsubscribe = blocking(ContextSteps._unsubscribe)
    set_client_id = blocking(ContextSteps._set_client_id)
    stop = blocking(ContextSteps._stop)
    commit = blocking(ContextSteps._commit)
    commit_outcome = blocking(ContextSteps._commit_outcome)
    rollback = blocking(ContextSteps._rollback)
    recover = blocking(ContextSteps._recover)
    acknowledge = blocking(ContextSteps._acknowledge)
    acknowledge_all = blocking(ContextSteps._acknowledge_all)
    close = blocking(ContextSteps._close)

    def __enter__(self) -> JMSContext:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
