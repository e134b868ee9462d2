"""Sender pool for initiations: sessions lent to one thread at a time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from legato.amqp.names import LINK_REDIRECT
from legato.client import Session
from legato.errors import (
    FlowBackendError,
    FlowError,
    FlowInDoubtError,
    FlowMessageSendError,
    JMSError,
    TransactionRolledBackError,
)
from legato.flows.model.context import Context
from legato.flows.model.envelope import Outgoing
from legato.flows.model.stage_run import continued
from legato.flows.model.stash import read_stash
from legato.flows.model.wire import Sender

if TYPE_CHECKING:
    from legato.flows.starting.service_initiator import ServiceInitiator


IN_DOUBT = "IN_DOUBT"


class Send(Protocol):
    """Takes messages in place of a broker."""

    def __call__(self, outgoing: Sequence[Outgoing], *, once: bool = False) -> None: ...


ATTEMPTS_MAX = 3
"""Of a commit that a failover rolled back: nothing was committed, so the same may be sent again."""


class Initiator:
    """A pool of sessions for initiators, each lent to one thread at a time."""

    def __init__(self, flows: ServiceInitiator) -> None:
        self._flows = flows
        self._lock = threading.Lock()
        self._free: list[tuple[Session, Sender]] = []
        self._instead: Send | None = None

    def redirect(self, send: Send) -> None:
        """Hand what is sent to `send` and not to a broker."""
        self._instead = send

    @property
    def is_away(self) -> bool:
        """Whether there is no broker at the moment."""
        return self._instead is None and not self._flows.is_connected

    def send(
        self, outgoing: Sequence[Outgoing], *, once: bool = False, before_commit: Callable[[], None] | None = None
    ) -> None:
        """Send all of it in one transaction, or nothing.

        Args:
            once: whether somebody may have sent the same before.
            before_commit: commits a database when nothing else can fail but the brokers (CONTRACT D4).

        Raises:
            FlowBackendError: nothing was committed.
            FlowInDoubtError: the connection is gone for good, and whether the messages are sent is not known.
            FlowMessageSendError: `before_commit` was done, and the messages are not sent (CONTRACT D7).
        """
        if not outgoing:
            if before_commit is not None:
                before_commit()
            return
        first = Once(before_commit)
        if self._instead is not None:
            first()
            self._instead(outgoing, once=once)
            return
        attempts = itertools.count(1)
        is_new = False
        while True:
            try:
                self._send(outgoing, once, first, is_new=is_new)
                return
            except TransactionRolledBackError as error:
                if next(attempts) == ATTEMPTS_MAX:
                    raise first.failure(error) from error
            except JMSError as error:
                if is_new or error.code != LINK_REDIRECT:
                    raise first.failure(error) from error
                # Nothing was sent: the session had sent to another group of brokers before. A new one may send to any.
                is_new = True

    @contextmanager
    def unstash(self, stash: bytes) -> Iterator[Context[Any]]:
        """See `Flows.unstash`."""
        stashed = read_stash(stash)
        context = continued(stashed, self._flows.registry, self._flows.clock.now_us())
        yield context
        self.send(context.outgoing)

    def close(self) -> None:
        """Close the sessions that nobody uses."""
        with self._lock:
            free, self._free = self._free, []
        for session, _ in free:
            session.close()

    def _send(self, outgoing: Sequence[Outgoing], once: bool, before_commit: Once, *, is_new: bool) -> None:
        session, sender = self._new() if is_new else self._borrow()
        try:
            for one in outgoing:
                sender.send(one, once=once)
            if session.transaction_doomed:
                raise TransactionRolledBackError("A failover came before anything was committed.")
            before_commit()
            session.commit()
        except TransactionRolledBackError:
            session.rollback()
            self._give_back(session, sender)
            raise
        except BaseException:
            session.close()
            raise
        self._give_back(session, sender)

    def _borrow(self) -> tuple[Session, Sender]:
        while True:
            with self._lock:
                if not self._free:
                    break
                session, sender = self._free.pop()
            with suppress(JMSError):
                # It raises if the session is gone for good.
                if not session.transaction_doomed:
                    return session, sender
            with suppress(JMSError):
                session.close()
        return self._new()

    def _new(self) -> tuple[Session, Sender]:
        session = self._flows.connection().create_session(transacted=True)
        return session, Sender(session, self._flows.prefix)

    def _give_back(self, session: Session, sender: Sender) -> None:
        with self._lock:
            self._free.append((session, sender))


class Once:
    """The commit of a database before that of messages, which may be tried again."""

    def __init__(self, commit: Callable[[], None] | None) -> None:
        self._commit = commit
        self._is_done = False

    def __call__(self) -> None:
        """Commit, unless that has been done."""
        if self._commit is not None and not self._is_done:
            self._commit()
            self._is_done = True

    def failure(self, error: JMSError) -> FlowError:
        """The initiator's error if the messages cannot be sent."""
        if self._is_done:
            return FlowMessageSendError(
                f"The database has been committed, and the messages were not sent, so the flows never start: {error}"
            )
        if error.code == IN_DOUBT:
            return FlowInDoubtError(f"Whether the flows begin is not known: {error}")
        return FlowBackendError(f"The flows were not begun, and nothing was committed: {error}")
