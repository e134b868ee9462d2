"""A worker thread: takes a stage's messages, runs the stage, and commits."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from legato.client import Message, MessageConsumer, Session
from legato.errors import JMSError, MessageFormatError, TransactionRolledBackError
from legato.flows.database.bundles import pieces
from legato.flows.database.transactions import Database, Level, Received
from legato.flows.model.circuit import State
from legato.flows.model.definitions import Stage
from legato.flows.model.envelope import Envelope
from legato.flows.model.stage_run import Ran, run_stage
from legato.flows.model.wire import (
    INTERACTIVE,
    count_in,
    envelopes_of,
    queue_of,
    topic_of,
)
from legato.flows.stages.batching import ALONE_FROM, is_alone, message_key
from legato.flows.stages.coroutines import complete
from legato.flows.stages.failure_report import HOPELESS, Failure, log_failure
from legato.flows.stages.messaging import SessionMessaging
from legato.flows.stages.records import record_of
from legato.flows.stages.session_worker import WAIT_MAX_S, SessionWorker
from legato.flows.stages.stage_health import StageHealth
from legato.quoting import quoted, sentence

if TYPE_CHECKING:
    from legato.flows.stages.running_service import RunningService

logger = logging.getLogger(__name__)

ANOTHER_WAIT_S = 0.2
"""Seconds to wait for a message that has not failed yet."""


class StageWorker(SessionWorker):
    """One of the threads of a stage.

    Args:
        flows: the service that it belongs to.
        level: the transaction that it runs in.
        health: what it shares with the other workers of the stage.
        number: among the stage's workers, from 1.
        interactive: whether it takes only messages for which a person waits.
    """

    def __init__(
        self,
        flows: RunningService,
        stage: Stage,
        level: Level,
        health: StageHealth,
        number: int,
        *,
        interactive: bool = False,
    ) -> None:
        super().__init__(flows, f"{stage.id} {'interactive ' * interactive}{number}")
        self.stage = stage
        self._flows = flows
        self._level = level
        self._health = health
        self._interactive = interactive
        self._policy = flows.policy_of(stage)
        self._batch = self._policy.batch_max or 1
        self._plain_to = stage.id if stage.endpoint.plain and stage is stage.endpoint.stages[0] else ""
        self._taken_us = 0
        """When the messages that it works on were taken."""
        self._raised: BaseException | None = None
        """What the stage itself raised: should it be messaging's, it was not this session's."""
        self._singly = 0
        """So many messages are to be taken one by one, because they failed together."""

    def consumer(self, session: Session) -> MessageConsumer:
        flows = self._flows
        self._messaging = SessionMessaging(session, flows.prefix, flows.clock, flows.trace_retention_s, flows.answer)
        if self.stage.endpoint.topic:
            return session.create_consumer(topic_of(self.stage.id, flows.prefix))
        queue = queue_of(self.stage.id, flows.prefix)
        selector = f"{INTERACTIVE} = TRUE" if self._interactive else None
        return session.create_consumer(queue, selector, prefetch=2 * self._batch)

    def wait_s(self) -> float:
        circuit = self._health.circuit
        if circuit.state is State.CLOSED:
            return 0.0
        if self._interactive:
            return WAIT_MAX_S  # It cannot try: perhaps no message ever comes that it takes.
        with self._health.lock:
            return circuit.wait_s(self.name, self._now_s())

    def take(self, session: Session, consumer: MessageConsumer, message: Message) -> None:
        messages = [message]
        circuit = self._health.circuit
        if circuit.state is State.CLOSED:
            self._fill(session, consumer, messages)
        elif circuit.may_take(self.name):
            messages = [self._one_to_try(session, consumer, message)]
        else:
            session.give_back(message)
            session.commit()
            return
        self._taken_us = begun_us = self._flows.clock.now_us()
        self._raised = None
        try:
            if self._divided(messages):
                return
            received = [
                Received(envelope, one.delivery_count)
                for one in messages
                for envelope in envelopes_of(one, self._plain_to)
            ]
            ran = self._level.perform(self.stage.id, received, self._run, self._messaging)
        except BaseException as error:
            if isinstance(error, TransactionRolledBackError) and error is not self._raised:
                self._messaging.forget()
                raise
            # Also `SystemExit`, or asyncio's `CancelledError`, of a stage: a thread that ended would leave its queue to
            # nobody, and the message to the next thread.
            self._failed(session, messages, error)
        else:
            self._succeeded(messages, received, ran, begun_us)

    # -- which messages

    def _now_s(self) -> float:
        return self._flows.clock.monotonic_ms() / 1e3

    def _fill(self, session: Session, consumer: MessageConsumer, messages: list[Message]) -> None:
        """Add to a batch what waits anyway; what failed before, more than once, is tried by itself."""
        if self._singly:
            self._singly -= 1
            return
        room = self._batch - count_in(messages[0])
        while room > 0 and not is_alone(messages[0]):
            another = consumer.receive_no_wait()
            if another is None:
                return
            if is_alone(another):
                session.give_back(another)
                return
            messages.append(another)
            room -= count_in(another)

    def _one_to_try(self, session: Session, consumer: MessageConsumer, first: Message) -> Message:
        """Of the messages that wait one that has not failed since the circuit opened; the first if all have."""
        avoided = self._health.circuit.avoided
        passed: list[Message] = []
        candidate: Message | None = first
        while candidate is not None and candidate.message_id in avoided and len(passed) <= len(avoided):
            passed.append(candidate)
            candidate = consumer.receive(timeout_s=ANOTHER_WAIT_S)
        chosen = candidate or passed.pop(0)
        for each in passed:
            session.give_back(each)
        return chosen

    # -- bundles

    def _divided(self, messages: Sequence[Message]) -> bool:
        """Divide a bundle that is to be taken in parts: whether that was to be.

        It is too large for this stage, it came back, or the circuit lets only one message pass.
        """
        count = count_in(messages[0])
        if len(messages) > 1 or count == 1:
            return False
        if messages[0].delivery_count >= ALONE_FROM or self._health.circuit.state is not State.CLOSED:
            self._divide(messages[0], 1)
        elif count > self._batch:
            self._divide(messages[0], self._batch)
        else:
            return False
        return True

    def _divided_for(self, message: Message, error: BaseException) -> bool:
        """Divide a bundle that failed; False if nobody can."""
        if self._messaging.sent:
            self._messaging.rollback()  # It comes again, and then, or the next time, alone.
            return True
        try:
            self._divide(message, 1)
        except MessageFormatError:
            return False
        logger.warning("%s: the %d of a bundle are tried one by one: %r", self.stage.id, count_in(message), error)
        return True

    def _divide(self, message: Message, count_max: int) -> None:
        """Have the envelopes of a bundle come by themselves: each has its own attempts, and its own end."""
        self._messaging.send(pieces(envelopes_of(message), count_max))
        self._messaging.commit()

    # -- a run and what comes of it

    def _run(self, received: Received, database: Database | None) -> Ran:
        envelope = received.envelope
        last = self._policy.deliveries_max or 0
        if (last and received.delivery_count > last) or self._health.condemned(envelope.message_id) is not None:
            raise _DueError
        self._flows.check_going_on(envelope)
        timing = self._flows.database_time
        taken_us, spent_s = self._flows.clock.now_us(), timing.spent_s if timing else 0.0
        ran = self._run_traced(received, taken_us, database)
        if self._messaging.records_runs:
            calls = tuple((str(one.envelope.call), one.envelope.to) for one in ran.outgoing)
            database_us = round(1e6 * (timing.spent_s - spent_s)) if timing else 0
            self._record(envelope, taken_us, received.delivery_count, calls=calls, database_us=database_us)
        return ran

    def _run_traced(self, received: Received, now_us: int, database: Database | None) -> Ran:
        envelope, attempt = received
        tracing = self._flows.tracing
        if tracing is None:
            return self._run_stage(envelope, now_us, attempt, database)
        with tracing.processing(envelope, self.stage.id, attempt):
            ran = self._run_stage(envelope, now_us, attempt, database)
            ran.outgoing = [tracing.sent(one) for one in ran.outgoing]
        return ran

    def _run_stage(self, envelope: Envelope, now_us: int, attempt: int, database: Database | None) -> Ran:
        try:
            return run_stage(
                self.stage,
                envelope,
                now_us=now_us,
                delivery_count=attempt,
                database=database,
                complete=complete,
            )
        except BaseException as error:
            self._raised = error
            raise

    def _record(self, envelope: Envelope, taken_us: int, attempt: int, **more: Any) -> None:
        host = self._flows.whereabouts.host
        self._messaging.records.append(record_of(envelope, self.stage.id, taken_us, attempt, host=host, **more))

    def _record_failure(self, message: Message, failure: Failure, attempt: int, *, buried: bool) -> None:
        if self._messaging.records_runs:
            with suppress(MessageFormatError):
                said: dict[str, Any] = {"failure": failure.text, "buried": buried}
                for envelope in envelopes_of(message, self._plain_to):
                    self._record(envelope, self._taken_us, attempt, **said)

    def _succeeded(
        self, messages: Sequence[Message], received: Sequence[Received], ran: Sequence[Ran], begun_us: int
    ) -> None:
        outgoing = [one for each in ran for one in each.outgoing]
        now_us = self._flows.clock.now_us()
        worked_on = [_known_by(message) for message in messages]
        if self._health.succeeded([one.envelope for one in received], outgoing, begun_us, now_us, worked_on):
            logger.warning("%s: works again; the circuit is closed.", self.stage.id)
        for each in ran:
            for action in each.after_commit:
                try:
                    done = action()
                    if inspect.iscoroutine(done):
                        complete(done)
                except BaseException:
                    # Also `SystemExit`, or asyncio's `CancelledError`: the thread is its queue's.
                    logger.exception("%s: something to be done after the commit failed", self.stage.id)

    def _failed(self, session: Session, messages: Sequence[Message], error: BaseException) -> None:
        message = messages[0]
        self._messaging.records.clear()
        if len(messages) > 1:
            self._singly = len(messages)
            # This was nobody's own attempt, so it is not counted.
            for each in messages:
                session.give_back(each)
            self._messaging.undo()
            logger.warning("%s: %d messages are tried one by one: %r", self.stage.id, len(messages), error)
            return
        if isinstance(error, JMSError) and not isinstance(error, HOPELESS) and error is not self._raised:
            # The message is not to blame, but should it never be worked on, this is why.
            self._health.remember(message_key(message), Failure.of(error))
            self._messaging.rollback()
            raise error
        if isinstance(error, _DueError):
            self._bury_due(session, message)
            return
        failure = Failure.of(error)
        if count_in(message) > 1 and not failure.environmental and self._divided_for(message, error):
            return
        sent, clock = self._messaging.sent, self._flows.clock
        verdict = self._health.failed(
            _known_by(message), message.delivery_count, failure, clock.now_us(), self._now_s()
        )
        log_failure(self.stage.id, message, failure, verdict, error)
        if verdict.last and sent:
            # What was sent would be committed with the dead letter (CONTRACT D20).
            self._health.condemn(message_key(message), failure)
            self._messaging.rollback()
        elif verdict.last:
            self._bury(session, message, failure, verdict.attempt)
        else:
            # Only this one goes back: what was prefetched is tried next, and the broker knows the reason.
            session.give_back(message, failed=verdict.counts, why=failure.text)
            if not sent:
                self._record_failure(message, failure, verdict.attempt, buried=False)
            self._messaging.undo()

    def _bury_due(self, session: Session, message: Message) -> None:
        """Bury a message that was condemned, or whose attempts are used up, without another one."""
        key = message_key(message)
        condemned = self._health.condemned(key)
        failure = condemned or self._health.remembered(key) or LOST_ATTEMPTS
        attempts = self._health.attempt(_known_by(message), message.delivery_count)
        logger.error(
            "%s: without another attempt it goes to the dead letters: %s. Message %s.",
            self.stage.id,
            sentence(failure.text),
            quoted(message.message_id),
        )
        self._bury(session, message, failure, attempts - (condemned is not None))

    def _bury(self, session: Session, message: Message, failure: Failure, attempts: int) -> None:
        key = message_key(message)
        # Should a failover roll this back, it is done at the next delivery.
        self._health.condemn(key, failure)
        self._messaging.apart += self._flows.bury(session, message, failure, attempts)
        self._record_failure(message, failure, attempts, buried=True)
        self._messaging.commit()
        self._health.pardon(key)
        self._health.buried(_known_by(message))


def _known_by(message: Message) -> str:
    """Key of a message's attempts: its parts have ids of their own, a bundle has one."""
    return message.message_id or ""


class _DueError(Exception):
    """The message becomes a dead letter without another attempt."""


LOST_ATTEMPTS = Failure(
    "Every attempt ended without telling why: whoever worked on it died, or its broker did.",
    "",
    hopeless=False,
    environmental=False,
)
