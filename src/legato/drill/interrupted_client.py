"""A blocking client of a drill whose calls a signal handler interrupts at any instant; its session goes on."""

import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from legato.client import Connection, Message, TextMessage
from legato.drill.client_history import FIRST_WAIT_S, MODES, NEXT_WAIT_S, ROLLBACK_PAUSE_S, ClientHistory
from legato.drill.load import Client
from legato.drill.messages import text_of
from legato.drill.records import REFUSED, SENDING, STORED, UNSURE, Identity, RecordWriter
from legato.errors import IllegalStateError, JMSError, TransactionRolledBackError

T = TypeVar("T")

MESSAGES_PER_COMMIT_MAX = 5
ROLLED_BACK_ONE_IN = 5
INTERRUPTED_ONE_IN = 6
"""There are some forty calls a second, and some of these have returned by then: five a second are interrupted."""
INTERRUPTED_AFTER_MAX_S = (0.00003, 0.0001, 0.003, 0.05)
"""Calls work for so long, wait for the broker for so long, and wait for messages for so long."""


class Interrupted(Exception):
    """The exception that the signal handler raises."""


class Outcome(Generic[T]):
    """Result of a call, if it was not interrupted."""

    def __init__(self, value: T) -> None:
        self.value = value


class Alarm:
    """Interrupts calls of the main thread; Python runs handlers of signals in no other."""

    def __init__(self) -> None:
        self.interruptions = 0
        self._armed = False
        self._chance = random.Random()
        signal.signal(signal.SIGALRM, self._ring)

    def call(self, function: Callable[[], T]) -> Outcome[T] | None:
        """Result of a call; None if it was interrupted before, as one of some is.

        Args:
            function: made in Python: after one that is not, Python may run a handler before anybody has its result.
        """
        outcome: Outcome[T] = Outcome.__new__(Outcome)
        if self._chance.random() * INTERRUPTED_ONE_IN < 1:
            soon_s = self._chance.uniform(1e-6, self._chance.choice(INTERRUPTED_AFTER_MAX_S))
            signal.setitimer(signal.ITIMER_REAL, soon_s)
        try:
            self._armed = True
            outcome.value = function()
            self._armed = False
        except Interrupted:
            # It may have come after the call.
            return outcome if hasattr(outcome, "value") else None
        finally:
            self._armed = False
        return outcome

    def insist(self, function: Callable[[], T]) -> T:
        """Call again what is interrupted."""
        while (outcome := self.call(function)) is None:
            pass
        return outcome.value

    def _ring(self, *_: object) -> None:
        armed, self._armed = self._armed, False
        if armed:
            self.interruptions += 1
            raise Interrupted


class InterruptedClient:
    """A consumer in the main thread, some of whose calls are interrupted; its session goes on.

    An interrupted `receive()` loses nothing, so nothing is forgiven that would not be without interruptions. What has
    come back too often is not rolled back by chance any more: it would become a dead letter.

    Args:
        transacted: whether its session is; otherwise it acknowledges in CLIENT mode.
        lenient: whether its failover contract lets calls raise that `legato`'s lets go on.
    """

    def __init__(
        self, client: Client, connection: Connection, account: ClientHistory, *, transacted: bool, lenient: bool
    ) -> None:
        self._client = client
        self._account = account
        self._lenient = lenient
        self._session = connection.create_session(transacted, MODES[client.work])
        self._consumer = self._session.create_consumer(self._session.create_queue(client.flow))
        self._alarm = Alarm()
        self._chance = random.Random()
        self._in_earnest = False
        """Whether nothing is rolled back by chance for now."""
        connection.start()

    def run(self, stop: threading.Event) -> None:
        """Receive until all producers have ended (`stop`) and nothing more can come; in the main thread only."""
        while not (stop.is_set() and self._account.complete):
            received = self._receive_some()
            if received:
                by_chance = self._chance.random() * ROLLED_BACK_ONE_IN < 1
                self._work(received, roll_back=by_chance and not self._in_earnest)

    def close(self) -> None:
        """Leave the session; the log says how often it was interrupted."""
        self._session.close()
        print(f"{self._alarm.interruptions} calls were interrupted", file=sys.stderr)

    def _work(self, received: list[tuple[Identity, Message]], *, roll_back: bool) -> None:
        """Be done with what was received, or have it come again."""
        raise NotImplementedError

    def _receive_some(self) -> list[tuple[Identity, Message]]:
        received: list[tuple[Identity, Message]] = []
        self._in_earnest = False
        while len(received) < MESSAGES_PER_COMMIT_MAX:
            wait_s = NEXT_WAIT_S if received else FIRST_WAIT_S
            try:
                outcome = self._alarm.call(lambda: self._consumer.receive(wait_s))  # noqa: B023 - called at once
            except JMSError as error:
                self._check(error)
                break
            if outcome is None:
                continue
            if outcome.value is None:
                break
            assert isinstance(outcome.value, Message)
            self._in_earnest |= self._account.spares(outcome.value)
            received.append((self._account.see(outcome.value), outcome.value))
        return received

    def _check(self, error: JMSError, *expected: type[JMSError]) -> None:
        if not self._lenient and not isinstance(error, expected):
            raise error


class InterruptedForwarder(InterruptedClient):
    """Receives, sends on and commits, as forwarders do.

    After an interrupted `send()` nobody knows whether the message is part of the transaction, so that is rolled back.
    An interrupted `commit()` or `rollback()` is called again, which tells its outcome.
    """

    def __init__(
        self,
        client: Client,
        connection: Connection,
        account: ClientHistory,
        *,
        forwarded: RecordWriter,
        lenient: bool = False,
    ) -> None:
        super().__init__(client, connection, account, transacted=True, lenient=lenient)
        self._forwarded = forwarded
        self._number = forwarded.last_number
        self._producer = self._session.create_producer(self._session.create_queue(client.to))

    def _work(self, received: list[tuple[Identity, Message]], *, roll_back: bool) -> None:
        identities = [identity for identity, _ in received]
        if roll_back:
            self._roll_back(identities, [])
        else:
            self._forward(identities)

    def _forward(self, identities: list[Identity]) -> None:
        numbers: list[int] = []
        for source in identities:
            self._number += 1
            numbers.append(self._number)
            self._forwarded.sent(SENDING, [self._number])
            letter = TextMessage(text_of(Identity(self._client.name, self._number), source=source))
            if self._in_earnest:
                self._producer.send(letter)
            elif self._alarm.call(lambda: self._producer.send(letter)) is None:  # noqa: B023 - called at once
                self._roll_back(identities, numbers)
                return
        self._account.trying(identities)
        try:
            self._alarm.insist(self._session.commit)
        except JMSError as error:
            self._check(error, TransactionRolledBackError)
            self._rolled_back(identities, numbers)
            time.sleep(ROLLBACK_PAUSE_S)
        else:
            self._forwarded.sent(STORED, numbers)
            self._account.done(identities)

    def _roll_back(self, identities: list[Identity], numbers: list[int]) -> None:
        """Called again if interrupted: at the very beginning nothing has happened yet."""
        try:
            self._alarm.insist(self._session.rollback)
        except JMSError as error:
            self._check(error, TransactionRolledBackError)
        self._rolled_back(identities, numbers)

    def _rolled_back(self, identities: list[Identity], numbers: list[int]) -> None:
        self._forwarded.sent(UNSURE if self._lenient else REFUSED, numbers)
        if self._lenient:
            self._account.done(identities, surely=False)
        else:
            self._account.undone(identities)


class InterruptedAcknowledger(InterruptedClient):
    """Receives and acknowledges, in CLIENT mode.

    An interrupted `acknowledge()` or `recover()` is called again, which tells its outcome.
    """

    def __init__(
        self, client: Client, connection: Connection, account: ClientHistory, *, lenient: bool = False
    ) -> None:
        super().__init__(client, connection, account, transacted=False, lenient=lenient)

    def _work(self, received: list[tuple[Identity, Message]], *, roll_back: bool) -> None:
        identities = [identity for identity, _ in received]
        if roll_back:
            self._recover()
            self._account.undone(identities)
            return
        self._account.trying(identities)
        try:
            self._alarm.insist(received[-1][1].acknowledge)
        except JMSError as error:
            # After a failover some may have gone elsewhere (CONTRACT B15).
            self._check(error, IllegalStateError)
            self._account.done(identities, surely=False)
            self._recover()
        else:
            self._account.done(identities)

    def _recover(self) -> None:
        try:
            self._alarm.insist(self._session.recover)
        except JMSError as error:
            self._check(error)
