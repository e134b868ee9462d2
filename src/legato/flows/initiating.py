"""Sending what begins flows, from whatever thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from legato.client import Session
from legato.errors import FlowBackendError, JMSError, TransactionRolledBackError
from legato.flows.envelope import Outgoing
from legato.flows.wire import Sender

if TYPE_CHECKING:
    from legato.flows.service import Flows

ATTEMPTS_MAX = 3
"""Of a commit that a failover rolled back: nothing was committed, so the same may be sent again."""


class Initiator:
    """Sessions for those who begin flows, lent to one thread at a time."""

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        self._lock = threading.Lock()
        self._free: list[tuple[Session, Sender]] = []

    def send(self, outgoing: Sequence[Outgoing]) -> None:
        """Send all of it in one transaction, or nothing.

        Raises:
            FlowBackendError: nothing was committed.
        """
        if not outgoing:
            return
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                self._send(outgoing)
                return
            except TransactionRolledBackError as error:
                if attempt == ATTEMPTS_MAX:
                    raise FlowBackendError(f"The flows were not begun, and nothing was committed: {error}") from error
            except JMSError as error:
                raise FlowBackendError(f"The flows were not begun, and nothing was committed: {error}") from error

    def close(self) -> None:
        """Close the sessions that nobody uses."""
        with self._lock:
            free, self._free = self._free, []
        for session, _ in free:
            session.close()

    def _send(self, outgoing: Sequence[Outgoing]) -> None:
        session, sender = self._borrow()
        try:
            for one in outgoing:
                sender.send(one)
            session.commit()
        except TransactionRolledBackError:
            self._give_back(session, sender)
            raise
        except BaseException:
            session.close()
            raise
        self._give_back(session, sender)

    def _borrow(self) -> tuple[Session, Sender]:
        with self._lock:
            if self._free:
                return self._free.pop()
        session = self._flows.connection().create_session(transacted=True)
        return session, Sender(session, self._flows.prefix)

    def _give_back(self, session: Session, sender: Sender) -> None:
        with self._lock:
            self._free.append((session, sender))
