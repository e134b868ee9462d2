"""A thread that takes messages in a transacted session until it is stopped; it replaces a lost session."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from random import Random
from typing import TYPE_CHECKING

from legato.client import Message, MessageConsumer, Session
from legato.errors import JMSError, TransactionRolledBackError
from legato.quoting import sentence

if TYPE_CHECKING:
    from legato.flows.stages.running_service import RunningService

logger = logging.getLogger(__name__)

CHILL_FIRST_S = 0.1
CHILL_MAX_S = 30.0
CHILL_JITTER = 0.1
WAIT_MAX_S = 0.5
"""Seconds after which a worker that takes nothing looks again whether it may."""


class SessionWorker(ABC):
    """Base of a service's threads.

    Args:
        name: for people who look at threads and logs.
    """

    def __init__(self, flows: RunningService, name: str) -> None:
        self.name = name
        self._service = flows
        self._random = Random()
        self._ending = threading.Event()
        self._lock = threading.Lock()
        """Held while it is decided whether a message that came is still worked on."""
        self._idle = threading.Event()
        self._tried = threading.Event()
        """Set once it has its first consumer, or failed to get one."""
        self._chill_s = CHILL_FIRST_S
        """How long it rests after the next failure."""
        self._session: Session | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    @abstractmethod
    def consumer(self, session: Session) -> MessageConsumer:
        """The consumer of a new session."""

    @abstractmethod
    def take(self, session: Session, consumer: MessageConsumer, message: Message) -> None:
        """Work on a message, and commit or roll back."""

    def wait_s(self) -> float:
        """How many seconds to take no messages and have none; 0 to go on."""
        return 0.0

    def start(self) -> None:
        """Begin to take messages."""
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether its thread is the one that asks."""
        return threading.current_thread() is self._thread

    @property
    def was_started(self) -> bool:
        """Whether it began to take messages."""
        return self._thread.ident is not None

    def await_consumer(self) -> None:
        """Wait until it has its first consumer, has failed to get one, or ends."""
        self._tried.wait()

    def ask_to_end(self) -> None:
        """Take no further message."""
        with self._lock:
            self._ending.set()

    def finish(self, timeout_s: float) -> bool:
        """Wait for the message that is worked on; whether that is done after `timeout_s`."""
        self.ask_to_end()
        return not self.was_started or self._idle.wait(timeout_s) or not self._thread.is_alive()

    def end(self, timeout_s: float) -> None:
        """Roll back what is worked on, and wait `timeout_s` for the thread."""
        self.ask_to_end()
        session = self._session
        if session is not None:
            try:
                session.close()
            except JMSError as error:
                logger.warning("%s: %s", self.name, sentence(error))
        if self.was_started:
            self._thread.join(timeout_s)

    def _work(self) -> None:
        while not self._ending.is_set():
            try:
                with self._service.connection().create_session(transacted=True) as session:
                    self._session = session
                    self._serve(session)
                self._chill_s = CHILL_FIRST_S
            except Exception as error:
                if self._ending.is_set():
                    break
                self._tried.set()
                # Whatever it is, a thread that ended would leave its queue to nobody.
                trace = None if isinstance(error, JMSError) else error
                logger.warning(
                    "%s: %s Again in %.1f s.",
                    self.name,
                    sentence(error),
                    self._chill_s,
                    exc_info=trace,
                )
                self._ending.wait(self._chill_s * (1 + self._random.uniform(-CHILL_JITTER, CHILL_JITTER)))
                self._chill_s = min(2 * self._chill_s, CHILL_MAX_S)
        self._idle.set()
        self._tried.set()

    def _serve(self, session: Session) -> None:
        consumer = self.consumer(session)
        self._tried.set()
        while not self._ending.is_set():
            self._idle.set()
            if self.wait_s():
                # What was prefetched is for others meanwhile.
                consumer.close()
                while wait_s := self.wait_s():
                    if self._ending.wait(min(wait_s, WAIT_MAX_S)):
                        return
                consumer = self.consumer(session)
            message = consumer.receive()
            if message is None:
                break
            if not self._begins():
                session.give_back(message)
                session.commit()
                break
            try:
                self.take(session, consumer, message)
                self._chill_s = CHILL_FIRST_S
            except TransactionRolledBackError as error:
                logger.info("%s: rolled back by a failover, comes again: %s", self.name, sentence(error))
                # Not only a commit tells of it: who hears of it sooner has not ended the transaction.
                session.rollback()

    def _begins(self) -> bool:
        """Whether a message that came is worked on; then who stops the service waits for its end."""
        with self._lock:
            if self._ending.is_set():
                return False
            self._idle.clear()
            return True
