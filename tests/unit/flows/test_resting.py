"""Workers after errors of messaging: they rest, the longer the more there are in a row."""

from __future__ import annotations

import threading
from typing import Any

from legato.client import Message, MessageConsumer, Session
from legato.errors import JMSError
from legato.flows.stages.session_worker import CHILL_FIRST_S, CHILL_JITTER, CHILL_MAX_S, SessionWorker


class Broker:
    """A connection, its sessions and consumers; it has some messages, and then closes."""

    def __init__(self, *messages: str) -> None:
        self.messages = list(messages)

    def connection(self) -> Broker:
        return self

    def create_session(self, **_: Any) -> Broker:
        return self

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None: ...

    def receive(self) -> str | None:
        return self.messages.pop(0) if self.messages else None


class Rests(threading.Event):
    """Says for how long somebody waits for it, and does not have them wait."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return self.is_set()


class Worker(SessionWorker):
    """Its messages say whether messaging fails."""

    def __init__(self, broker: Any) -> None:
        super().__init__(broker, "worker")
        self.broker = broker
        self._ending = self.rests = Rests()

    def consumer(self, session: Session) -> MessageConsumer:
        if not self.broker.messages:
            self._ending.set()
        return self.broker  # type: ignore[no-any-return]

    def take(self, session: Session, consumer: MessageConsumer, message: Message) -> None:
        if message == "refused":  # type: ignore[comparison-overlap]
            raise JMSError("The queue is full.")


def test_a_worker_rests_longer_for_errors_in_a_row_and_shortly_once_it_has_worked() -> None:
    """Each error of its process's life had counted."""
    worker = Worker(Broker(*["refused"] * 12, "good", "refused"))
    worker._work()
    rests = worker.rests.seconds
    assert len(rests) == 13
    assert rests[0] < rests[1] < rests[2]
    assert rests[11] >= CHILL_MAX_S * (1 - CHILL_JITTER)
    assert rests[12] <= CHILL_FIRST_S * (1 + CHILL_JITTER)
