"""Applications whose waiting calls are interrupted, as by `asyncio.timeout()` or a signal, and that carry on."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from legato.client.calls.consumer_steps import ConsumerSteps
from legato.client.links.session_state import AcknowledgeMode, Transaction
from legato.client.steps import Steps, Wait
from legato.errors import IllegalStateError, JMSError, TransactionRolledBackError
from simulator.clients import Session
from simulator.conversations import Conversation

INTERRUPTED = 0.35
"""How likely a call is interrupted, if it waits for long enough."""
AFTER_S = (0.0, 0.0, 0.0002, 0.002, 0.05, 1.5)
"""How long a call may wait before it is interrupted."""
ALTHOUGH_READY = 0.3
"""How likely a call is interrupted where it need not wait any more."""


class Interruption(BaseException):
    """What a cancellation or a signal raises in the code that waits."""


class Work:
    """What one transaction sent and received, and whether `commit()` was called to end it."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.received: list[tuple[str, int]] = []
        self.committing = False


class Interrupting(Conversation):
    """An application that interrupts its own calls; and all that a `Conversation` does.

    Attributes:
        was_interrupted: the last call was, so that nothing is known of it.
    """

    was_interrupted = False

    def _perhaps(self, steps: Generator[Any, Any, Any]) -> Steps[Any]:
        """Take the steps of a call; perhaps interrupt it at one of its waits. Returns what the call returned."""
        self.was_interrupted = False
        if self.random.random() > INTERRUPTED:
            return (yield from steps)
        passed_over, after_s = self.random.choice([0, 0, 0, 1, 2]), self.random.choice(AFTER_S)
        try:
            step = next(steps)
            while True:
                if not isinstance(step, Wait) or passed_over < 0:
                    step = steps.send((yield step))
                elif passed_over:
                    passed_over -= 1
                    step = steps.send((yield step))
                else:
                    passed_over = -1
                    timeout_s = after_s if step.timeout_s is None else min(after_s, step.timeout_s)
                    ready = yield Wait(step.gate, step.ready, timeout_s)
                    over = timeout_s == step.timeout_s
                    if (not ready and not over) or self.random.random() < ALTHOUGH_READY:
                        self.was_interrupted = True
                        self.history.counts["calls interrupted"] += 1
                        self.history.note("interrupted:", self.container, getattr(steps, "__name__", steps))
                        step = steps.throw(Interruption())
                    else:
                        step = steps.send(ready)
        except StopIteration as end:
            self.was_interrupted = False
            return end.value
        except Interruption:
            return None

    # -- in transactions -----------------------------------------------------------------------------------------

    def interrupt_transactions(self) -> Steps[None]:
        """Receive and send in transactions, whose ends are interrupted."""
        session = self.connection.create_session(transacted=True)
        name, consumer = yield from self._consumer(session)
        producer = yield from self._producer(session, may_wait=False)
        sender = self._sender()
        self._works: dict[Transaction, Work] = {}
        while not self.run.ending:
            for _ in range(self.random.randint(0, 3)):
                try:
                    message = yield from self._perhaps(consumer._receive(0.1))
                except JMSError as error:
                    if not self.history.has_ended(error):
                        raise
                    yield from self._leave(consumer)
                    name, consumer = yield from self._consumer(session)
                    break
                self._hear(session, bound=message is not None)
                if message is not None:
                    self._work_of(session).received.append((name, self._presented(session, name, message)))
            for _ in range(self.random.randint(0, 2)):
                sent: list[Any] = []
                if (yield from self._send_some(producer, sender, sent, 1)):
                    self._work_of(session).sent += sent
                else:
                    yield from self._leave(producer)
                    producer, sender = (yield from self._producer(session, may_wait=False)), self._sender()
            yield from self._end_transaction(session, commit=self.random.random() < 0.7)
        yield from session._transactions.rollback()
        self._hear(session, bound=True)
        yield from session._close()

    def _work_of(self, session: Session) -> Work:
        """What the session's transaction did; a call has just returned, so it is that of the next call too."""
        assert session._transactions.current is not None
        return self._works.setdefault(session._transactions.current, Work())

    def _end_transaction(self, session: Session, *, commit: bool) -> Steps[None]:
        if session._undertakings.current is None:
            # Else the transaction is ending already, and this ends the one that follows.
            self._work_of(session).committing = commit
        try:
            yield from self._perhaps(session._transactions.commit() if commit else session._transactions.rollback())
        except TransactionRolledBackError:
            commit = False
        if commit and not self.was_interrupted:
            for transaction, work in self._works.items():
                self._expect(
                    transaction.outcome is True or not work.committing,
                    "P2: commit() returned, and what was to be committed since the last one that did was not",
                )
        self._hear(session, bound=not self.was_interrupted)

    def _hear(self, session: Session, *, bound: bool) -> None:
        """What became of transactions is as the client knows it.

        Args:
            bound: a call has returned, which had to wait for the end of what was interrupted.
        """
        for transaction, work in list(self._works.items()):
            if transaction.outcome is not None:
                del self._works[transaction]
                self.history.counts["interrupted and heard of"] += 1
                tell = self.history.was_committed if transaction.outcome else self.history.was_rolled_back
                tell(work.sent, work.received, self.container)
            elif transaction is not session._transactions.current:
                self._expect(not bound, "P2: a call returned, and what became of the transaction before is not known")

    # -- otherwise -----------------------------------------------------------------------------------------------

    def interrupt_receiving(self) -> Steps[None]:
        """Receive in any mode but a transaction; every call is interrupted now and then."""
        mode = self.random.choice([mode for mode in AcknowledgeMode if mode is not AcknowledgeMode.SESSION_TRANSACTED])
        session = self.connection.create_session(acknowledge_mode=mode)
        queue = self.random.choice(self.run.plan.queues)
        name = queue.name
        consumer = yield from self._insisting(lambda: self._consumer_of(session, queue))
        held: list[tuple[int, Any]] = []
        unsure: list[int] = []
        while not self.run.ending:
            try:
                message = yield from self._perhaps(consumer._receive(0.2))
            except JMSError as error:
                if not self.history.has_ended(error):
                    raise
                yield from self._leave(consumer)
                consumer = yield from self._insisting(lambda: self._consumer_of(session, queue))
                continue
            if message is not None:
                number = self._presented(session, name, message)
                held = [pair for pair in held if pair[0] != number]
                held.append((number, message))
            if mode not in (AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL):
                held.clear()
            elif held and self.random.random() < 0.5:
                yield from self._settle_perhaps(session, name, held, unsure)
            if self.random.random() < 0.02:
                consumer, held = (yield from self._anew(session, consumer, name)), []
        yield from session._close()

    def _settle_perhaps(
        self, session: Session, name: str, held: list[tuple[int, Any]], unsure: list[int]
    ) -> Steps[None]:
        """Acknowledge or recover.

        Args:
            unsure: messages whose acknowledgement was interrupted. The next one covers them too, and may say that
                another receiver has them.
        """
        if self.random.random() < 0.3:
            held.clear()
            yield from self._perhaps(session._acknowledgements.recover())
            return
        numbers, messages = [number for number, _ in held], [message for _, message in held]
        if session.acknowledge_mode is AcknowledgeMode.INDIVIDUAL:
            at = self.random.randrange(len(held))
            del held[at]
            numbers, messages = [numbers[at]], [messages[at]]
        else:
            held.clear()
        losses = session._channel.interruptions
        try:
            yield from self._perhaps(messages[0].acknowledge())
        except IllegalStateError:
            lost = bool(unsure) or losses != session._channel.interruptions
            self.history.went_elsewhere(name, [*unsure, *numbers], self.container, unsure=lost)
            unsure.clear()
            held.clear()
            yield from session._acknowledgements.recover()
        else:
            if self.was_interrupted:
                unsure += numbers
            else:
                unsure.clear()
                self.history.was_acknowledged(name, numbers, self.container)

    def _anew(self, session: Session, consumer: ConsumerSteps, name: str) -> Steps[ConsumerSteps]:
        """Another consumer of the same queue: to close one may be interrupted, and then it is closed again."""
        yield from self._perhaps(consumer._close())
        yield from consumer._close()
        if session.acknowledge_mode in (AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL):
            yield from session._acknowledgements.recover()
        while True:
            made = yield from self._perhaps(session._factory.create_consumer(session._messages.create_queue(name)))
            if made is not None:
                return made  # type: ignore[no-any-return]

    def interrupt_sending(self) -> Steps[None]:
        """Send; a send that is interrupted is stored once, or not at all."""
        session = self.connection.create_session()
        producer = yield from self._producer(session)
        sender = self._sender()
        while not self.run.ending:
            assert producer.destination is not None
            message, options = self._new_message(producer.destination, sender)
            try:
                yield from self._perhaps(producer._send(message, **options))
            except JMSError as error:
                self._completed(message, error)
                if self.history.has_ended(error):
                    yield from self._leave(producer)
                    producer, sender = (yield from self._producer(session)), self._sender()
            else:
                if not self.was_interrupted:
                    self.history.was_confirmed(message)
            if self.random.random() < 0.05:
                yield from self._closed(self._perhaps(producer._close()))
                yield from self._closed(producer._close())
                producer, sender = (yield from self._producer(session)), self._sender()
        yield from self._closed(session._close())
