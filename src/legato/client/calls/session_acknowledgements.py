"""Steps of a session to acknowledge and to recover messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from legato.amqp.engine.outcomes import Outcome
from legato.client.calls.session_guard import SessionGuard
from legato.client.calls.session_transactions import SessionTransactions
from legato.client.calls.undertakings import Told, Undertaking, Undertakings
from legato.client.links.deliveries import AckBatch, Delivery, DeliveryState
from legato.client.links.receiver_end import ReceiverEnd
from legato.client.links.session_state import AcknowledgementOutcome, AcknowledgeMode
from legato.client.mapping.received import message_id_of
from legato.client.messages.message import Message
from legato.client.steps import Steps
from legato.errors import IllegalStateError, JMSError

NAMED_MAX = 5
"""Messages that an error names."""


class SessionAcknowledgements:
    """Acknowledgement by the application, and recovery.

    Attributes:
        mode: how received messages count as consumed.
        family: those of this session, of the one above it and of the ones below: they are acknowledged together.
        unacknowledged: received and to be acknowledged by the application, in order.
    """

    __slots__ = (
        "_guard",
        "_held_by_listener",
        "_run",
        "_started_over",
        "_transactions",
        "_undertakings",
        "family",
        "mode",
        "unacknowledged",
    )

    def __init__(
        self,
        guard: SessionGuard,
        undertakings: Undertakings,
        transactions: SessionTransactions,
        mode: AcknowledgeMode,
        *,
        run: Callable[[Steps[Any]], Any],
        held_by_listener: Callable[[], Delivery | None],
    ) -> None:
        """Acknowledge in one mode.

        Args:
            run: takes steps, for messages that the application acknowledges.
            held_by_listener: what a message listener has now.
        """
        self.mode = mode
        self.unacknowledged: dict[Delivery, None] = {}
        self.family: list[SessionAcknowledgements] = [self]
        self._guard = guard
        self._undertakings = undertakings
        self._transactions = transactions
        self._run = run
        self._held_by_listener = held_by_listener
        self._started_over = 0
        """After so many losses of the connection the application got again what it had."""

    def join(self, above: SessionAcknowledgements) -> None:
        """This session is below another one: what either has received the application acknowledges as one."""
        self.family = above.family
        self.family.append(self)

    @property
    def _others(self) -> list[SessionAcknowledgements]:
        return [each for each in self.family if each is not self]

    def recover(self) -> Steps[None]:
        """Give back what was received and not acknowledged; it comes again, flagged and counted (CONTRACT C8).

        If the call is interrupted (in asyncio: cancelled) the recovery goes on, and the session's next call waits for
        its end first; only an interruption before its first step leaves all as it was. Called again, it makes sure.

        Raises:
            IllegalStateError: the session is transacted, or closed.
        """
        failure = yield from self._have_others(lambda other: other._recover())
        yield from self._recover()
        if failure is not None:
            raise failure

    def _have_others(self, call: Callable[[SessionAcknowledgements], Steps[Any]]) -> Steps[JMSError | None]:
        """Have each of the others do it, whatever happens to one of them; returns the first error.

        A group's connection that is gone for good is told of once, if anything was received there: that comes again.
        """
        failure: JMSError | None = None
        for other in self._others:
            try:
                if other.unacknowledged or not other._is_gone:
                    yield from call(other)
            except JMSError as error:
                failure = failure or error
            if other._is_gone:
                self.family.remove(other)
        return failure

    @property
    def _is_gone(self) -> bool:
        return self._guard.channel.error is not None

    def _recover(self) -> Steps[None]:
        with self._guard.used():
            if self._transactions.current is not None:
                raise IllegalStateError("A transacted session has no recover(); call rollback().")
            yield from self._undertakings.hear()
            deliveries = dict(self.unacknowledged)
            current = self._held_by_listener()
            if current is not None:
                deliveries[current] = None
            batch = AckBatch(list(deliveries))
            batch.open = 1
            channel = self._guard.channel
            try:
                yield from self._undertakings.undertake(
                    Undertaking(
                        "recover",
                        lambda: channel.transport.post(channel.recover, batch),
                        lambda: batch.open == 0,
                        lambda: self._forget(batch.deliveries),
                    )
                )
            except JMSError:
                self._forget(batch.deliveries)
                raise
            channel.hear_abort()

    def acknowledge_needlessly(self, message: Message, *, typed: bool = False) -> Any:
        """What messages call that their session acknowledges by itself; in asyncio the result has to be awaited."""
        return self._run(self._needless(typed))

    def _needless(self, typed: bool) -> Steps[AcknowledgementOutcome | None]:
        self._guard.check_open()
        if not typed:
            return None
        if self._transactions.current is not None:
            raise IllegalStateError("In a transacted session commit() acknowledges.")
        return AcknowledgementOutcome.ALREADY_ACKNOWLEDGED
        yield  # what has no steps is a generator too

    def acknowledger(self, delivery: Delivery) -> Callable[..., Any]:
        """What a message calls that the application acknowledges."""

        def acknowledge(message: Message, *, typed: bool = False) -> Any:
            return self._run(self._trying(delivery) if typed else self.acknowledge(delivery))

        return acknowledge

    def acknowledge(self, delivery: Delivery | None) -> Steps[None]:
        """Acknowledge all that the session has received, or, in INDIVIDUAL mode, one message."""
        if self.mode not in (AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL):
            self._guard.check_open()
            return
        failure: JMSError | None = None
        if self.mode is AcknowledgeMode.CLIENT:
            failure = yield from self._have_others(lambda other: other._acknowledge(None))
        yield from self._acknowledge(delivery)
        if failure is not None:
            # It may say that all else is acknowledged.
            raise failure

    def _acknowledge(self, delivery: Delivery | None) -> Steps[None]:
        with self._guard.used():
            yield from self._undertakings.hear()
            if self._guard.channel.aborted is not None:
                yield from self.raise_abort()
            batch = AckBatch(self._covered(delivery))
            yield from self._settle(batch)
            if batch.open:
                # Only an abort ends the wait before.
                yield from self.raise_abort()
            gone = _gone(batch)
            late = self._guard.channel.contract.late_acknowledgement
            if gone and late is not None:
                error = late(_names(gone), code="WENT_ELSEWHERE")
                self._undertakings.told = Told(error, lambda: self.unacknowledged.update(dict.fromkeys(gone)))
                raise error

    def decide(self, delivery: Delivery, outcome: Outcome) -> None:
        """Settle one message at once by an outcome other than acceptance; it does not wait for the broker.

        Raises:
            IllegalStateError: the message is settled, or the session closed.
        """
        with self._guard.used():
            if delivery not in self.unacknowledged:
                raise IllegalStateError("The message is acknowledged, rejected or given back already.")
            del self.unacknowledged[delivery]
            self._guard.channel.transport.post(delivery.consumer.decide, delivery, outcome)

    def acknowledge_all(self) -> Steps[Mapping[str, AcknowledgementOutcome]]:
        """Acknowledge all that the session has received, and say what became of each message (promise 5).

        Under every failover contract it waits for the truth, over failovers too, and late acknowledgements are not
        errors. With INDIVIDUAL mode it acknowledges all as well.

        Returns:
            Outcomes by message id; messages without one have numbered names in angle brackets.

        Raises:
            IllegalStateError: the session acknowledges by itself, or is closed.
            JMSError: the connection is gone for good.
        """
        if self.mode not in (AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL):
            raise IllegalStateError("The session acknowledges by itself; its mode is neither CLIENT nor INDIVIDUAL.")
        found: dict[str, AcknowledgementOutcome] = {}

        def one(each: SessionAcknowledgements) -> Steps[None]:
            found.update((yield from each._acknowledge_all()))

        failure = yield from self._have_others(one)
        yield from one(self)
        if failure is not None:
            raise failure
        return found

    def _acknowledge_all(self) -> Steps[dict[str, AcknowledgementOutcome]]:
        with self._guard.used():
            yield from self._undertakings.hear()
            batch = AckBatch(list(self.unacknowledged), resolved=True)
            yield from self._settle(batch)
            self._guard.channel.hear_abort()
            ids = [message_id_of(each.data) or f"<{number}>" for number, each in enumerate(batch.deliveries, 1)]
            return {name: batch.outcome(each) for name, each in zip(ids, batch.deliveries, strict=True)}

    def _trying(self, delivery: Delivery) -> Steps[AcknowledgementOutcome]:
        """Acknowledge as `acknowledge` does, and say what became of one message."""
        failure: JMSError | None = None
        if self.mode is AcknowledgeMode.CLIENT:
            failure = yield from self._have_others(lambda other: other._acknowledge_all())
        with self._guard.used():
            yield from self._undertakings.hear()
            covered = self._covered(delivery)
            batch = AckBatch(covered if delivery in covered else [*covered, delivery], resolved=True)
            yield from self._settle(batch)
            self._guard.channel.hear_abort()
            if failure is not None:
                raise failure
            return batch.outcome(delivery)

    def raise_abort(self) -> Steps[None]:
        """Tell the application of what a failover aborted, once, as if it had rolled back (CONTRACT A11, A15, A16)."""
        transactions, channel = self._transactions, self._guard.channel
        if transactions.current is not None:
            yield from transactions.end_aborted()
        elif self.mode is AcknowledgeMode.CLIENT:
            self.unacknowledged.clear()
        failure, untold = channel.aborted, transactions.untold
        if failure is None:
            transactions.untold = None
            return

        def again() -> None:
            channel.aborted, transactions.untold = failure, untold

        self._undertakings.tell(failure, transactions.hear_abort, again)

    def return_deliveries(self, deliveries: list[Delivery], why: str = "") -> Steps[None]:
        """Return messages, and have them come again.

        Args:
            why: what the application raised when it had them, if it did.
        """
        batch = AckBatch(deliveries, why)
        batch.open = 1
        channel = self._guard.channel
        channel.transport.post(channel.recover, batch)
        yield from self._guard.wait(lambda: batch.open == 0, "recover")

    def forget_consumer(self, end: ReceiverEnd) -> None:
        """Its link is closed: no later acknowledgement is about what it received."""
        self.unacknowledged = {each: None for each in self.unacknowledged if each.consumer is not end}

    def _covered(self, delivery: Delivery | None) -> list[Delivery]:
        """What an acknowledgement covers; one message alone even if it is done with, to be told what became of it."""
        return list(self.unacknowledged) if delivery is None or self.mode is AcknowledgeMode.CLIENT else [delivery]

    def _forget(self, deliveries: list[Delivery]) -> None:
        """No later acknowledgement is about these."""
        for delivery in deliveries:
            self.unacknowledged.pop(delivery, None)

    def _settle(self, batch: AckBatch) -> Steps[None]:
        if not batch.open:
            return
        channel = self._guard.channel

        def ask() -> None:
            channel.transport.post(channel.acknowledge, batch)
            channel.transport.post(channel.grant)

        def conclude() -> None:
            # Of what went elsewhere an acknowledgement that was interrupted has not told: the next one does.
            self._forget([each for each in batch.deliveries if each.state is not DeliveryState.ELSEWHERE])

        losses = channel.interruptions

        def over() -> bool:
            # Under some failover contracts a loss of the connection decides it, and nobody hears how.
            dropped = not batch.resolved and not channel.contract.resolves_calls and channel.interruptions != losses
            return batch.open == 0 or dropped

        undertaking = Undertaking("acknowledge", ask, over, conclude, resolved=batch.resolved)
        try:
            yield from self._undertakings.undertake(
                undertaking, lambda: batch.open == 0 or (channel.aborted is not None and not batch.resolved)
            )
        except JMSError:
            self._forget(batch.deliveries)
            raise
        self._forget(batch.deliveries)

    def presented_again(self, delivery: Delivery) -> None:
        """The application gets a message that it had before a failover: from here on it starts over (CONTRACT A15).

        What it had and has not got again, be it because another receiver got it, is not what its next `acknowledge()`
        is about.
        """
        delivery.again = False
        delivery.times += 1
        if self._started_over != self._guard.channel.interruptions:
            self._started_over = self._guard.channel.interruptions
            if self._guard.channel.listening:
                self._guard.channel.hear_abort()
            if self.mode is AcknowledgeMode.CLIENT:
                self.unacknowledged = {
                    each: None for each in self.unacknowledged if not each.again and each is not delivery
                }


def _gone(batch: AckBatch) -> list[Delivery]:
    """Those that went elsewhere for good: what came back since is acknowledged in the same batch."""
    gone = batch.elsewhere()
    if not gone:
        return []
    ours = {message_id_of(each.data) for each in batch.deliveries if each not in gone} - {None}
    return [each for each in gone if message_id_of(each.data) not in ours]


def _names(gone: list[Delivery]) -> str:
    names = ", ".join(message_id_of(delivery.data) or "a message without id" for delivery in gone[:NAMED_MAX])
    more = f" and {len(gone) - NAMED_MAX} more" if len(gone) > NAMED_MAX else ""
    if all(delivery.state is DeliveryState.RETURNED for delivery in gone):
        return f"Given back, and to come again: {names}{more}; all else is acknowledged. Expect redelivery."
    return (
        f"After a failover another receiver got {names}{more}; all else is acknowledged. Call recover(), and expect "
        "redelivery."
    )
