"""Steps of a session's transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from legato.amqp.engine.outcomes import RELEASED, Modified, Outcome, Rejected
from legato.amqp.names import REJECTED_BY_APPLICATION
from legato.client.calls.session_guard import SessionGuard
from legato.client.calls.undertakings import Undertaking, Undertakings
from legato.client.links.deliveries import Delivery, DeliveryState
from legato.client.links.sender_end import SenderEnd
from legato.client.links.session_state import Send, Transaction, is_stored_already
from legato.client.links.transaction_outcome import UNKNOWN, Query, in_doubt
from legato.client.mapping.explanations import explaining_properties, explanation
from legato.client.messages.message import Message
from legato.client.steps import Steps
from legato.errors import IllegalStateError, JMSError, TransactionRolledBackError

ID_BYTES_MAX = 32
"""Of a transaction's id (AMQP 4.5.2)."""


class SessionTransactions:
    """Commit, rollback, and what a failover makes of a transaction.

    Attributes:
        current: the transaction that sends and receives belong to; None if the session is not transacted.
        untold: was rolled back, and the call was interrupted that was to say so.
        bound: the transactions of the session below this one, if they are another group's: they are these, then.
    """

    __slots__ = (
        "_ask_groups",
        "_decide_at_once",
        "_disposed",
        "_guard",
        "_open_ids",
        "_tell_duplicates",
        "_undertakings",
        "bound",
        "current",
        "untold",
    )

    def __init__(
        self,
        guard: SessionGuard,
        undertakings: Undertakings,
        first: Transaction | None,
        *,
        tell_duplicates: Callable[[], Steps[None]],
        open_ids: Callable[[], set[bytes]],
        ask_groups: Callable[[bytes], Steps[bool | None]],
        decide_at_once: Callable[[Delivery, Outcome], None] | None = None,
    ) -> None:
        """Begin with the transaction `first`.

        Args:
            tell_duplicates: has producers' listeners hear of what a commit dropped.
            open_ids: names of the transactions that are open in the connection.
            ask_groups: finds out what became of one, whichever group of brokers has it.
            decide_at_once: settles one message by an outcome, in a session of INDIVIDUAL mode.
        """
        self.current = first
        self.untold: Transaction | None = None
        self.bound: SessionTransactions | None = None
        self._guard = guard
        self._undertakings = undertakings
        self._tell_duplicates = tell_duplicates
        self._open_ids = open_ids
        self._ask_groups = ask_groups
        self._decide_at_once = decide_at_once
        self._disposed: deque[tuple[SenderEnd, Send]] = deque()
        """What the transaction had sent that was rolled back last, and those that ended before that was told."""

    def commit(self) -> Steps[None]:
        """Commit: what was received is consumed, what was sent becomes visible, both or neither.

        A commit that is cut off by a failover returns its true outcome (promise 2); under the contracts `hornetq` and
        `gigaspaces` it raises, and `commit_outcome()` tells (CONTRACT E12, A10). One without work succeeds
        (CONTRACT B17).

        If the call is interrupted (in asyncio: cancelled) the commit goes on; only an interruption before its first
        step leaves the transaction as it was. The session's next call waits for the outcome first, whatever it is to
        do. Call `commit()` again to learn it: it returns if the transaction was committed, and raises if it was
        rolled back, unless messages were received since, which then come again.

        Raises:
            TransactionRolledBackError: the transaction was rolled back. What it received comes again; `replay()`
                sends again what it sent. The session can be used on (CONTRACT E13).
            IllegalStateError: the session is not transacted, or closed.
            JMSError: whether it is committed cannot be had: the connection is gone for good (code `IN_DOUBT`).
        """
        if self.bound is not None:
            yield from self.bound.commit()
            return
        with self._guard.used(self._undertakings.check_open):
            self._guard.check_not_completing("commit")
            self._required()
            yield from self._undertakings.hear()
            transaction = self.untold
            if self._guard.channel.error is not None and not self._required().did_work:
                # The interrupted call had its outcome before the connection was gone for good.
                if transaction is not None:
                    raise _failure_of(transaction)
                return
            if transaction is not None:
                # What was sent since belongs to what the application takes for committed.
                yield from self._end(commit=False, replays=True)
            else:
                transaction = yield from self._end(commit=True, replays=True)
                if transaction.outcome:
                    self._disposed = deque()
            if not transaction.outcome:
                self._undertakings.tell(
                    _failure_of(transaction), self.hear_abort, lambda: setattr(self, "untold", transaction)
                )
            self._guard.channel.hear_abort()
        yield from self._tell_duplicates()

    def reject(self, message: Message, reason: str, properties: Mapping[str, str | int] | None = None) -> None:
        """Send a received message to the dead letters.

        In a transacted session the commit does it: the other messages that the transaction received are consumed, and
        what it sent is sent, in the same step (AMQP 4.4.2). In INDIVIDUAL mode it is done at once, and does not wait
        for the broker: if the connection is lost at that moment, the message may be delivered again.

        Args:
            reason: what the dead letter shows as its exception; its first 4,000 characters.
            properties: further ones for the dead letter, 8,000 bytes at most.

        Raises:
            MessageFormatError: the properties are none of the wire's.
            IllegalStateError: the session is neither transacted nor of INDIVIDUAL mode, or the message is not of its
                current transaction, or is acknowledged, or its consumer was closed in the transaction.
        """
        info = explaining_properties(properties)
        self._decide(message, Rejected(REJECTED_BY_APPLICATION, explanation(reason), info))

    def give_back(self, message: Message, *, failed: bool = False, why: str = "") -> None:
        """Have a received message come again, here or elsewhere.

        In a transacted session that happens once it commits (AMQP 4.4.2), in INDIVIDUAL mode at once. After
        `rollback()` the message comes again too, and what is not to be counted is not; that comes again already when
        its consumer is closed.

        Args:
            failed: whether this delivery counts as failed (CONTRACT D15).
            why: then, what is told of it should the message become a dead letter.

        Raises:
            IllegalStateError: the session is neither transacted nor of INDIVIDUAL mode, or the message is not of its
                current transaction, or is acknowledged, or its consumer was closed in the transaction.
        """
        self._decide(message, Modified(delivery_failed=True, text=explanation(why)) if failed else RELEASED)

    def _decide(self, message: Message, outcome: Outcome) -> None:
        delivery = message._delivery
        if isinstance(delivery, Delivery) and (below := self._session_of(delivery)) is not None:
            below._transactions._decide(message, outcome)
            return
        if self.current is None and self._decide_at_once is None:
            raise IllegalStateError(
                "The session is neither transacted nor of INDIVIDUAL mode: it acknowledges by itself."
            )
        if not isinstance(delivery, Delivery) or delivery.consumer.channel is not self._guard.channel:
            raise IllegalStateError("The message was not received by this session.")
        if self._decide_at_once is not None:
            self._decide_at_once(delivery, outcome)
            return
        if delivery.state is DeliveryState.ACKNOWLEDGED:
            raise IllegalStateError(
                "The transaction that received the message has ended, or its consumer is closed: decide before that."
            )
        delivery.verdict = outcome

    def _session_of(self, delivery: Delivery) -> Any:
        """The session below this one that received a message; None if this one has, or a stranger."""
        received_by: Any = delivery.consumer.channel
        own = self._guard.channel
        return received_by.owner if received_by is not own and received_by.gate is own.gate else None

    @property
    def doomed(self) -> bool:
        """Whether a failover has made sure already that `commit()` will raise (CONTRACT B18, D4).

        Raises:
            IllegalStateError: the session is not transacted, or closed.
            JMSError: the session or its connection is gone for good.
        """
        self._guard.check_open()
        return self._required().doomed if self.bound is None else self.bound.doomed

    def rollback(self) -> Steps[None]:
        """Roll back: what was received comes again, in order and counted, what was sent is gone (CONTRACT A4).

        If the call is interrupted (in asyncio: cancelled) the rollback goes on, and the session's next call waits for
        its end first; only an interruption before its first step leaves the transaction as it was. Called again, it
        makes sure.

        Raises:
            IllegalStateError: the session is not transacted, or closed.
        """
        if self.bound is not None:
            yield from self.bound.rollback()
            return
        with self._guard.used():
            self._guard.check_not_completing("roll back")
            self._required()
            yield from self._undertakings.hear()
            yield from self._end(commit=False)
            self._guard.channel.hear_abort()
            self._disposed = deque()
            self.untold = None

    def replay(self) -> int:
        """Send again, in the current transaction, what the last one had sent that a failover aborted (promise 3).

        What turns out to have been committed after all is not sent again (see `commit_outcome()`). For applications
        that do not compute their sends anew from what they receive again. If the call is interrupted, the next one
        sends the rest: call it before `commit()`.

        Returns:
            How many messages this call has sent.

        Raises:
            IllegalStateError: the session is not transacted, one of the producers is closed, or it is not known yet
                what became of a `commit()` that was interrupted: call it again first.
        """
        if self.bound is not None:
            return self.bound.replay()
        with self._guard.used():
            current = self._required()
            if self._undertakings.current is not None:
                raise IllegalStateError("A commit() or rollback() was interrupted: call it again to learn its outcome.")
            self.untold = None
            disposed = self._disposed = deque(each for each in self._disposed if not _is_stored(each[1]))
            if any(end.closed or end.closing for end, _ in disposed):
                raise IllegalStateError("A producer of the rolled back transaction is closed; nothing was replayed.")
            count = len(disposed)
            try:
                while disposed:
                    self._send_again(*disposed[0], current)
            except BaseException:
                # Perhaps the I/O thread was not told of the last one.
                channel = self._guard.channel
                channel.transport.post(channel.look_again)
                channel.transport.wake()
                raise
            return count

    def _send_again(self, end: SenderEnd, send: Send, current: Transaction) -> None:
        outgoing = end.outgoing
        number = outgoing.last_number + 1
        outgoing.last_number = number
        again = Send(number, send.data, send.message, current, stream=send.stream)
        again.repeats, again.former = send.transaction, send
        # One step: a transaction must not have what is not sent, and what is left is for the next call.
        current.sends.append((end, again)); outgoing.waiting.append(again); self._disposed.popleft()  # fmt: skip  # noqa: E702
        end.channel.wake_sender(end)

    def commit_outcome(self, transaction_id: bytes) -> Steps[bool | None]:
        """What became of a transaction, of this client or another one (CONTRACT E14).

        One that another connection has open is rolled back thereby, so that the answer stays true.

        Args:
            transaction_id: that of the `TransactionRolledBackError`, or of the `JMSError` with code `IN_DOUBT`.

        Returns:
            True if it was committed, False if it was rolled back, None if nobody knows: it is of another store, or of
            more than a day ago. One of another group of brokers is asked for there.

        Raises:
            IllegalStateError: the session is not transacted, or closed; or the transaction is one that is open here.
            JMSError: the connection is gone for good, or no transaction can have that id.
        """
        with self._guard.used(None if self.bound is None else self.bound._guard.check_open):
            self._required()
            if not isinstance(transaction_id, bytes) or not 0 < len(transaction_id) <= ID_BYTES_MAX:
                raise JMSError(f"A transaction's id is of 1 to {ID_BYTES_MAX} bytes, not {transaction_id!r:.80}.")
            return (yield from self._ask_groups(transaction_id))

    def ask(self, transaction_id: bytes) -> Steps[Query]:
        """The answer of this session's broker, of which group the transaction may be or not.

        Raises:
            IllegalStateError: the session is closed; or the transaction is one that is open in its connection.
            JMSError: the connection is gone for good.
        """
        with self._guard.used():
            if transaction_id in self._open_ids():
                raise IllegalStateError("The transaction is still open: its session can commit it, or roll it back.")
            coordinator = self._guard.channel.coordinator
            assert coordinator is not None
            query = Query(transaction_id)
            self._guard.channel.transport.post(coordinator.query, query)
            yield from self._guard.wait(lambda: query.answered, "ask for an outcome")
            return query

    def end_aborted(self) -> Steps[None]:
        """End what a failover aborted, as if the application had rolled back; `replay()` may send it again.

        It is untold until the caller has told of it.
        """
        yield from self._end(commit=False, replays=True)

    def hear_abort(self) -> None:
        """The application hears of what was rolled back."""
        self._guard.channel.hear_abort()
        self.untold = None

    def _required(self) -> Transaction:
        if self.current is None:
            raise IllegalStateError("The session is not transacted; create it with create_session(transacted=True).")
        return self.current

    def _end(self, *, commit: bool, replays: bool = False) -> Steps[Transaction]:
        """End the current transaction.

        Args:
            replays: whether `replay()` may send it again, if it is rolled back, after those that are untold.
        """
        transaction = self._required()
        coordinator = self._guard.channel.coordinator
        assert coordinator is not None
        post, end = self._guard.channel.transport.post, coordinator.end
        following = Transaction()

        def conclude() -> None:
            if self.current is not transaction:
                return
            if replays and not transaction.outcome:
                before = () if self.untold is None else self._disposed
                sends = deque([*before, *transaction.sends])
                # One step: interrupted and made again it must not have them twice.
                self._disposed, self.untold, self.current = sends, self.untold or transaction, following
            self.current = following

        ending = Undertaking(
            "commit" if commit else "roll back",
            lambda: post(end, transaction, commit, following),
            lambda: transaction.outcome is not None,
            conclude,
            # A loss of the connection decides it, or its truth is to be had.
            resolved=True,
            lost=(lambda error: in_doubt(transaction, error)) if commit and transaction.did_work else None,
        )
        yield from self._undertakings.undertake(ending)
        yield from self._guard.wait_for_completions()
        return transaction


def _failure_of(transaction: Transaction) -> JMSError:
    """What `commit()` raises about a transaction that was rolled back."""
    failure = transaction.failure
    if failure is not None and failure.code == UNKNOWN:
        return in_doubt(transaction, failure)
    return TransactionRolledBackError(
        str(failure) if failure else "",
        code=failure.code if failure else None,
        linked=_cause_of(failure),
        transaction_id=transaction.name,
    )


def _is_stored(send: Send) -> bool:
    return is_stored_already(send) or (send.transaction is not None and send.transaction.committed is True)


def _cause_of(failure: JMSError | None) -> BaseException | None:
    """What the application is to see as the cause: what the I/O thread's error was made from, if anything was."""
    return failure if failure is None or failure.linked is None else failure.linked
