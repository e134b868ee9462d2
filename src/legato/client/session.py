"""A single-threaded context for sending and receiving: acknowledgement, transactions, recovery."""

from __future__ import annotations

from legato.client.browser import QueueBrowser
from legato.client.consumer import MessageConsumer
from legato.client.handing import making
from legato.client.producer import MessageProducer
from legato.client.session_steps import SessionSteps
from legato.client.steps import blocking


class Session(SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]):
    __doc__ = SessionSteps.__doc__

    _producer_type = MessageProducer
    _consumer_type = MessageConsumer
    _browser_type = QueueBrowser

    create_producer = blocking(SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]._create_producer)
    create_consumer = making(SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]._create_consumer)
    create_durable_consumer = making(
        SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]._create_durable_consumer
    )
    create_durable_subscriber = making(
        SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]._create_durable_subscriber
    )
    create_shared_consumer = making(
        SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]._create_shared_consumer
    )
    create_shared_durable_consumer = making(
        SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]._create_shared_durable_consumer
    )
    unsubscribe = blocking(SessionSteps._unsubscribe)
    create_temporary_queue = blocking(
        SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]._create_temporary_queue
    )
    create_temporary_topic = blocking(
        SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]._create_temporary_topic
    )
    commit = blocking(SessionSteps._commit)
    commit_outcome = blocking(SessionSteps._commit_outcome)
    rollback = blocking(SessionSteps._rollback)
    recover = blocking(SessionSteps._recover)
    acknowledge_all = blocking(SessionSteps._acknowledge_all)
    close = blocking(SessionSteps._close)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
