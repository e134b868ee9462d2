"""Steps of connections and their factory."""

from __future__ import annotations

import contextlib
import itertools
import logging
import ssl
from collections.abc import Callable
from typing import Any, Generic, TypeVar, Unpack

import msgspec

from legato.amqp.engine.settings import Settings
from legato.client.calls.described import counted, described
from legato.client.calls.leaving import leaving
from legato.client.calls.metadata import ConnectionMetaData, connection_metadata, open_properties
from legato.client.calls.other_groups import ConnectionGroups
from legato.client.calls.patience import Patience
from legato.client.calls.session_guard import SessionGuard, session_closed
from legato.client.calls.session_steps import SessionSteps
from legato.client.calls.world import World
from legato.client.failover.connection_options import ConnectionOptions
from legato.client.failover.schedule import FailoverEvent
from legato.client.failover.uri import TEXT_CHARACTERS_MAX, Host, Options, Uri, parse_options, parse_uri, tls_context
from legato.client.failover.wire import Login, Token, token_source
from legato.client.links.channel import Channel
from legato.client.links.notifier import calling
from legato.client.links.session_state import AcknowledgeMode, checked_mode
from legato.client.links.subscriptions import Subscriptions
from legato.client.links.temporaries import TemporaryEnd, TemporaryNode
from legato.client.links.transport import Transport
from legato.client.mapping.conditions import FAILOVER
from legato.client.messages.destinations import Destination, Temporary, TemporaryQueue, TemporaryTopic
from legato.client.steps import NOTHING, Await, Steps, Wait
from legato.errors import (
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    JMSError,
    JMSSecurityError,
)
from legato.ids import new_unique_name
from legato.quoting import is_unicode, sentence

log = logging.getLogger("legato.client")

ExceptionListener = Callable[[JMSError], object]
FailoverListener = Callable[[FailoverEvent], object]

FAILOVERS_KEPT = 1000
"""A network that fails every second must not fill memory in the end."""
DESIRED_CAPABILITIES = ["sole-connection-for-container", "DELAYED_DELIVERY", "ANONYMOUS-RELAY", "SHARED-SUBS"]
"""What Qpid JMS desires too (amqp.md A1.3)."""

_Session = TypeVar("_Session", bound=SessionSteps[Any, Any, Any])
_Temporary = TypeVar("_Temporary", TemporaryQueue, TemporaryTopic)
_Context = TypeVar("_Context")
_Connection = TypeVar("_Connection", bound="ConnectionSteps[Any]")


class FactorySteps(Generic[_Connection, _Context]):
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

    _connection_type: type[_Connection]
    _context_type: Callable[[_Connection, AcknowledgeMode], _Context]

    def __init__(
        self,
        uri: str = "amqp://localhost:5672",
        *,
        ssl_context: ssl.SSLContext | None = None,
        token: str | Token | None = None,
        **options: Unpack[ConnectionOptions],
    ) -> None:
        parsed = parse_uri(uri)
        given = msgspec.structs.asdict(parsed.options) | options
        self._uri: Uri = msgspec.structs.replace(parsed, options=parse_options(given.items()))
        self._token = token_source(token, self._uri.options.token_file)
        self._tls = ssl_context
        if self._tls is None and parsed.tls:
            self._tls = tls_context(self._uri.options)

    def _create_connection(self, user: str | None = None, password: str | None = None) -> Steps[_Connection]:
        """Connect to the first host that serves; the connection must be started before messages come.

        Args:
            user: this and the password override the URI's.

        Raises:
            JMSSecurityError: the broker refused the login.
            InvalidClientIDError: the client id is in use.
            JMSError: no broker could be reached.
        """
        uri = self._uri if user is None else msgspec.structs.replace(self._uri, user=user, password=password)
        if not is_unicode(f"{user or ''}{password or ''}"):
            raise JMSSecurityError("The user name or the password is no Unicode text: no broker can know it.")
        connection = self._connection_type(uri, self._tls if uri.tls else None, self._token if user is None else None)
        yield from connection._connect()
        return connection

    def _create_context(
        self,
        user: str | None = None,
        password: str | None = None,
        session_mode: AcknowledgeMode = AcknowledgeMode.AUTO,
    ) -> Steps[_Context]:
        """Connect, and make the simplified API's one object for all (Jakarta Messaging 2.8).

        Args:
            user: this and the password override the URI's.
            session_mode: how received messages count as consumed, `SESSION_TRANSACTED` for transactions.

        Raises:
            JMSSecurityError: the broker refused the login.
            InvalidClientIDError: the client id is in use.
            JMSError: no broker could be reached, or the session mode is none.
        """
        mode = checked_mode(session_mode)
        connection = yield from self._create_connection(user, password)
        return self._context_type(connection, mode)

    def __repr__(self) -> str:
        return described(self, str(self._uri))


class ConnectionSteps(Generic[_Session]):
    """A connection that finds the broker again when it is lost (Jakarta Messaging 6.1).

    Attributes:
        exception_listener: called with a `JMSError` when the connection is gone for good, when the broker closes a
            producer or consumer, or when a non-persistent send was refused; of failovers, see `failover_contract`.
        failover_listener: called with a `FailoverEvent` after each failover.
        failovers: the last `FAILOVERS_KEPT` failovers, oldest first.
    """

    exception_listener: ExceptionListener | None = None
    failover_listener: FailoverListener | None = None
    _session_type: type[_Session]
    _transport: Transport
    _world_type: Callable[[], World]
    _temporary_queue_type: type[TemporaryQueue] = TemporaryQueue
    _temporary_topic_type: type[TemporaryTopic] = TemporaryTopic

    def __init__(
        self,
        uri: Uri,
        tls: ssl.SSLContext | None,
        token: Token | None = None,
        above: ConnectionSteps[Any] | None = None,
    ) -> None:
        self.exception_listener = None
        self.failover_listener = None
        self.failovers: list[FailoverEvent] = []
        self._world = self._world_type()
        self._options: Options = uri.options
        self._name = new_unique_name("")
        self._uri = uri
        self._tls = tls
        self._token = token
        self._named_hosts: tuple[Host, ...] = uri.hosts if above is None else above._named_hosts
        """Those that the user named, who may be told more than those that a broker named."""
        self._groups = ConnectionGroups(self)
        self._client_id = uri.options.client_id
        self._user_id = uri.user if uri.options.send_user_id else None
        self._used = False
        """Whether anything was done with it that fixes the client id."""
        self._subscriptions = Subscriptions()
        self._sweeping: list[SessionGuard] = []
        """Sessions with a call that waits for consumers of others."""
        self._temporaries: dict[str, TemporaryNode] = {}
        self._bases: dict[str, Channel] = {}
        """At most one, which has the links of temporary destinations, which outlive the sessions that made them."""
        self._temporaries_made = itertools.count(1)
        self._sessions: list[_Session] = []
        self._sessions_made = itertools.count(1)
        self._closed = False
        login = Login(
            uri.user,
            uri.password,
            tls,
            uri.options.connect_timeout_s,
            named=self._named_hosts,
            insecure_plain=uri.options.allow_insecure_plain,
            password_file=uri.options.password_file,
            token=token,
        )
        # One calls the listeners of all: no two of a session run at once (Jakarta Messaging 7.3).
        notifier = (
            self._world.notifier(f"legato listeners {self._name}") if above is None else above._transport.notifier
        )
        self._transport = transport = Transport(uri, self._settings(self._client_id, uri), login, notifier)
        if above is not None:
            transport.shares_notifier = True
            transport.connecting.sent_to = uri.options.vhost or ""
        # What happens to a connection below, the application hears of its own.
        listening = self if above is None else above
        transport.on_exception = listening._on_exception
        transport.on_failover = listening._on_failover
        transport.on_end = self._wake_all

    def _settings(self, client_id: str | None, uri: Uri) -> Settings:
        return Settings(
            container_id=client_id or f"legato-{self._name}",
            hostname=uri.options.vhost or uri.hosts[0].name,
            idle_timeout_ms=uri.options.idle_timeout_ms,
            properties=open_properties(),
            desired_capabilities=DESIRED_CAPABILITIES,
        )

    def _connect(self, dropped: Callable[[], bool] = lambda: False) -> Steps[None]:
        transport = self._transport
        connecting = transport.connecting
        try:
            transport.start_thread()
            yield Wait(transport.gate, lambda: connecting.connected_once or transport.error or dropped())
            if not connecting.connected_once and transport.error is None:
                raise session_closed("connect to another group of brokers")
        except BaseException:
            transport.give_up()
            raise
        if transport.error is not None:
            raise transport.error

    def __repr__(self) -> str:
        transport = self._transport
        wire = transport.wire
        if self._closed or transport.error is not None:
            return described(self, str(self._uri), "closed" if self._closed else "lost for good")
        now = f"connected to {wire.host}" if wire is not None else "without a broker now"
        started = "started" if transport.started else "not started"
        return described(self, str(self._uri), now, started, counted(len(self._sessions), "session"))

    # -- who it is ---------------------------------------------------------------------------------------

    @property
    def client_id(self) -> str | None:
        """The client's own name, under which its durable subscriptions are kept; None if it has none."""
        return self._client_id

    def _set_client_id(self, client_id: str) -> Steps[None]:
        """Give the client a name, before anything else is done with the connection (Jakarta Messaging 6.1.2).

        Raises:
            InvalidClientIDError: the name is in use by another connection, or empty.
            IllegalStateError: the connection has one, or was used already.
        """
        self._check_open()
        if self._client_id is not None:
            raise IllegalStateError(f"The client id is {self._client_id!r} already.")
        if self._used:
            raise IllegalStateError("The client id can be set only before the connection is used in any other way.")
        if not client_id or not isinstance(client_id, str) or not is_unicode(client_id):
            raise InvalidClientIDError(f"A client id is a Unicode text that is not empty, not {client_id!r}.")
        if len(client_id) > TEXT_CHARACTERS_MAX:
            raise InvalidClientIDError(
                f"A client id has at most {TEXT_CHARACTERS_MAX:,} characters, not {len(client_id):,}."
            )
        transport = self._transport
        outcome: list[JMSError | None] = []
        transport.post(transport.reopen, client_id, outcome)
        transport.hurry()
        yield Wait(transport.gate, lambda: outcome or transport.error)
        error = outcome[0] if outcome else transport.error
        if error is not None:
            raise error
        self._client_id = client_id

    @property
    def metadata(self) -> ConnectionMetaData:
        """Versions of the specification and of Legato (Jakarta Messaging 6.1.6)."""
        self._check_open()
        return connection_metadata()

    # -- starting and stopping ---------------------------------------------------------------------------

    def start(self) -> None:
        """Let messages come (Jakarta Messaging 6.1.4); sending needs no start."""
        self._check_open()
        self._used = True
        self._transport.set_started(True)
        self._wake_sessions()
        self._groups.start()

    def _stop(self) -> Steps[None]:
        """Hold messages back; waits for listeners that run now. `receive()` waits until `start()`.

        Raises:
            IllegalStateError: one of the connection's own message listeners asks, which would wait for itself.
        """
        self._check_open()
        self._used = True
        self._check_not_in_listener("stop")
        self._transport.set_started(False)
        with contextlib.ExitStack() as held:
            for connection in (self, *self._groups):
                for session in list(connection._sessions):
                    held.enter_context(session._guard.held())
            for session in list(self._sessions):
                dispatcher = session._listeners.dispatcher
                if dispatcher is not None:
                    yield from dispatcher.wait_idle()
            yield from self._groups.stop()

    def _check_not_in_listener(self, what: str) -> None:
        for session in list(self._sessions):
            session._check_not_in_listener(what)
        for below in self._groups:
            below._check_not_in_listener(what)

    # -- what it makes -----------------------------------------------------------------------------------

    def create_session(
        self, transacted: bool = False, acknowledge_mode: AcknowledgeMode = AcknowledgeMode.AUTO
    ) -> _Session:
        """A session, for one thread or task at a time.

        Args:
            transacted: whether it has transactions; the acknowledge mode then does not count (CONTRACT C1).

        Raises:
            JMSError: the acknowledge mode is none.
            IllegalStateError: the connection is closed.
        """
        self._check_open()
        self._used = True
        mode = AcknowledgeMode.SESSION_TRANSACTED if transacted else checked_mode(acknowledge_mode)
        session = self._session_type(self, f"{self._name}:s{next(self._sessions_made)}", mode)
        self._sessions.append(session)
        return session

    def _create_below(self, above: Any) -> _Session:
        """A session below one of another connection's."""
        self._used = True
        session = self._session_type(self, f"{self._name}:s{next(self._sessions_made)}", above.acknowledge_mode, above)
        self._sessions.append(session)
        return session

    def _new_temporary(self, kind: type[_Temporary], guard: SessionGuard) -> Steps[_Temporary]:
        base = self._bases.get("base")
        if base is None:
            made = Channel(self._transport, f"{self._name}:t", AcknowledgeMode.AUTO, None, self._options.contract)
            # Of two threads that come at once the first one's is everybody's.
            base = self._bases.setdefault("base", made)
        self._transport.add_base(base)
        number = next(self._temporaries_made)
        destination = kind("")
        creator = f"{destination.capability.replace('temporary', 'temp')}-creator:{self._name}:{number}"
        end = TemporaryEnd(base, creator, destination)
        base.transport.post(base.add, end)
        try:
            asking = guard.channel
            yield from self._wait_for(base, lambda: end.ready or end.closed or asking.error or guard.drops_calls)
            if end.error is not None:
                raise end.error
            if not end.ready and asking.error is not None:
                raise asking.error
            if not end.ready:
                raise session_closed("create a temporary destination")
        except BaseException:
            base.transport.post(end.close)
            raise
        destination._node = self._temporaries[destination.name] = TemporaryNode(self, end)
        return destination

    def _check_owned(self, destination: Temporary) -> None:
        if destination._node is not None and destination._node.is_deleted:
            raise InvalidDestinationError(f"The temporary destination {destination.name} is deleted.")
        if destination.name not in self._temporaries:
            raise JMSSecurityError(
                f"{destination.name} is a temporary destination, and only the connection that made it receives from it."
            )

    def _swept_subscriptions(self, asking: SessionGuard) -> Steps[Subscriptions]:
        self._sweeping.append(asking)
        try:
            for session in list(self._sessions):
                yield from session._members.sweep(asking)
        finally:
            self._sweeping.remove(asking)
        return self._subscriptions

    def _open_transactions(self) -> set[bytes]:
        open_ones = [session._transactions.current for session in list(self._sessions)]
        return {each.id for each in open_ones if each is not None and each.id is not None}

    def _consumes(self, destination: Destination) -> bool:
        return any(
            consumer.destination == destination and not consumer._closed
            for session in list(self._sessions)
            for consumer in list(session._members.consumers)
        )

    def _wait_for(self, channel: Channel, ready: Callable[[], object], timeout_s: float | None = None) -> Steps[None]:
        transport = self._transport
        transport.hurry()
        yield Wait(channel.gate, lambda: ready() or channel.error or transport.error, timeout_s)
        error = channel.error or transport.error
        if not ready() and error is not None:
            raise error

    @property
    def host(self) -> str | None:
        """The broker that serves it now, as `name:port`; None while there is none."""
        wire = self._transport.wire
        return None if wire is None else str(wire.host)

    @property
    def lost(self) -> JMSError | None:
        """Why it is gone for good; None while it is not."""
        return self._transport.error

    @property
    def group(self) -> str:
        """The group of brokers that serves it, as they say; empty if there are no groups."""
        return self._transport.connecting.group

    # -- the end -----------------------------------------------------------------------------------------

    def _close(self) -> Steps[None]:
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
        patience = Patience("connection", self._options.close_timeout_s, self._transport)
        yield from self._close_within(patience)
        patience.check()

    def _close_within(self, patience: Patience) -> Steps[None]:
        """Close, and tell `patience` what was given up."""
        if self._transport.disowned:
            return
        self._check_not_in_listener("close")
        # Called again all of it is done again, which changes nothing: the first call may have been interrupted.
        self._closed = True
        try:
            for session in list(self._sessions):
                yield from session._close_within(patience)
            yield from self._groups.close_within(patience)
            if self._transport.wire is not None:
                yield from self._delete_temporaries(patience)
            yield from self._transport.stop()
        except BaseException:
            # Nobody waits for it any more, but it ends.
            self._transport.give_up()
            self._groups.give_up()
            raise

    def _leave(self, error: BaseException | None) -> Steps[None]:
        return leaving(self._close(), self._transport, error)

    def _delete_temporaries(self, patience: Patience) -> Steps[None]:
        """Before the connection closes: a broker that dies of that very moment would keep them for our return."""
        ends = [node.end for node in list(self._temporaries.values())]
        base = self._bases.get("base")
        transport = self._transport
        if base is None or not ends or transport.is_current_thread:
            return
        for end in ends:
            transport.post(end.close)
        transport.hurry()
        yield Wait(base.gate, lambda: all(end.closed for end in ends) or transport.error, patience.for_sends_s)

    def _interrupted(self, interruption: BaseException) -> None:
        """A call was interrupted at any line."""
        if self._closed:
            self._transport.give_up()
            self._groups.give_up()
        self._transport.wake()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("The connection is closed.")
        if self._transport.error is not None:
            raise self._transport.error

    def _wake_others(self) -> None:
        """A session closes: its calls may wait at another one, or at a base."""
        self._wake_bases()
        self._groups.wake_who_connect()
        if self._sweeping:
            self._wake_sessions()

    def _wake_bases(self) -> None:
        for base in list(self._bases.values()):
            base.gate.open()

    def _wake_sessions(self) -> None:
        for session in list(self._sessions):
            session._channel.gate.open()

    def _wake_all(self) -> None:
        """The connection has ended: nobody else tells who waits on a session that the I/O thread does not know of.

        It has forgotten the session already, if a close was interrupted, or has never heard of it.
        """
        self._wake_sessions()
        self._wake_bases()

    def _forget_session(self, session: Any) -> None:
        with contextlib.suppress(ValueError):
            self._sessions.remove(session)

    # -- its listeners -----------------------------------------------------------------------------------

    def _on_exception(self, error: JMSError, usual: bool) -> Steps[None]:
        listener = self.exception_listener
        if listener is not None:
            yield Await(listener(error))
        elif not self._closed and not usual:
            log.warning("! %s", sentence(error))
        yield from NOTHING

    def _on_failover(self, event: FailoverEvent) -> None:
        self.failovers.append(event)
        del self.failovers[:-FAILOVERS_KEPT]
        if self._options.reports_failovers:
            how = "is restored to" if event.same_server else f"was lost to {event.old_host} and has switched to"
            self._transport.report(JMSError(f"The connection {how} {event.new_host}.", code=FAILOVER))
        listener = self.failover_listener
        if listener is not None:
            self._transport.notifier.call(calling(listener, event))
