"""Connections to a broker and its backups, and the factory that makes them."""

from __future__ import annotations

from legato.client.connection_steps import ConnectionSteps, ExceptionListener, FactorySteps, FailoverListener
from legato.client.context import JMSContext
from legato.client.session import Session
from legato.client.steps import blocking
from legato.client.world import Threads

__all__ = ["Connection", "ConnectionFactory", "ExceptionListener", "FailoverListener"]


class Connection(ConnectionSteps[Session]):
    __doc__ = ConnectionSteps.__doc__

    _session_type = Session
    _world_type = Threads

    set_client_id = blocking(ConnectionSteps._set_client_id)

    @property
    def client_id(self) -> str | None:
        """The client's own name, under which its durable subscriptions are kept; None if it has none.

        Setting it is `set_client_id()`.
        """
        return self._client_id

    @client_id.setter
    def client_id(self, client_id: str) -> None:
        self.set_client_id(client_id)

    stop = blocking(ConnectionSteps._stop)
    close = blocking(ConnectionSteps._close)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ConnectionFactory(FactorySteps[Connection, JMSContext]):
    __doc__ = FactorySteps.__doc__

    _connection_type = Connection
    _context_type = JMSContext

    create_connection = blocking(FactorySteps[Connection, JMSContext]._create_connection)
    create_context = blocking(FactorySteps[Connection, JMSContext]._create_context)
