"""A visitor's link to the brokers: one connection that follows the primary, and requests by it from many threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from legato.client import Connection
from legato.client.management import PAGE_ROWS, Requester
from legato.console.brokers import Brokers
from legato.errors import JMSError, JMSSecurityError

ANSWER_WAIT_S = 5.0
"""A page that a broker does not answer in this time says so."""
CHANGE_WAIT_S = 60.0
"""What changes something may take longer, as a move out of a long queue does."""
ROWS_MAX = 20_000
"""Of queues and the like that are looked at; a page says when there are more."""
RETRY_AFTER_S = 1.0
"""While no broker can be reached nobody tries more often than that."""
T = TypeVar("T")


class BrokerLink:
    """A connection for requests, browsers and transactions; made when it is needed, and again when it is lost.

    Args:
        brokers: where they are.
        user, password: as the visitor gave them; None: as the URL has them.
    """

    def __init__(self, brokers: Brokers, user: str | None = None, password: str | None = None) -> None:
        self._brokers = brokers
        self._login = (user, password)
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._free: list[Requester] = []
        self._failed: tuple[float, JMSError] | None = None
        self._closed = False

    def connection(self) -> Connection:
        """The connection, started.

        Raises:
            JMSSecurityError: the brokers refused the login.
            JMSError: no broker can be reached.
        """
        with self._lock:
            if self._closed:
                raise JMSError("This visit is over.")
            if self._connection is None:
                if self._failed is not None and time.monotonic() - self._failed[0] < RETRY_AFTER_S:
                    raise JMSError(str(self._failed[1]))
                try:
                    connection = self._brokers.factory().create_connection(*self._login)
                except JMSSecurityError:
                    raise
                except JMSError as error:
                    self._failed = (time.monotonic(), error)
                    raise
                connection.exception_listener = lambda error: self._lost(connection)
                connection.start()
                self._connection, self._failed = connection, None
            return self._connection

    def _lost(self, connection: Connection) -> None:
        """It is gone for good: the next request makes another one."""
        with self._lock:
            if self._connection is connection:
                self._connection, self._free = None, []

    @contextmanager
    def _requester(self) -> Iterator[Requester]:
        connection = self.connection()
        with self._lock:
            requester = self._free.pop() if self._free else None
        if requester is None:
            requester = Requester(connection, "the broker")
        try:
            yield requester
        except JMSError as error:
            if requester.answered:
                self._give_back(connection, requester)
            else:
                requester.close()
            raise error
        self._give_back(connection, requester)

    def _give_back(self, connection: Connection, requester: Requester) -> None:
        with self._lock:
            if self._connection is connection:
                self._free.append(requester)
                return
        requester.close()

    def request(self, operation: str, type: str, name: str = "", **arguments: str | float) -> Any:
        """See `legato.client.management.request`; what only looks is asked once more if a takeover came between."""
        looks = operation in ("read", "query")
        answered = False
        try:
            with self._requester() as requester:
                try:
                    return requester.request(
                        operation, type, name, arguments, ANSWER_WAIT_S if looks else CHANGE_WAIT_S
                    )
                finally:
                    answered = requester.answered
        except JMSSecurityError:
            raise
        except JMSError:
            if not looks or answered:
                raise
        with self._requester() as requester:
            return requester.request(operation, type, name, arguments, ANSWER_WAIT_S)

    def request_apart(self, operation: str, type: str) -> Any:
        """A request by a connection of its own, gone with the answer: a switchover waits for who asked for it."""
        with self._brokers.factory().create_connection(*self._login) as connection:
            connection.start()
            return Requester(connection, "the broker").request(operation, type, "", {}, CHANGE_WAIT_S)

    def rows(self, type: str) -> list[dict[str, Any]]:
        """All nodes of a type, or all connections, up to `ROWS_MAX`."""
        found: list[dict[str, Any]] = []
        while len(found) < ROWS_MAX:
            page = self.request("query", type, offset=len(found), count=2 * PAGE_ROWS)
            found += page["results"]
            if not page["more"]:
                break
        return found

    def close(self) -> None:
        """End the connection; may be called again."""
        with self._lock:
            connection, self._connection, self._free, self._closed = self._connection, None, [], True
        if connection is not None:
            connection.close()


class Recent:
    """What was asked last, for whoever asks again soon: many pages and tabs cost the brokers no more than one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asking: dict[str, threading.Lock] = {}
        self._known: dict[str, tuple[float, Any]] = {}

    def get(self, key: str, age_max_s: float, ask: Callable[[], T]) -> T:
        """What is known under a name if it is not older than that, or else what `ask` returns; one asks at a time."""
        with self._lock:
            asking = self._asking.setdefault(key, threading.Lock())
        with asking:
            known = self._known.get(key)
            if known is None or self._clock() - known[0] > age_max_s:
                answer = ask()
                self._known[key] = known = (self._clock(), answer)
            value: T = known[1]
            return value

    def forget(self) -> None:
        """Something was changed."""
        self._known.clear()
