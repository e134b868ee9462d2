"""Connections to a broker and its backups, and their factory.

Do not edit: `tools/make_faces.py` writes this from `calls/connection_steps.py`.
"""

from __future__ import annotations

from types import TracebackType

from legato.client.calls.connection_steps import ConnectionSteps, ExceptionListener, FactorySteps, FailoverListener
from legato.client.calls.leaving import in_flight
from legato.client.calls.world import Threads
from legato.client.context import JMSContext
from legato.client.links.session_state import AcknowledgeMode
from legato.client.session import Session
from legato.client.steps import drive, leave_block, mend

__all__ = ["Connection", "ConnectionFactory", "ExceptionListener", "FailoverListener"]


class Connection(ConnectionSteps[Session]):
    """A connection that finds the broker again when it is lost (Jakarta Messaging 6.1).

    Attributes:
        exception_listener: called with a `JMSError` when the connection is gone for good, when the broker closes a
            producer or consumer, or when a non-persistent send was refused; of failovers, see `failover_contract`.
        failover_listener: called with a `FailoverEvent` after each failover.
        failovers: the last `FAILOVERS_KEPT` failovers, oldest first.
    """

    _session_type = Session
    _world_type = Threads

    def create_session(
        self, transacted: bool = False, acknowledge_mode: AcknowledgeMode = AcknowledgeMode.AUTO
    ) -> Session:
        """A session, for one thread or task at a time.

        Args:
            transacted: whether it has transactions; the acknowledge mode then does not count (CONTRACT C1).

        Raises:
            JMSError: the acknowledge mode is none.
            IllegalStateError: the connection is closed.
        """
        return super().create_session(transacted, acknowledge_mode)

    def set_client_id(self, client_id: str) -> None:
        """Give the client a name, before anything else is done with the connection (Jakarta Messaging 6.1.2).

        Raises:
            InvalidClientIDError: the name is in use by another connection, or empty.
            IllegalStateError: the connection has one, or was used already.
        """
        try:
            drive(self._set_client_id(client_id))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def stop(self) -> None:
        """Hold messages back; waits for listeners that run now. `receive()` waits until `start()`.

        Raises:
            IllegalStateError: one of the connection's own message listeners asks, which would wait for itself.
        """
        try:
            drive(self._stop())
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def close(self) -> None:
        """Close all sessions, then the connection. May be called again.

        What the broker has not confirmed is waited for as long as the option `close_timeout_s`, in all sessions
        together; without a connection there is nothing else to wait for. Temporary destinations are durably deleted
        when it returns; over a failover that is waited for as long. Those that there are while there is no connection
        end as if it had been lost.

        Raises:
            IllegalStateError: one of the connection's own message or completion listeners asks.
            JMSError: so many messages were not confirmed by then, and are given up (code `TIMEOUT`); the connection is
                closed.
        """
        try:
            drive(self._leave(in_flight()))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    @property
    def client_id(self) -> str | None:
        """The client's own name, under which its durable subscriptions are kept; None if it has none.

        Setting it is `set_client_id()`.
        """
        return self._client_id

    @client_id.setter
    def client_id(self, client_id: str) -> None:
        self.set_client_id(client_id)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leave_block(self, error)


class ConnectionFactory(FactorySteps[Connection, JMSContext]):
    """Makes connections and contexts (Jakarta Messaging 6.1.2, 2.8).

    Args:
        uri: `amqp://user:password@one:5672,two:5672?option=value`; `amqps` for TLS. The first host that serves is used.
        ssl_context: TLS settings beyond the `tls_` options.
        token: a bearer token of OAuth 2.0, or what gives one: it is called for each login, also after a failover. It is
            used instead of a password.
        options: further options of the URI (`legato.client.failover.uri.Options`), which win over it.

    Raises:
        ConfigError: the URI or an option cannot be used.
    """

    _connection_type = Connection
    _context_type = JMSContext

    def create_connection(self, user: str | None = None, password: str | None = None) -> Connection:
        """Connect to the first host that serves; the connection must be started before messages come.

        Args:
            user: this and the password override the URI's.

        Raises:
            JMSSecurityError: the broker refused the login.
            InvalidClientIDError: the client id is in use.
            JMSError: no broker could be reached.
        """
        try:
            return drive(self._create_connection(user, password))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def create_context(
        self, user: str | None = None, password: str | None = None, session_mode: AcknowledgeMode = AcknowledgeMode.AUTO
    ) -> JMSContext:
        """Connect, and make the simplified API's one object for all (Jakarta Messaging 2.8).

        Args:
            user: this and the password override the URI's.
            session_mode: how received messages count as consumed, `SESSION_TRANSACTED` for transactions.

        Raises:
            JMSSecurityError: the broker refused the login.
            InvalidClientIDError: the client id is in use.
            JMSError: no broker could be reached, or the session mode is none.
        """
        try:
            return drive(self._create_context(user, password, session_mode))
        except BaseException as interruption:
            mend(self, interruption)
            raise
