"""Protocols of a session and a connection, as the calls see them; so the calls import neither."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from legato.client.calls.session_acknowledgements import SessionAcknowledgements
from legato.client.calls.session_guard import SessionGuard
from legato.client.calls.session_listeners import SessionListeners
from legato.client.calls.session_members import SessionMembers
from legato.client.calls.session_transactions import SessionTransactions
from legato.client.calls.undertakings import Undertakings
from legato.client.failover.uri import Options
from legato.client.links.channel import Channel
from legato.client.links.subscriptions import Subscriptions
from legato.client.links.transport import Transport
from legato.client.messages.destinations import Temporary, TemporaryQueue, TemporaryTopic
from legato.client.steps import Steps

_Temporary = TypeVar("_Temporary", TemporaryQueue, TemporaryTopic)


class ConnectionPort(Protocol):
    """A connection, for its sessions and what they make."""

    _options: Options
    _transport: Transport
    _subscriptions: Subscriptions
    _user_id: str | None
    _world: Any
    _groups: Any
    """Its connections below it, to other groups of brokers: `other_groups.ConnectionGroups`."""
    _temporary_queue_type: type[TemporaryQueue]
    _temporary_topic_type: type[TemporaryTopic]

    @property
    def client_id(self) -> str | None:
        """The client's own name."""

    def _check_owned(self, destination: Temporary) -> None: ...
    def _new_temporary(self, kind: type[_Temporary], guard: SessionGuard) -> Steps[_Temporary]: ...
    def _swept_subscriptions(self, asking: SessionGuard) -> Steps[Subscriptions]: ...
    def _open_transactions(self) -> set[bytes]: ...
    def _forget_session(self, session: Any) -> None: ...
    def _wake_others(self) -> None: ...


class SessionPort(Protocol):
    """A session's parts, for its producers, consumers, browsers and listeners."""

    _connection: ConnectionPort
    _channel: Channel
    _guard: SessionGuard
    _undertakings: Undertakings
    _members: SessionMembers[Any]
    _listeners: SessionListeners
    _transactions: SessionTransactions
    _acknowledgements: SessionAcknowledgements
    _groups: Any
    """Its sessions below it, with other groups of brokers: `other_groups.SessionGroups`."""

    def _interrupted(self, interruption: BaseException) -> None: ...
