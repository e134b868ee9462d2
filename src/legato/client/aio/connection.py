"""Connections to a broker and its backups with asyncio, and the factory that makes them."""

from __future__ import annotations

from legato.client.aio.context import JMSContext
from legato.client.aio.destinations import TemporaryQueue, TemporaryTopic
from legato.client.aio.session import Session
from legato.client.aio.steps import awaiting, opening
from legato.client.aio.world import EventLoop
from legato.client.connection_steps import ConnectionSteps, FactorySteps


class Connection(ConnectionSteps[Session]):
    __doc__ = ConnectionSteps.__doc__

    _session_type = Session
    _world_type = EventLoop
    _temporary_queue_type = TemporaryQueue
    _temporary_topic_type = TemporaryTopic

    set_client_id = awaiting(ConnectionSteps._set_client_id)
    stop = awaiting(ConnectionSteps._stop)
    close = awaiting(ConnectionSteps._close)

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class ConnectionFactory(FactorySteps[Connection, JMSContext]):
    __doc__ = FactorySteps.__doc__

    _connection_type = Connection
    _context_type = JMSContext

    create_connection = opening(FactorySteps[Connection, JMSContext]._create_connection)
    create_context = opening(FactorySteps[Connection, JMSContext]._create_context)
