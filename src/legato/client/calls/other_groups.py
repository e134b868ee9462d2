"""Other groups of brokers: the connections and sessions below an application's own, to which redirected links go.

A broker refuses the link of an address that another group serves, and says where that is. Then the session has another
one below it, on a connection to that group, and what the application gets is that session's. It does not see the
difference: both sessions have one turn and one gate, so that one thread at a time uses them and their listeners do not
run at once, and an acknowledgement covers what both have received. Only a transaction is one group's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from legato.client.calls.patience import Patience
from legato.client.calls.session_guard import session_closed
from legato.client.failover.discovery import hosts_of
from legato.client.failover.uri import Host
from legato.client.gate import Gate
from legato.client.links.redirection import RedirectedLinkError
from legato.client.links.transaction_outcome import Query
from legato.client.steps import Steps, Wait
from legato.errors import IllegalStateError, JMSError

MAPS_DIFFER_S = 5.0
"""So long two groups may send us to each other: their brokers take a new map within some seconds, not at once."""
PACE_S = 0.1
"""Between two tries meanwhile."""

_Made = TypeVar("_Made")


class _Attempt:
    """A call that connects to a group; others that want it wait for this one.

    Attributes:
        made: the connection, from when there is one that tries.
        error: why it cannot be had, if that is for all who want it.
    """

    __slots__ = ("error", "gate", "made")

    def __init__(self) -> None:
        self.gate = Gate()
        self.made: Any = None
        self.error: JMSError | None = None


class ConnectionGroups:
    """The connections below one, by the name of their group."""

    __slots__ = ("_above", "_below", "_connecting")

    def __init__(self, above: Any) -> None:
        self._above = above
        self._below: dict[str, Any] = {}
        self._connecting: dict[str, _Attempt] = {}
        """Those that calls wait for, one for each group: two would have one client id."""

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._below.values()))

    def wake_who_connect(self) -> None:
        """A session closes: its call may wait for a group of which no broker is there."""
        for attempt in list(self._connecting.values()):
            attempt.gate.open()
            if attempt.made is not None:
                attempt.made._transport.gate.open()

    def at(self, elsewhere: RedirectedLinkError, dropped: Callable[[], bool]) -> Steps[Any]:
        """The connection to the group that a broker named; it is made if there is none.

        Args:
            dropped: whether nobody wants it any more.

        Raises:
            RedirectedLinkError: the broker named none that can be reached in our way, or `discover` is off.
            JMSError: none of its brokers lets us in.
        """
        above = self._above
        hosts = hosts_of(elsewhere.info, tls=above._uri.tls) if above._options.discover else ()
        if not hosts:
            raise elsewhere
        group = elsewhere.info.get("hostname")
        name = str(group) if isinstance(group, str) and group else str(hosts[0])
        attempt = _Attempt()
        while True:
            found = self._open(name)
            if found is not None:
                transport = found._transport
                transport.post(transport.connecting.sent_again, hosts)
                return found
            try:
                first = self._connecting.setdefault(name, attempt)
                if first is attempt:
                    # Another call may have made it since.
                    return self._open(name) or (yield from self._connect(name, hosts, attempt, dropped))
            finally:
                self._over(name, attempt)
            yield Wait(
                first.gate,
                lambda first=first: (  # type: ignore[misc]
                    self._connecting.get(name) is not first or self._open(name) or above._closed or dropped()
                ),
            )
            if first.error is not None:
                raise first.error
            if above._closed:
                raise IllegalStateError("The connection is closed.")
            if dropped():
                raise session_closed("connect to another group of brokers")

    def _open(self, name: str) -> Any:
        found = self._below.get(name)
        return None if found is None or found._transport.error is not None else found

    def _over(self, name: str, attempt: _Attempt) -> None:
        """It connects no more: others have what it made, or try themselves."""
        if self._connecting.get(name) is attempt:
            self._connecting.pop(name, None)
            attempt.gate.open()

    def _connect(
        self, name: str, hosts: tuple[Host, ...], attempt: _Attempt, dropped: Callable[[], bool]
    ) -> Steps[Any]:
        above = self._above
        options = msgspec.structs.replace(above._options, vhost=name, client_id=above._client_id)
        uri = msgspec.structs.replace(above._uri, hosts=hosts, options=options)
        made = attempt.made = type(above)(uri, above._tls, above._token, above)
        try:
            yield from made._connect(lambda: above._closed or dropped())
            self._below[name] = made
        except BaseException as error:
            if isinstance(error, JMSError) and error is made._transport.error:
                attempt.error = error
            if self._below.get(name) is not made:
                made._transport.give_up()
            raise
        if above._closed:
            made._transport.give_up()
            raise IllegalStateError("The connection is closed.")
        if above._transport.started:
            made.start()
        return made

    def start(self) -> None:
        """Let messages come from all of them."""
        for below in self._alive():
            # It may be lost for good just now.
            with contextlib.suppress(JMSError):
                below.start()

    def stop(self) -> Steps[None]:
        """Hold messages of all of them back."""
        for below in self._alive():
            with contextlib.suppress(JMSError):
                yield from below._stop()

    def _alive(self) -> list[Any]:
        """Those that are not gone for good, of which the exception listener has heard."""
        return [below for below in self if below._transport.error is None]

    def close_within(self, patience: Patience) -> Steps[None]:
        """Close all of them."""
        for below in self:
            yield from below._close_within(patience)

    def give_up(self) -> None:
        """Nobody waits for their end any more, but they end."""
        for below in self:
            below._closed = True
            below._transport.give_up()
        self.wake_who_connect()


class SessionGroups:
    """The sessions below one.

    Attributes:
        bound: the one that has the transactions, if they are another group's.
    """

    __slots__ = ("_above", "_below", "_session", "bound")

    def __init__(self, session: Any, above: Any) -> None:
        self._session = session
        self._above = above
        self._below: dict[int, Any] = {}
        self.bound: Any = None

    def join(self, above: Any) -> None:
        """Acknowledge together with the session above."""
        if above is not None:
            self._session._acknowledgements.join(above._acknowledgements)

    def at(self, elsewhere: RedirectedLinkError) -> Steps[Any]:
        """The session below this one with the group that a broker named.

        Raises:
            RedirectedLinkError: it cannot be followed.
            IllegalStateError: the session is transacted, and works with another group already.
            JMSError: none of the group's brokers lets us in.
        """
        session = self._session
        transacted = session.acknowledge_mode == 0
        if transacted and (self._above is not None or self._is_in_use()):
            raise IllegalStateError(
                f"A transaction cannot span two groups of brokers. {elsewhere} "
                "Use another transacted session for it, or pin both addresses to one group.",
                code=elsewhere.code,
                linked=elsewhere,
            )
        if self._above is not None:
            # Two brokers that send us to each other have different maps.
            raise elsewhere
        connection = yield from session._connection._groups.at(elsewhere, lambda: session._guard.closed)
        below = self._session_in(connection)
        if transacted and self.bound is None:
            self.bound = below
            session._transactions.bound = below._transactions
            for producer in list(session._members.producers):
                producer._move(below)
        return below

    def _unbind(self) -> None:
        """The group that was to have the transactions has served nothing yet."""
        below, self.bound = self.bound, None
        if below is not None:
            self._session._transactions.bound = None
            for producer in list(below._members.producers):
                producer._move(self._session)

    def follow_redirects(
        self,
        what: str,
        here: Callable[[], Steps[_Made]],
        there: Callable[[Any], Steps[_Made]],
        *,
        browses: bool = False,
    ) -> Steps[_Made]:
        """What is made in this session, or, if another group of brokers has the destination, in one below.

        If the group there sends us on, the brokers have different maps: one of them has a new one, and the others are
        about to take it. Then all is tried again for a while.

        Args:
            what: the call is to do, for errors.
            here: makes it in this session.
            there: makes it in a session below this one.

        Raises:
            RedirectedLinkError: it cannot be followed, or the maps did not agree in time.
            IllegalStateError: the session is transacted, and works with another group already; or it is closed.
            JMSError: the link was refused, or none of the group's brokers lets us in.
        """
        guard = self._session._guard
        over_s = 0.0
        while True:
            try:
                return (yield from here())
            except RedirectedLinkError as error:
                elsewhere = error
            bound = self.bound
            below = yield from (self.browsing_at(elsewhere) if browses else self.at(elsewhere))
            over_s = over_s or time.monotonic() + MAPS_DIFFER_S
            try:
                return (yield from there(below))
            except BaseException as error:
                if self.bound is not bound and not below._groups._is_in_use():
                    self._unbind()
                if not isinstance(error, JMSError):
                    raise
                back = error if isinstance(error, RedirectedLinkError) else error.linked
                if not isinstance(back, RedirectedLinkError):
                    raise
                if time.monotonic() >= over_s:
                    # There are no two addresses of which a transaction had to be told.
                    raise (back if bound is None else error) from None
            yield from guard.wait(lambda: guard.closed, what, PACE_S)
            guard.check_open()

    def outcome(self, transaction_id: bytes) -> Steps[bool | None]:
        """What became of a transaction of any group; None if nobody knows.

        The group that has this session's transactions is asked first, then the one that brokers say has made it. If
        they do not say, the groups are asked to which there are connections: it may have been made before its broker
        was one of a group, or while that had another name.

        Raises:
            IllegalStateError: the transaction is one that is open here.
            JMSError: the connection is gone for good, or none of the group's brokers lets us in.
        """
        session = self._session
        connections = session._connection._groups
        asked: list[Any] = []
        elsewhere: RedirectedLinkError | None = None
        for one in (session,) if self.bound is None else (self.bound, session):
            if asked and one._channel.error is not None:
                continue
            asked.append(one._connection)
            query = yield from self._asked(one, transaction_id)
            if query.committed is not None:
                return query.committed
            elsewhere = query.elsewhere or elsewhere
        named: tuple[Any, ...] = tuple(connections)
        if elsewhere is not None:
            if elsewhere.info["hostname"] in [each.group for each in asked]:
                return None
            try:
                named = ((yield from connections.at(elsewhere, lambda: session._guard.closed)),)
            except RedirectedLinkError:
                return None
        for connection in named:
            if connection in asked or connection._transport.error is not None:
                continue
            query = yield from self._asked(self._session_in(connection), transaction_id)
            if query.committed is not None:
                return query.committed
        return None

    def _asked(self, session: Any, transaction_id: bytes) -> Steps[Query]:
        with self._session._guard.keeping_turn():
            query: Query = yield from session._transactions.ask(transaction_id)
            return query

    def browsing_at(self, elsewhere: RedirectedLinkError) -> Steps[Any]:
        """Likewise for a browser, which is in no transaction.

        Raises:
            RedirectedLinkError: it cannot be followed.
            JMSError: none of the group's brokers lets us in.
        """
        if self._above is not None:
            raise elsewhere
        session = self._session
        connection = yield from session._connection._groups.at(elsewhere, lambda: session._guard.closed)
        return self._session_in(connection)

    def _session_in(self, connection: Any) -> Any:
        below = self._below.get(id(connection))
        if below is None:
            self._forget_ended()
            below = self._below[id(connection)] = connection._create_below(self._session)
        return below

    def _forget_ended(self) -> None:
        """Those whose connection is gone for good, and of which the application has nothing any more."""
        for key, below in list(self._below.items()):
            dispatcher = below._listeners.dispatcher
            if below._channel.error is not None and below._is_ended and below is not self.bound:
                if dispatcher is not None:
                    dispatcher.stop()
                self._below.pop(key, None)

    def _is_in_use(self) -> bool:
        """Whether links of its own may be part of a transaction, or what closed ones have sent and received is."""
        session = self._session
        members = session._members
        if members.consumers or members.closing or any(each._routes for each in members.producers):
            return True
        transactions = session._transactions
        ended = session._undertakings.current is None and transactions.untold is None
        return not ended or transactions.current.did_work

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._below.values()))
