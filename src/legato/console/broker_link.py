"""A visitor's link to the brokers: connections that follow the primary, and requests by them from many threads."""

from __future__ import annotations

import math
import ssl
import threading
import time
from collections.abc import Callable
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
REFUSED_AGAIN_AFTER_S = 15.0
"""A login of the console's own that was refused is tried again then: its password file may have another one."""
LOOKS = ("read", "query")
"""Operations that change nothing."""
T = TypeVar("T")


class Unanswered(JMSError):
    """Nobody knows whether the broker did what it was asked for."""


class _Line:
    """One connection, and one request at a time by it: a broker sends all answers of a connection to one receiver.

    Args:
        connect: makes it.
        again_after_s: when a login that was refused is tried again; a broker stops listening to who does so too often.

    Attributes:
        is_refused: whether the login was refused when it was tried last.
    """

    def __init__(self, connect: Callable[[], Connection], again_after_s: float) -> None:
        self._connect = connect
        self._again_after_s = again_after_s
        self.is_refused = False
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._connection: Connection | None = None
        self._requester: Requester | None = None
        self._failed: tuple[float, JMSError] | None = None
        self._closed = False

    def connection(self) -> Connection:
        """The connection, started; see `BrokerLink.connection`."""
        with self._lock:
            if self._closed:
                raise JMSError("This visit is over.")
            if self._connection is None:
                after_s = self._again_after_s if self.is_refused else RETRY_AFTER_S
                if self._failed is not None and time.monotonic() - self._failed[0] < after_s:
                    raise (JMSSecurityError if self.is_refused else JMSError)(str(self._failed[1]))
                self.is_refused = False
                try:
                    connection = self._connect()
                except JMSError as error:
                    self._failed = (time.monotonic(), error)
                    # A certificate that is not trusted says nothing of the login: it may be renewed.
                    self.is_refused = isinstance(error, JMSSecurityError) and not isinstance(error.linked, ssl.SSLError)
                    raise
                connection.exception_listener = lambda error: self._lost(connection)
                connection.start()
                self._connection, self._failed = connection, None
            return self._connection

    def _lost(self, connection: Connection) -> None:
        """It is gone for good: the next request makes another one."""
        with self._lock:
            if self._connection is connection:
                self._connection = self._requester = None

    def request(
        self, operation: str, type: str, name: str, arguments: dict[str, str | float], wait_s: float
    ) -> tuple[Any, JMSError | None, bool]:
        """The answer to a request, or why there is none, and whether the broker answered at all."""
        if not self._asking.acquire(timeout=wait_s):
            return None, JMSError(f"The broker did not answer others within {wait_s:g} s."), False
        try:
            try:
                requester = self._requester_now()
            except JMSError as error:
                return None, error, False
            try:
                return requester.request(operation, type, name, arguments, wait_s), None, True
            except JMSError as error:
                if not requester.answered:
                    # An answer that comes late must not be taken for that to another request.
                    self._drop(requester)
                return None, error, requester.answered
        finally:
            self._asking.release()

    def _requester_now(self) -> Requester:
        connection = self.connection()
        with self._lock:
            known = self._requester if self._connection is connection else None
        if known is not None:
            return known
        made = Requester(connection, "the broker")
        with self._lock:
            if self._connection is connection:
                self._requester = made
        return made

    def _drop(self, requester: Requester) -> None:
        with self._lock:
            if self._requester is requester:
                self._requester = None
        requester.close()

    def close(self) -> None:
        """End the connection; may be called again."""
        with self._lock:
            connection, self._connection, self._requester, self._closed = self._connection, None, None, True
        if connection is not None:
            connection.close()


class BrokerLink:
    """Connections for requests, browsers and transactions; made when they are needed, and again when they are lost.

    What changes something goes by one of its own: it may take long, and pages do not wait for it.

    Args:
        brokers: where they are.
        user, password: as the visitor gave them; None: as the URL has them.
    """

    def __init__(self, brokers: Brokers, user: str | None = None, password: str | None = None) -> None:
        self._brokers = brokers
        self._login = (user, password)
        # What a visitor gave does not become right.
        again_after_s = REFUSED_AGAIN_AFTER_S if user is None else math.inf
        self._looks = _Line(self._connect, again_after_s)
        self._changes = _Line(self._connect, again_after_s)

    def _connect(self) -> Connection:
        return self._brokers.factory().create_connection(*self._login)

    @property
    def is_refused(self) -> bool:
        """Whether brokers do not take the login any more."""
        return self._looks.is_refused or self._changes.is_refused

    def connection(self) -> Connection:
        """The connection, started, for browsers and transactions.

        Raises:
            JMSSecurityError: the brokers refused the login.
            JMSError: no broker can be reached.
        """
        return self._looks.connection()

    def request(self, operation: str, type: str, name: str = "", **arguments: str | float) -> Any:
        """See `legato.client.management.request`; what only looks is asked once more if a takeover came between."""
        looks = operation in LOOKS
        line, wait_s = (self._looks, ANSWER_WAIT_S) if looks else (self._changes, CHANGE_WAIT_S)
        result, error, answered = line.request(operation, type, name, arguments, wait_s)
        if error is not None and looks and not answered and not isinstance(error, JMSSecurityError):
            result, error, answered = line.request(operation, type, name, arguments, wait_s)
        if error is None:
            return result
        if answered or isinstance(error, JMSSecurityError):
            raise error
        raise Unanswered(str(error)) from error

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
        """End the connections; may be called again."""
        self._looks.close()
        self._changes.close()


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
