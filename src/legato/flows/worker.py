"""A thread that takes a stage's messages, runs it and commits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from legato.client import Message, MessageConsumer, Session
from legato.errors import JMSError, TransactionRolledBackError
from legato.flows.definitions import Stage
from legato.flows.envelope import Outgoing
from legato.flows.failures import HOPELESS
from legato.flows.looping import SessionLoop
from legato.flows.running import Ran, run_stage
from legato.flows.transactions import Database, Level, Received
from legato.flows.wire import INTERACTIVE, Sender, envelope_of, queue_of, topic_of

if TYPE_CHECKING:
    from legato.flows.service import Flows

logger = logging.getLogger(__name__)


class SessionMessaging:
    """The messaging half of a stage's transaction, over a transacted session (`transactions.Messaging`)."""

    def __init__(self, session: Session, prefix: str) -> None:
        self._session = session
        self._sender = Sender(session, prefix)

    def send(self, outgoing: Sequence[Outgoing], *, once: bool = False) -> None:
        for one in outgoing:
            self._sender.send(one, once=once)

    def check(self) -> None:
        if self._session.transaction_doomed:
            raise TransactionRolledBackError("A failover came while the stage was at work; nothing was committed.")

    def commit(self) -> None:
        self._session.commit()


class StageWorker(SessionLoop):
    """One of the threads of a stage.

    Args:
        flows: the service that it belongs to.
        level: the transaction that it runs in.
        number: among the stage's workers, from 1.
        interactive: whether it takes only messages for which a person waits.
    """

    def __init__(self, flows: Flows, stage: Stage, level: Level, number: int, *, interactive: bool = False) -> None:
        super().__init__(flows, f"{stage.id} {number}")
        self.stage = stage
        self._flows = flows
        self._level = level
        self._interactive = interactive
        self._policy = flows.policy_of(stage)
        self._queue = flows.prefix + stage.id
        self._alone = False

    def consumer(self, session: Session) -> MessageConsumer:
        self._messaging = SessionMessaging(session, self._flows.prefix)
        if self.stage.endpoint.topic:
            return session.create_consumer(topic_of(self.stage.id, self._flows.prefix))
        queue = queue_of(self.stage.id, self._flows.prefix)
        selector = f"{INTERACTIVE} = TRUE" if self._interactive else None
        return session.create_consumer(queue, selector, prefetch=2 * self._batch)

    def take(self, session: Session, consumer: MessageConsumer, message: Message) -> None:
        messages = [message]
        while len(messages) < self._batch and not self._alone and not message.redelivered:
            another = consumer.receive_no_wait()
            if another is None:
                break
            messages.append(another)
        self._alone = False
        try:
            received = [Received(envelope_of(one), one.delivery_count) for one in messages]
            ran = self._level.perform(self.stage.id, received, self._run, self._messaging)
        except TransactionRolledBackError:
            raise
        except Exception as error:
            self._failed(session, messages, error)
        else:
            for one in ran:
                self._after_commit(one)

    @property
    def _batch(self) -> int:
        return self._policy.batch_max or 1

    def _run(self, received: Received, database: Database | None) -> Ran:
        self._flows.check_going_on(received.envelope)
        return run_stage(
            self.stage,
            received.envelope,
            now_us=self._flows.clock.now_us(),
            delivery_count=received.delivery_count,
            database=database,
        )

    def _failed(self, session: Session, messages: Sequence[Message], error: Exception) -> None:
        message = messages[0]
        last = self._policy.deliveries_max or 0
        hopeless = isinstance(error, HOPELESS) or (last and message.delivery_count >= last)
        if len(messages) > 1 or not hopeless or (isinstance(error, JMSError) and not isinstance(error, HOPELESS)):
            self._alone = len(messages) > 1
            session.rollback()
            logger.warning("%s: attempt %d failed: %r", self.stage.id, message.delivery_count, error, exc_info=error)
            if isinstance(error, JMSError) and not isinstance(error, HOPELESS):
                raise error
            return
        logger.error("%s: to the dead letters: %r", self.stage.id, error, exc_info=error)
        self._flows.bury(session, message, error, self._queue)
        session.commit()

    def _after_commit(self, ran: Ran) -> None:
        for action in ran.after_commit:
            try:
                action()
            except Exception:
                logger.exception("%s: something to be done after the commit failed", self.stage.id)
