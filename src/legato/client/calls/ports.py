"""Protocols of a session and a connection, as the calls see them; so the calls import neither."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from legato.client.calls.turn import Turn
from legato.client.calls.undertakings import Undertaking
from legato.client.failover.uri import Options
from legato.client.links.channel import Channel
from legato.client.links.completion import Completions
from legato.client.links.deliveries import Delivery
from legato.client.links.session_state import AcknowledgeMode, Transaction
from legato.client.links.subscriptions import Subscriptions
from legato.client.links.transport import Transport
from legato.client.messages.destinations import Temporary, TemporaryQueue, TemporaryTopic
from legato.client.messages.message import Message
from legato.client.steps import Steps
from legato.errors import JMSError

_Temporary = TypeVar("_Temporary", TemporaryQueue, TemporaryTopic)


class Dispatcher(Protocol):
    """Calls a session's message listeners."""

    current: Delivery | None
    closing: list[Any]
    """Consumers that their own listener has closed."""

    @property
    def is_current(self) -> bool:
        """Whether a listener is asking."""

    def wait_idle(self) -> Steps[None]:
        """Wait for the listener that runs now, unless it is the one that asks."""

    @property
    def ended(self) -> bool:
        """Whether no listener will be called any more, and none runs."""

    def stop(self) -> None:
        """End after the listener that runs now."""


class ConnectionPort(Protocol):
    """A connection, for its sessions and what they make."""

    _options: Options
    _transport: Transport
    _subscriptions: Subscriptions
    _user_id: str | None
    _world: Any
    _temporary_queue_type: type[TemporaryQueue]
    _temporary_topic_type: type[TemporaryTopic]

    @property
    def client_id(self) -> str | None:
        """The client's own name."""

    def _check_owned(self, destination: Temporary) -> None: ...
    def _new_temporary(self, kind: type[_Temporary]) -> Steps[_Temporary]: ...
    def _swept_subscriptions(self) -> Steps[Subscriptions]: ...
    def _open_transactions(self) -> set[bytes]: ...
    def _forget_session(self, session: Any) -> None: ...


class SessionPort(Protocol):
    """A session, for its producers, consumers, browsers and listeners."""

    acknowledge_mode: AcknowledgeMode
    _connection: ConnectionPort
    _channel: Channel
    _turn: Turn
    _transaction: Transaction | None
    _undertaking: Undertaking | None
    _untold: Transaction | None
    _completions: Completions
    _unacknowledged: dict[Delivery, None]
    _consumers: list[Any]
    _dispatcher: Dispatcher | None
    _prefetch: int

    # -- one user at a time, waiting, and what was interrupted ------------------------------------------

    def _used(self) -> AbstractContextManager[None]: ...
    def _misused(self) -> JMSError: ...
    def _wait(
        self, ready: Callable[[], object], what: str, timeout_s: float | None = None, *, resolved: bool = False
    ) -> Steps[bool]: ...
    def _wait_closed(self, closed: Callable[[], bool]) -> Steps[None]: ...
    def _wait_for_completions(self) -> Steps[None]: ...
    def _check_not_completing(self, what: str) -> None: ...
    def _hear(self, until: Callable[[], object] | None = None, timeout_s: float | None = None) -> Steps[bool]: ...
    def _interrupted(self, interruption: BaseException) -> None: ...
    def _raise_abort(self) -> Steps[None]: ...

    # -- received messages and listeners -----------------------------------------------------------------

    def _acknowledge(self, message: Message, *, typed: bool = False) -> Any: ...
    def _acknowledger(self, delivery: Delivery) -> Callable[..., Any]: ...
    def _presented_again(self, delivery: Delivery) -> None: ...
    def _give_back(self, deliveries: list[Delivery], why: str = "") -> Steps[None]: ...
    def _listeners_changed(self) -> None: ...

    # -- what it has made --------------------------------------------------------------------------------

    def _forget_producer(self, producer: Any) -> None: ...
    def _forget_consumer(self, consumer: Any) -> None: ...
