"""A thread that takes a stage's messages, runs it and commits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from legato.client import Message, MessageConsumer, Session
from legato.errors import JMSError, TransactionRolledBackError
from legato.flows.definitions import Stage
from legato.flows.envelope import Outgoing
from legato.flows.failures import HOPELESS, bury
from legato.flows.running import Ran, run_stage
from legato.flows.transactions import Database, Level, Received
from legato.flows.wire import Sender, envelope_of, queue_of, topic_of

if TYPE_CHECKING:
    from legato.flows.service import Flows

logger = logging.getLogger(__name__)

CHILL_FIRST_S = 0.1
CHILL_MAX_S = 30.0


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


class StageWorker:
    """One of the threads of a stage.

    Args:
        flows: the service that it belongs to.
        level: the transaction that it runs in.
        number: among the stage's workers, from 1.
        interactive: whether it takes only messages for which a person waits.
    """

    def __init__(self, flows: Flows, stage: Stage, level: Level, number: int, *, interactive: bool = False) -> None:
        self.stage = stage
        self._flows = flows
        self._level = level
        self._interactive = interactive
        self._policy = flows.policy_of(stage)
        self._queue = flows.prefix + stage.id
        self._ending = threading.Event()
        self._idle = threading.Event()
        self._session: Session | None = None
        self._alone = False
        self._thread = threading.Thread(target=self._work, name=f"{stage.id} {number}", daemon=True)

    def start(self) -> None:
        """Begin to take messages."""
        self._thread.start()

    def ask_to_end(self) -> None:
        """Take no further message."""
        self._ending.set()

    def end(self, timeout_s: float) -> bool:
        """Wait for the message that is worked on; after `timeout_s` it is rolled back. False if it had to be."""
        self._ending.set()
        graceful = self._idle.wait(timeout_s) or not self._thread.is_alive()
        session = self._session
        if session is not None:
            session.close()
        self._thread.join(timeout_s)
        return graceful

    def _work(self) -> None:
        chill_s = CHILL_FIRST_S
        while not self._ending.is_set():
            try:
                with self._flows.connection().create_session(transacted=True) as session:
                    self._session = session
                    self._serve(session)
                chill_s = CHILL_FIRST_S
            except JMSError as error:
                if self._ending.is_set():
                    break
                logger.warning("%s: %s Again in %.1f s.", self.stage.id, error, chill_s)
                self._ending.wait(chill_s)
                chill_s = min(2 * chill_s, CHILL_MAX_S)
        self._idle.set()

    def _serve(self, session: Session) -> None:
        consumer = self._consumer(session)
        messaging = SessionMessaging(session, self._flows.prefix)
        while not self._ending.is_set():
            self._idle.set()
            message = consumer.receive()
            self._idle.clear()
            if message is None:
                break
            try:
                self._take(session, consumer, messaging, message)
            except TransactionRolledBackError as error:
                logger.info("%s: rolled back by a failover, comes again: %s", self.stage.id, error)

    def _consumer(self, session: Session) -> MessageConsumer:
        if self.stage.endpoint.topic:
            return session.create_consumer(topic_of(self.stage.id, self._flows.prefix))
        queue = queue_of(self.stage.id, self._flows.prefix)
        selector = "legato_interactive = TRUE" if self._interactive else None
        return session.create_consumer(queue, selector, prefetch=2 * self._batch)

    @property
    def _batch(self) -> int:
        return self._policy.batch_max or 1

    def _take(self, session: Session, consumer: MessageConsumer, messaging: SessionMessaging, first: Message) -> None:
        messages = [first]
        while len(messages) < self._batch and not self._alone and not first.redelivered:
            another = consumer.receive_no_wait()
            if another is None:
                break
            messages.append(another)
        self._alone = False
        try:
            received = [Received(envelope_of(message), message.delivery_count) for message in messages]
            ran = self._level.perform(self.stage.id, received, self._run, messaging)
        except TransactionRolledBackError:
            raise
        except Exception as error:
            self._failed(session, messages, error)
        else:
            for one in ran:
                self._after_commit(one)

    def _run(self, received: Received, database: Database | None) -> Ran:
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
        bury(session, message, error, self._queue, self._flows.whereabouts, self._flows.clock.now_us() // 1000)
        session.commit()

    def _after_commit(self, ran: Ran) -> None:
        for action in ran.after_commit:
            try:
                action()
            except Exception:
                logger.exception("%s: something to be done after the commit failed", self.stage.id)
