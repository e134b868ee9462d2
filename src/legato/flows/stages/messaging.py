"""The messaging half of a stage's transaction, over a transacted session."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from legato.client import Session
from legato.clock import Clock
from legato.errors import IllegalCallFlowError, JMSError, TransactionRolledBackError
from legato.flows.model.envelope import Outgoing
from legato.flows.model.wire import Sender
from legato.flows.stages.records import Recorder, RunRecord

_INVALID_FIELD = "amqp:invalid-field"
"""Code of the refusal of a name, or of something else in a message, that no broker takes."""


class SessionMessaging:
    """See `transactions.Messaging`.

    Args:
        session: transacted; what it has received is committed with what is sent here.
        records_s: how long records of runs are kept, in seconds; 0 for none.
        answer: sends replies that another group of brokers has to have.
    """

    def __init__(
        self,
        session: Session,
        prefix: str,
        clock: Clock,
        records_s: float = 0.0,
        answer: Callable[[Sequence[Outgoing]], None] = lambda replies: None,
    ) -> None:
        self._session = session
        self.apart: list[Outgoing] = []
        """Replies that are sent when the open transaction is committed."""
        self._sender = Sender(session, prefix, self.apart)
        self._answer = answer
        self._recorder = Recorder(session, prefix, records_s) if records_s else None
        self._clock = clock
        self.records: list[RunRecord] = []
        """Of the runs in this transaction."""
        self.sent = False
        """Whether the open transaction has sent anything."""

    @property
    def records_runs(self) -> bool:
        """Whether anybody wants `records`."""
        return self._recorder is not None

    def send(self, outgoing: Sequence[Outgoing], *, once: bool = False) -> None:
        self.sent = self.sent or bool(outgoing)
        for one in outgoing:
            try:
                self._sender.send(one, once=once)
            except JMSError as error:
                if error.code != _INVALID_FIELD:
                    raise
                # As with a name that no queue can have: it would be refused at each attempt.
                raise IllegalCallFlowError(f"{one.envelope.to!r} cannot be called: {error}") from error

    def check(self) -> None:
        if self._session.transaction_doomed:
            raise TransactionRolledBackError("A failover came while the stage was at work; nothing was committed.")

    def commit(self) -> None:
        if self._recorder is not None and self.records:
            self._recorder.send(self.records, self._clock.now_us())
        replies = list(self.apart)
        self.forget()
        self._session.commit()
        if replies:
            self._answer(replies)

    def undo(self) -> None:
        """End the transaction without what it sent; what it received was given back already.

        Given back and committed, the broker hears why; what was sent must not be.
        """
        if self.sent:
            self.rollback()
        else:
            self.commit()

    def rollback(self) -> None:
        """Undo what was received and sent."""
        self.forget()
        self._session.rollback()

    def forget(self) -> None:
        """The transaction is over, or somebody else ends it."""
        self.records.clear()
        self.apart.clear()
        self.sent = False
