"""The clients of a drill that receive, in every acknowledgement mode: what they saw, and what they were told."""

import threading
import time
from collections.abc import Callable

from legato.client import AcknowledgeMode, Connection, Message, MessageConsumer, Session, TextMessage
from legato.drill.flows import Counts, Flows
from legato.drill.load import Client, Work
from legato.drill.producers import identity_of, text_of
from legato.drill.records import REFUSED, STORED, Identity, RecordWriter
from legato.errors import IllegalStateError, TransactionRolledBackError
from legato.points import Point, Rig

FIRST_WAIT_S = 0.25
NEXT_WAIT_S = 0.02
ROLLBACK_PAUSE_S = 0.5
MESSAGES_AT_ONCE = 20

MODES = {
    Work.AUTO: AcknowledgeMode.AUTO,
    Work.LISTENER: AcknowledgeMode.AUTO,
    Work.DUPS_OK: AcknowledgeMode.DUPS_OK,
    Work.CLIENT: AcknowledgeMode.CLIENT,
    Work.INDIVIDUAL: AcknowledgeMode.INDIVIDUAL,
    Work.FORWARD: AcknowledgeMode.SESSION_TRANSACTED,
}
TOLD = (Work.CLIENT, Work.INDIVIDUAL, Work.FORWARD)
"""Works that hear whether their acknowledgements succeeded."""


class Getter:
    """One consuming client."""

    def __init__(
        self,
        client: Client,
        connection: Connection,
        record: RecordWriter,
        flows: Flows,
        counts: Counts,
        *,
        forwarded: RecordWriter | None = None,
        rig: Rig | None = None,
    ) -> None:
        self._client = client
        self._record = record
        self._flows = flows
        self._counts = counts
        self._forwarded = forwarded
        self._rig = rig
        self._number = 0
        self._session = connection.create_session(client.work is Work.FORWARD, MODES[client.work])
        self._consumer = self._create_consumer(self._session)
        self._producer = self._session.create_producer(self._session.create_queue(client.to)) if client.to else None
        connection.start()

    @property
    def subscription(self) -> str:
        """What it receives from, as the records name it."""
        return subscription_name(self._client)

    def run(self, stop: threading.Event) -> None:
        """Receive until all producers have ended (`stop`) and nothing more can come."""
        works: dict[Work, Callable[[], None]] = {
            Work.AUTO: self._take,
            Work.DUPS_OK: self._take,
            Work.CLIENT: self._acknowledge_all,
            Work.INDIVIDUAL: self._acknowledge_each,
            Work.FORWARD: self._forward,
        }
        if self._client.work is Work.LISTENER:
            self._consumer.message_listener = self._heard
            work = self._pause
        else:
            work = works[self._client.work]
        while not (stop.is_set() and self._flows.complete(self.subscription, self._client.flow)):
            work()

    def close(self) -> None:
        """Leave the session; a durable subscription stays."""
        self._session.close()

    def _create_consumer(self, session: Session) -> MessageConsumer:
        client = self._client
        if not client.topic:
            return session.create_consumer(session.create_queue(client.flow))
        topic = session.create_topic(client.flow)
        if client.shared:
            return session.create_shared_durable_consumer(topic, client.subscription)
        return session.create_durable_consumer(topic, client.subscription)

    # -- the acknowledgement modes

    def _take(self) -> None:
        self._flows.arrived(self.subscription, [identity for identity, _ in self._receive_some()])

    def _heard(self, message: Message) -> None:
        self._flows.arrived(self.subscription, [self._see(message)])

    def _pause(self) -> None:
        time.sleep(FIRST_WAIT_S)

    def _acknowledge_all(self) -> None:
        """After a failover some may have gone elsewhere; then recovering the session is right (CONTRACT B15)."""
        received = self._receive_some()
        if not received:
            return
        self._reach(Point.BETWEEN_RECEIVE_AND_ACKNOWLEDGE)
        try:
            received[-1][1].acknowledge()
        except IllegalStateError:
            self._settled([identity for identity, _ in received], surely=False)
            self._session.recover()
        else:
            self._settled([identity for identity, _ in received])

    def _acknowledge_each(self) -> None:
        for identity, message in self._receive_some():
            self._reach(Point.BETWEEN_RECEIVE_AND_ACKNOWLEDGE)
            try:
                message.acknowledge()
            except IllegalStateError:
                self._settled([identity], surely=False)
            else:
                self._settled([identity])

    def _forward(self) -> None:
        received = self._receive_some()
        if not received:
            return
        assert self._producer is not None
        assert self._forwarded is not None
        numbers: list[int] = []
        for _ in received:
            self._number += 1
            numbers.append(self._number)
            self._producer.send(TextMessage(text_of(Identity(self._client.name, self._number))))
        self._reach(Point.BETWEEN_SEND_AND_COMMIT)
        try:
            self._session.commit()
        except TransactionRolledBackError:
            self._counts.add("rolled_back")
            self._forwarded.sent(REFUSED, numbers)
            # Without a pause a full disk would use up all deliveries of a message.
            time.sleep(ROLLBACK_PAUSE_S)
        else:
            self._counts.add("stored", len(numbers))
            self._forwarded.sent(STORED, numbers)
            self._settled([identity for identity, _ in received])

    # -- what they share

    def _receive_some(self) -> list[tuple[Identity, Message]]:
        """What is there, waiting a little for the first one only."""
        received: list[tuple[Identity, Message]] = []
        while len(received) < MESSAGES_AT_ONCE:
            message = self._consumer.receive(timeout_s=NEXT_WAIT_S if received else FIRST_WAIT_S)
            if message is None:
                break
            received.append((self._see(message), message))
        return received

    def _see(self, message: Message) -> Identity:
        identity = identity_of(message)
        self._record.seen(identity, message.redelivered)
        self._counts.add("seen")
        return identity

    def _settled(self, messages: list[Identity], *, surely: bool = True) -> None:
        self._record.done(messages, surely=surely)
        self._flows.arrived(self.subscription, messages)

    def _reach(self, point: Point) -> None:
        if self._rig is not None:
            self._rig.reach(point)


def subscription_name(client: Client) -> str:
    """What a consumer receives from: its queue, or its topic's subscription."""
    return f"{client.flow}/{client.subscription}" if client.topic else client.flow
