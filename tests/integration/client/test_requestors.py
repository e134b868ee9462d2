"""Requestors whose request did not come to its end: a late reply is nobody's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from legato.client import Connection, ConnectionFactory, JMSError, Message, QueueRequestor, TextMessage, aio
from legato.client.links.temporaries import TemporaryEnd
from tests.integration.client.calling import Calling
from tests.integration.client.helpers import WAIT_S
from tests.support.broker import BrokerPair
from tests.support.twins import twin_of

Connect = Callable[..., Connection]


def test_the_reply_to_a_cancelled_request_is_not_the_next_ones(calm_pair: BrokerPair, queue_name: str) -> None:
    async def story() -> None:
        async with aio.ConnectionFactory(calm_pair.url).create_connection() as connection:
            connection.start()
            session, service = connection.create_session(), connection.create_session()
            requests = await service.create_consumer(service.create_queue(queue_name))
            replies = await service.create_producer()

            async def answer(request: Message | None) -> None:
                assert request is not None
                reply = TextMessage(f"re: {request.body}")
                reply.correlation_id = request.message_id
                await replies.send(reply, destination=request.reply_to)

            async with aio.QueueRequestor(session, session.create_queue(queue_name)) as requestor:
                first = asyncio.create_task(requestor.request(TextMessage("1")))
                received = await requests.receive(WAIT_S)
                first.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await first
                await answer(received)
                second = asyncio.create_task(requestor.request(TextMessage("2"), WAIT_S))
                await answer(await requests.receive(WAIT_S))
                reply = await second
                assert reply is not None
                assert reply.body == "re: 2"

    asyncio.run(asyncio.wait_for(story(), 4 * WAIT_S))


def test_a_request_that_was_not_sent_costs_no_reply(connect: Connect, queue_name: str) -> None:
    """The next one has the message id that it was to have."""
    session, service = connect().create_session(), connect().create_session()
    replies = service.create_producer()

    def answer(message: Message) -> None:
        reply = TextMessage(f"re: {message.body}")
        reply.correlation_id = message.message_id
        replies.send(reply, destination=message.reply_to)

    service.create_consumer(service.create_queue(queue_name)).message_listener = answer
    requestor = twin_of(session, QueueRequestor, aio.QueueRequestor)(session, session.create_queue(queue_name))
    broken = TextMessage("1")
    broken.correlation_id = "ID:AMQP_ULONG:no number"
    for _ in range(2):
        with pytest.raises(JMSError):
            requestor.request(broken, WAIT_S)
        reply = requestor.request(TextMessage("2"), WAIT_S)
        assert reply is not None
        assert reply.body == "re: 2"
    requestor.close()


def test_a_requestor_closes_though_the_broker_does_not_delete_its_temporary_queue(
    calm_pair: BrokerPair, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for that until the connection was lost."""
    monkeypatch.setattr(TemporaryEnd, "on_detached", lambda end, event: None)
    with ConnectionFactory(calm_pair.url, close_timeout_s=0.1).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        requestor = QueueRequestor(session, session.create_queue(queue_name))
        requestor.request(TextMessage("anybody?"), 0.1)
        Calling(requestor.close).outcome()
