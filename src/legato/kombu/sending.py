"""Sender: a connection's session for publications, with the table of bindings that tells where they go."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, NamedTuple

from legato.client import Connection, DeliveryMode, Destination, Message, Session
from legato.errors import (
    IllegalStateError,
    InvalidDestinationError,
    ResourceAllocationError,
    TransactionRolledBackError,
)
from legato.kombu.bindings import BindingTable
from legato.kombu.envelope import Sending

DELETIONS_MAX = 3
"""How often a message is sent if its destination was deleted each time, which ends the link to it.

Celery deletes the queue of a reply once it has it, and makes it again for the next one: the link is the only thing that
is out of date. A queue that is deleted for good is made again by the message, as by the first that it ever had.
"""


_ELSEWHERE = "amqp:link:redirect"
"""Code of the error that a transaction cannot span two groups of brokers."""
_GONE = ("amqp:not-found", "amqp:resource-deleted")
"""Codes of a transaction that was rolled back because a destination was deleted."""


class MessageCopy(NamedTuple):
    """What goes to one queue."""

    destination: Destination
    message: Message
    how: Sending


class Sender:
    """Sends messages to one queue or to several; for one thread at a time.

    Args:
        connection: its sessions are this sender's.

    Attributes:
        table: the bindings that all processes see.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session = connection.create_session()
        self._producer = self._session.create_producer()
        self._transacted: Session | None = None
        self._is_spread = False
        """Whether what many listen to was in several groups of brokers, over which there is no transaction."""
        self.table = BindingTable(self._session)

    def send(self, copies: list[MessageCopy]) -> None:
        """Send a message to one queue, or to several in one transaction; returns when the broker has stored it.

        Raises:
            JMSError: the connection is gone for good, or the broker refuses it.
        """
        if len(copies) == 1:
            self._send_one(*copies[0])
            return
        if self._transacted is not None:
            try:
                self._send_all(copies)
                return
            except IllegalStateError as error:
                if error.code != _ELSEWHERE:
                    raise
                # It has sent to another group of brokers before, and is closed. A new session may send to any.
        self._send_all(copies)

    def _send_all(self, copies: list[MessageCopy]) -> None:
        session = self._transacted
        if session is None:
            session = self._transacted = self._connection.create_session(transacted=True)
        attempts = itertools.count(1)
        while True:
            with session.create_producer() as producer:
                try:
                    for copy in copies:
                        _send(producer, *copy)
                    session.commit()
                except TransactionRolledBackError as error:
                    if error.code is None:
                        continue  # a failover came: none of them was sent
                    if error.code not in _GONE:
                        raise ResourceAllocationError(str(error), code=error.code) from error
                    if next(attempts) == DELETIONS_MAX:
                        raise InvalidDestinationError(str(error), code=error.code) from error
                    continue
                except InvalidDestinationError:
                    session.rollback()
                    if next(attempts) == DELETIONS_MAX:
                        raise
                    continue
                except BaseException:
                    # What it has of this message must not go with the next one.
                    self._transacted = None
                    session.close()
                    raise
            return

    def broadcast(self, copies: list[MessageCopy]) -> None:
        """Send a transient message to whoever listens, in any group of brokers.

        Raises:
            JMSError: as `send`.
        """
        if not self._is_spread:
            try:
                return self.send(copies)
            except IllegalStateError as error:
                if error.code != _ELSEWHERE:
                    raise
                self._is_spread = True
        for copy in copies:
            self._send_one(*copy)
        return None

    def _send_one(self, destination: Destination, message: Message, how: Sending) -> None:
        for _ in range(DELETIONS_MAX - 1):
            with contextlib.suppress(InvalidDestinationError):
                return _send(self._producer, destination, message, how)
        _send(self._producer, destination, message, how)


def _send(producer: Any, destination: Destination, message: Message, how: Sending) -> None:
    producer.send(
        message,
        destination=destination,
        priority=how.priority,
        # A transient one too: what the broker has not confirmed may have been sent to a queue that was just deleted.
        delivery_mode=DeliveryMode.PERSISTENT,
        time_to_live_ms=how.time_to_live_ms,
        delivery_delay_ms=how.delivery_delay_ms,
    )
