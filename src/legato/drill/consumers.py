"""Consuming clients of a drill, with threads, in every acknowledgement mode."""

import threading
import time
from collections.abc import Callable

from legato.client import Connection, Message, MessageConsumer, Session, TextMessage
from legato.drill.client_history import (
    FIRST_WAIT_S,
    MESSAGES_AT_ONCE,
    MODES,
    NEXT_WAIT_S,
    ROLLBACK_PAUSE_S,
    TRANSACTED,
    ClientHistory,
)
from legato.drill.load import Client, Trait, Work
from legato.drill.messages import is_poisoned, stumbles, text_of
from legato.drill.producers import THOUSANDS_PER_COMMIT
from legato.drill.records import REFUSED, SENDING, STORED, UNSURE, Identity, RecordWriter
from legato.errors import IllegalStateError, JMSError, TransactionRolledBackError
from legato.failpoints import Point


class Getter:
    """One consuming client.

    Args:
        forwarded: of a forwarder, the record of what it sends.
        lenient: whether its failover contract lets calls raise that `legato`'s lets go on.
    """

    def __init__(
        self,
        client: Client,
        connection: Connection,
        account: ClientHistory,
        *,
        forwarded: RecordWriter | None = None,
        lenient: bool = False,
    ) -> None:
        self._client = client
        self._account = account
        self._forwarded = forwarded
        self._lenient = lenient
        self._number = forwarded.last_number if forwarded else 0
        self._session = connection.create_session(client.work in TRANSACTED, MODES[client.work])
        self._consumer = self._create_consumer(self._session)
        self._producer = self._session.create_producer(self._session.create_queue(client.to)) if client.to else None
        connection.start()

    def run(self, stop: threading.Event) -> None:
        """Receive until all producers have ended (`stop`) and nothing more can come."""
        works: dict[Work, Callable[[], None]] = {
            Work.AUTO: self._take,
            Work.DUPS_OK: self._take,
            Work.LISTENER: self._pause,
            Work.CLIENT: self._acknowledge_all,
            Work.INDIVIDUAL: self._acknowledge_each,
            Work.FORWARD: self._forward,
            Work.PICKY: self._pick,
        }
        work = works[self._client.work]
        if self._client.work is Work.LISTENER:
            self._consumer.message_listener = self._heard
        while not (stop.is_set() and self._account.complete):
            work()

    def close(self) -> None:
        """Leave the session; a durable subscription stays."""
        self._session.close()

    def _create_consumer(self, session: Session) -> MessageConsumer:
        client = self._client
        if not client.topic:
            return session.create_consumer(session.create_queue(client.flow), client.selector or None)
        topic = session.create_topic(client.flow)
        if client.shared:
            return session.create_shared_durable_consumer(topic, client.subscription)
        return session.create_durable_consumer(topic, client.subscription)

    # -- the acknowledgement modes

    def _take(self) -> None:
        self._receive_some(MESSAGES_AT_ONCE)

    def _heard(self, message: Message) -> None:
        self._account.see(message)

    def _pause(self) -> None:
        time.sleep(FIRST_WAIT_S)

    def _acknowledge_all(self) -> None:
        """After a failover some may have gone elsewhere; then recovering the session is right (CONTRACT B15)."""
        received = self._receive_some(MESSAGES_AT_ONCE)
        if not received:
            return
        identities = [identity for identity, _ in received]
        self._account.hit(Point.BETWEEN_RECEIVE_AND_ACKNOWLEDGE)
        self._account.trying(identities)
        try:
            received[-1][1].acknowledge()
        except JMSError as error:
            self._check(error, IllegalStateError)
            self._account.done(identities, surely=False)
            self._session.recover()
        else:
            self._account.done(identities)

    def _acknowledge_each(self) -> None:
        for identity, message in self._receive_some(MESSAGES_AT_ONCE):
            self._account.hit(Point.BETWEEN_RECEIVE_AND_ACKNOWLEDGE)
            self._account.trying([identity])
            try:
                message.acknowledge()
            except JMSError as error:
                self._check(error, IllegalStateError)
                self._account.done([identity], surely=False)
            else:
                self._account.done([identity])

    def _forward(self) -> None:
        bulky = self._client.trait is Trait.THOUSANDS
        received = self._receive_some(THOUSANDS_PER_COMMIT if bulky else MESSAGES_AT_ONCE)
        if not received:
            return
        assert self._producer is not None
        assert self._forwarded is not None
        identities, numbers = [identity for identity, _ in received], list[int]()
        self._account.hit(Point.BETWEEN_DECLARE_AND_DISCHARGE)
        for source in identities:
            self._number += 1
            numbers.append(self._number)
            self._forwarded.sent(SENDING, [self._number])
            self._producer.send(TextMessage(text_of(Identity(self._client.name, self._number), source=source)))
        self._account.hit(Point.BETWEEN_SEND_AND_COMMIT)
        self._commit(identities, self._forwarded, numbers)

    def _commit(self, identities: list[Identity], forwarded: RecordWriter | None, numbers: list[int]) -> None:
        self._account.trying(identities)
        outcome = STORED
        try:
            self._session.commit()
        except JMSError as error:
            self._check(error, TransactionRolledBackError)
            # Contracts that do not find out what became of a commit roll back what may have been committed.
            outcome = UNSURE if self._lenient else REFUSED
            if self._lenient:
                self._account.done(identities, surely=False)
            else:
                self._account.undone(identities)
            # Without a pause a full disk would use up all deliveries of a message.
            time.sleep(ROLLBACK_PAUSE_S)
        else:
            self._account.done(identities)
        if forwarded is not None:
            forwarded.sent(outcome, numbers)

    def _pick(self) -> None:
        for identity, message in self._receive_some(1):
            if is_poisoned(identity) or (stumbles(identity) and not message.redelivered):
                self._session.rollback()
                self._account.undone([identity])
            else:
                self._commit([identity], None, [])

    # -- what they share

    def _receive_some(self, most: int) -> list[tuple[Identity, Message]]:
        """Receive the messages that are here; waits a little for the first one only.

        Faults cut off a transaction of thousands more often than others. What has come back too often is done with in
        short ones: it would become a dead letter.
        """
        received: list[tuple[Identity, Message]] = []
        while len(received) < most:
            try:
                message = self._consumer.receive(timeout_s=NEXT_WAIT_S if received else FIRST_WAIT_S)
            except JMSError as error:
                self._check(error)
                break
            if message is None:
                break
            if self._account.spares(message):
                most = min(most, MESSAGES_AT_ONCE)
            received.append((self._account.see(message), message))
        return received

    def _check(self, error: JMSError, *expected: type[JMSError]) -> None:
        if not self._lenient and not isinstance(error, expected):
            raise error
