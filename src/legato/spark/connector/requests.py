"""Client of the broker's management address, on a connection that is kept through failovers."""

from __future__ import annotations

import atexit
import json
import secrets
import threading
import time
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow.flight as flight

from legato.amqp.names import MANAGEMENT_ADDRESS
from legato.bulk.requests import HOLDER_HEADER, TICKET_HEADER
from legato.bulk.tickets import digest_of_holder
from legato.client import Connection, ConnectionFactory, MessageConsumer, MessageProducer, Session, TextMessage
from legato.client.failover.uri import Uri, parse_uri, short_wait
from legato.client.management import url_of_group
from legato.core.refusals import STILL_COMMITTING
from legato.errors import JMSError

STILL_COMMITTING_PAUSE_S = 1.0
ROUNDS = 300
"""Rounds through the hosts before a lost broker is given up: some five minutes."""
_OK = 200
_MISSING = 404
_LOCKED = 409


class Patience(msgspec.Struct, frozen=True):
    """Retry limits: the defaults survive a takeover of ten minutes."""

    answer_wait_s: float = 10.0
    """How long an answer is awaited before it is asked again."""
    retries: int = 60
    """How often it is asked again, or an interrupted range is read on."""
    pause_s: float = 0.5
    """How long is waited before a range is read on."""


class Fenced(JMSError):
    """Another run of the stream has its subscription since; this one must stop."""


class Missing(JMSError):
    """What is asked for is not there: a queue, a subscription or an assignment."""


class Away(JMSError):
    """No broker serves just now: whoever asks again waits for one."""


class Requests:
    """Asks one broker, primary or backup, whichever serves. For one thread at a time; others wait.

    Args:
        url: of the broker; where there are groups of brokers it names the one that was reached, from then on.
        patience: retry limits.
        is_known: whether the broker has been reached before, by another process of the query: it is waited for as
            long as any first connection waits (`connect_wait_s`), not only as long as for one that may be wrong.
    """

    def __init__(self, url: str, patience: Patience | None = None, *, is_known: bool = False) -> None:
        self.url = url
        self.patience = patience or Patience()
        self._is_known = is_known
        self.uri: Uri = parse_uri(url)
        self._secret = secrets.token_bytes(32)
        """Shown with each ticket, which says its digest: no other process can use a ticket of this one."""
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._connecting: Connection | None = None
        """A connection whose links are being opened: a broker that is gone keeps that waiting for minutes."""
        self._closed = False
        self._session: Session
        self._answers: MessageConsumer
        self._producer: MessageProducer
        self._number = 0

    def ask(self, operation: str, type: str, name: str = "", **arguments: str | int | bool) -> Any:
        """The result of a request. It is asked again if a failover took the answer away.

        Raises:
            Fenced: the assignment it is about is another's.
            Missing: what it is about is not there.
            JMSError: the broker refuses it, or none answers.
        """
        with self._lock:
            for _ in range(self.patience.retries + 1):
                if self._closed:
                    raise JMSError(f"The requests to {self.uri} are closed.")
                try:
                    answer = self._exchange({"operation": operation, "type": type, "name": name, **arguments})
                except JMSError:
                    # The connection is gone for good, or of no use here; whoever asks again gets another one.
                    connection, self._connection = self._connection, None
                    if connection is not None:
                        with suppress(JMSError):
                            connection.close()
                    raise
                if answer is None:
                    continue
                if answer.properties["statusDescription"] != STILL_COMMITTING:
                    return _result(answer)
                # Its answer came too late for us: the broker, or its disk, is slow.
                time.sleep(STILL_COMMITTING_PAUSE_S)
        waited_s = (self.patience.retries + 1) * self.patience.answer_wait_s
        raise JMSError(f"The broker at {self.uri} did not answer within {waited_s:g} s.")

    def ask_ticket(self, type: str, name: str, **arguments: str | int | bool) -> dict[str, Any]:
        """A ticket for this process; raises as `ask` does."""
        told: dict[str, Any] = self.ask("ticket", type, name, holder=digest_of_holder(self._secret).hex(), **arguments)
        return told

    def show(self, ticket: bytes) -> flight.FlightCallOptions:
        """How a call shows a ticket, and that it is this process's."""
        return flight.FlightCallOptions(headers=[(TICKET_HEADER, ticket), (HOLDER_HEADER, self._secret)])

    @property
    def host(self) -> str:
        """Where the broker is that serves now.

        Raises:
            Away: it has gone since it answered.
        """
        connection = self._connection
        host = None if connection is None else connection.host
        if host is None:
            raise Away(f"No broker of {self.uri} serves now.", code="UNBLOCKED")
        return host

    @property
    def group(self) -> str:
        """The group of brokers that is asked; empty if there are none."""
        with self._lock:
            self._open()
            return self._connection.group if self._connection is not None else ""

    def close(self) -> None:
        """Close the connection, for good; a request that another thread waits for raises, and so do later ones."""
        self._closed = True
        for connection in (self._connection, self._connecting):
            if connection is not None:
                connection.close()
        self._connection = None

    def _exchange(self, said: dict[str, Any]) -> TextMessage | None:
        self._open()
        self._number += 1
        asked = TextMessage()
        asked.correlation_id = correlation_id = f"{self._number}"
        for key, value in said.items():
            asked.set_property(key, value)
        self._producer.send(asked)
        while (answer := self._answers.receive(timeout_s=self.patience.answer_wait_s)) is not None:
            # An answer that comes late belongs to a request that was asked again.
            if answer.correlation_id == correlation_id:
                assert isinstance(answer, TextMessage)
                return answer
        return None

    def _open(self) -> None:
        if self._connection is not None:
            return
        # A takeover must not end a query that runs, because it has to connect anew in that moment.
        wait = {} if self._is_known else short_wait(self.url)
        connection = self._connecting = ConnectionFactory(
            self.url, reconnect_attempts=ROUNDS, **wait
        ).create_connection()
        try:
            if self._closed:
                connection.close()  # `close` looked before there was one
            self._session = connection.create_session()
            address = self._session.create_queue(MANAGEMENT_ADDRESS)
            self._answers = self._session.create_consumer(address)
            self._producer = self._session.create_producer(address)
            connection.start()
        except BaseException:
            connection.close()
            raise
        finally:
            self._connecting = None
        self._connection = connection
        self._is_known = True
        if connection.group and not self.uri.options.vhost:
            # A URL may name brokers of several groups: the next connection is to the same one.
            self.url = url_of_group(self.url, connection.group)
            self.uri = parse_uri(self.url)


_shared: dict[tuple[str, Patience], Requests] = {}


def shared_requests(url: str, patience: Patience | None = None, *, is_known: bool = False) -> Requests:
    """The requests of this process to a broker: Spark's workers serve many tasks; arguments as of `Requests`."""
    key = url, patience or Patience()
    requests = _shared.get(key)
    if requests is None:
        requests = _shared[key] = Requests(*key, is_known=is_known)
    return requests


def close_shared() -> None:
    """Close what this process shares; the next request connects again."""
    while _shared:
        _, requests = _shared.popitem()
        requests.close()


atexit.register(close_shared)


def _result(answer: TextMessage) -> Any:
    status = answer.properties["statusCode"]
    if status == _OK:
        return json.loads(answer.body or "{}")
    error = Fenced if status == _LOCKED else Missing if status == _MISSING else JMSError
    raise error(str(answer.properties["statusDescription"]))
