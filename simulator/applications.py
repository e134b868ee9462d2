"""Applications: clients that use sessions, producers and consumers, and record what they were promised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from legato.client.calls.consumer_steps import ConsumerSteps
from legato.client.calls.producer_steps import ProducerSteps
from legato.client.links.session_state import AcknowledgementOutcome, AcknowledgeMode
from legato.client.steps import Steps
from legato.errors import IllegalStateError, JMSError, TransactionRolledBackError
from simulator.actor import Actor
from simulator.clients import Session, sleep
from simulator.plan import DURABLE, SHARED, TOPIC, VISITS

WENT_ELSEWHERE = "WENT_ELSEWHERE"


class Application(Actor):
    """A client's process: one connection, one thing that it does until it is killed or told to end."""

    def produce(self) -> Steps[None]:
        """Send, and wait for each; or send with a completion listener."""
        session = self.connection.create_session()
        asynchronous = self.random.random() < 0.4
        producer = yield from self._producer(session)
        sender = self._sender()
        assert producer.destination is not None
        while not self.run.ending:
            message, options = self._new_message(producer.destination, sender)
            ended = False
            try:
                if asynchronous:
                    yield from producer._send(message, completion_listener=self._completed, **options)
                else:
                    yield from producer._send(message, **options)
                    self.history.was_confirmed(message)
            except JMSError as error:
                ended = self.history.has_ended(error)
                if asynchronous and not ended:
                    raise
                self._completed(message, error)
            if ended:
                yield from self._leave(producer)
                producer = yield from self._producer(session)
                sender = self._sender()
                assert producer.destination is not None
            if self.random.random() < 0.3:
                yield from sleep(self.random.random() * 0.1)
            if self.random.random() < 0.02:
                yield from self._closed(producer._close())
                producer = yield from self._producer(session)
                sender = self._sender()
                assert producer.destination is not None
        yield from self._closed(session._close())

    def subscribe_alone(self) -> Steps[None]:
        """Receive from a durable subscription that only this client has."""
        mode = self.random.choice([AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT])
        session = self.connection.create_session(acknowledge_mode=mode)
        topic = session._messages.create_topic(TOPIC)
        yield from self._receive(session, DURABLE, lambda: session._factory.create_durable_consumer(topic, "all"))

    def subscribe_together(self) -> Steps[None]:
        """Receive from a durable subscription with others."""
        mode = self.random.choice([AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT])
        session = self.connection.create_session(acknowledge_mode=mode)
        topic = session._messages.create_topic(TOPIC)
        create = session._factory.create_shared_durable_consumer
        yield from self._receive(session, SHARED, lambda: create(topic, "reds", "color = 'red'"))

    def consume(self) -> Steps[None]:
        """Receive one by one, in any acknowledge mode."""
        mode = self.random.choice([m for m in AcknowledgeMode if m is not AcknowledgeMode.SESSION_TRANSACTED])
        session = self.connection.create_session(acknowledge_mode=mode)
        queue = self.random.choice(self.run.plan.queues)
        yield from self._receive(session, queue.name, lambda: self._consumer_of(session, queue))

    def _receive(self, session: Session, name: str, create: Callable[[], Steps[ConsumerSteps]]) -> Steps[None]:
        """Receive from what has that name; `create` makes a consumer of it, and another one if that is ended."""
        consumer = yield from self._insisting(create)
        mode = session.acknowledge_mode
        held: list[tuple[int, Any]] = []
        losses = 0
        came_back = False
        """Whether the broker has ended a link over which something came that is held."""
        while not self.run.ending:
            came_back = came_back and bool(held)
            # Who holds nothing has nothing to be aborted.
            holds = bool(held) and not came_back
            aborted = mode is AcknowledgeMode.CLIENT and holds and losses != session._channel.interruptions
            try:
                message = yield from self._take(consumer, 0.2)
            except TransactionRolledBackError:
                held.clear()
                continue
            except JMSError:
                yield from self._leave(consumer, subscribes=name in (DURABLE, SHARED))
                consumer = yield from self._insisting(create)
                came_back = True
                continue
            self._expect(not (aborted and self.contract.abort_raises), "A11: receive() went on after an abort")
            if message is not None:
                number = self._presented(session, name, message)
                if any(number == earlier for earlier, _ in held):
                    # What the application had is given to it again: it starts over, if its contract says so (A15).
                    kept = held if self.contract.keeps_unacknowledged else []
                    held = [pair for pair in kept if pair[0] != number]
                # A connection that was lost while it waited for its first message took nothing from it.
                losses = losses if held else session._channel.interruptions
                held.append((number, message))
            if mode not in (AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL):
                held.clear()
            elif held and self.random.random() < 0.4:
                yield from self._settle(session, name, held)
            if self.random.random() < 0.2:
                yield from sleep(self.random.random() * 0.2)
            if self.random.random() < 0.01:
                return
        yield from session._close()

    def _settle(self, session: Session, name: str, held: list[tuple[int, Any]]) -> Steps[None]:
        chance = self.random.random()
        if chance < 0.2:
            held.clear()
            yield from session._acknowledgements.recover()
        elif chance < 0.5:
            yield from self._settle_all(session, name, held)
        else:
            yield from self._settle_some(session, name, held)

    def _settle_some(self, session: Session, name: str, held: list[tuple[int, Any]]) -> Steps[None]:
        """Acknowledge as Jakarta Messaging has it: all or one, by mode, without outcomes but by error."""
        numbers, messages = [number for number, _ in held], [message for _, message in held]
        if session.acknowledge_mode is AcknowledgeMode.INDIVIDUAL:
            at = self.random.randrange(len(held))
            del held[at]
            numbers, messages = [numbers[at]], [messages[at]]
        else:
            held.clear()
        late = self.contract.late_acknowledgement
        losses = session._channel.interruptions
        try:
            yield from messages[0].acknowledge()
        except (IllegalStateError, TransactionRolledBackError) as error:
            aborted = self.contract.abort_raises and error.code != WENT_ELSEWHERE
            self._expect(aborted or (late is not None and isinstance(error, late)), f"acknowledge() raised {error}")
            if not aborted:
                unsure = losses != session._channel.interruptions
                self.history.went_elsewhere(name, numbers, self.container, unsure=unsure)
            held.clear()
            yield from session._acknowledgements.recover()
        except JMSError as error:
            self._expect(self._is_released(error), f"acknowledge() raised {error}")
            held.clear()
        else:
            if late is not None:
                self.history.was_acknowledged(name, numbers, self.container)

    def _settle_all(self, session: Session, name: str, held: list[tuple[int, Any]]) -> Steps[None]:
        """Acknowledge all, and hear what became of each: the truth under every contract (promise 5)."""
        numbers = {message.message_id: number for number, message in held}
        held.clear()
        losses = session._channel.interruptions
        outcomes = yield from session._acknowledgements.acknowledge_all()
        unsure = losses != session._channel.interruptions
        for message_id, outcome in outcomes.items():
            if message_id not in numbers:
                continue
            number = [numbers[message_id]]
            if outcome is AcknowledgementOutcome.WENT_ELSEWHERE:
                self.history.went_elsewhere(name, number, self.container, unsure=unsure)
            else:
                self.history.was_acknowledged(name, number, self.container)

    def listen(self) -> Steps[None]:
        """Receive with a listener, which raises now and then."""
        mode = self.random.choice([AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK])
        session = self.connection.create_session(acknowledge_mode=mode)
        name, consumer = yield from self._consumer(session)

        def on_message(message: Any) -> None:
            self._presented(session, name, message)

        consumer.message_listener = on_message
        while not self.run.ending:
            yield from sleep(0.2)
            if consumer._end.error is not None:
                yield from self._leave(consumer)
                name, consumer = yield from self._consumer(session)
                consumer.message_listener = on_message
        yield from session._close()

    def transact(self) -> Steps[None]:
        """Receive and send in transactions; commit, roll back, replay."""
        session = self.connection.create_session(transacted=True)
        name, consumer = yield from self._consumer(session)
        # Who waits for room in a transaction may wait for what the transaction itself has received.
        producer = yield from self._producer(session, may_wait=False)
        sender = self._sender()
        received: list[tuple[str, int]] = []
        sent: list[Any] = []
        while not self.run.ending:
            try:
                yield from self._receive_some(session, name, consumer, received)
            except TransactionRolledBackError:
                self.history.was_rolled_back(sent, received, self.container)
                received, sent = [], self._replay(session, sent)
                continue
            except JMSError:
                yield from self._leave(consumer)
                name, consumer = yield from self._consumer(session)
            if not (yield from self._send_some(producer, sender, sent, self.random.randint(0, 3))):
                yield from self._leave(producer)
                producer, sender = (yield from self._producer(session, may_wait=False)), self._sender()
            if self.random.random() < 0.2:
                yield from session._transactions.rollback()
                self.history.was_rolled_back(sent, received, self.container)
                received, sent = [], []
                continue
            committed = yield from self._commit(session, sent, received)
            received = []
            sent = [] if committed else self._replay(session, sent)
        if received or sent:
            yield from session._transactions.rollback()
            self.history.was_rolled_back(sent, received, self.container)
        yield from session._close()

    def fill(self) -> Steps[None]:
        """Send in transactions to a queue that may be full, receive nothing; commit, roll back, replay."""
        session = self.connection.create_session(transacted=True)

        def create() -> Steps[ProducerSteps]:
            queue = session._messages.create_queue(self.random.choice(self.run.plan.filled))
            return session._factory.create_producer(queue)

        producer = yield from self._insisting(create)
        sender = self._sender()
        sent: list[Any] = []
        while not self.run.ending:
            if not (yield from self._send_some(producer, sender, sent, self.random.randint(1, 4), rests=True)):
                yield from self._leave(producer)
                producer, sender = (yield from self._insisting(create)), self._sender()
            if self.random.random() < 0.15:
                yield from session._transactions.rollback()
                self.history.was_rolled_back(sent, [], self.container)
                sent = []
                continue
            committed = yield from self._commit(session, sent, [])
            sent = [] if committed else self._replay(session, sent)
        if sent:
            yield from session._transactions.rollback()
            self.history.was_rolled_back(sent, [], self.container)
        yield from session._close()

    def _send_some(
        self, producer: ProducerSteps, sender: str, sent: list[Any], count: int, *, rests: bool = False
    ) -> Steps[bool]:
        """Send in a transaction, with rests in between; False if the broker has ended the producer's link."""
        assert producer.destination is not None
        for _ in range(count):
            new, options = self._new_message(producer.destination, sender)
            try:
                yield from producer._send(new, **options)
            except JMSError as error:
                if not self.history.has_ended(error):
                    raise
                return False
            sent.append(new)
            if rests and self.random.random() < 0.3:
                yield from sleep(self.random.random() * 0.1)
        return True

    def _receive_some(
        self, session: Session, name: str, consumer: ConsumerSteps, received: list[tuple[str, int]]
    ) -> Steps[None]:
        for _ in range(self.random.randint(0, 3)):
            message = yield from self._take(consumer, 0.1)
            if message is not None:
                received.append((name, self._presented(session, name, message)))

    def _replay(self, session: Session, sent: list[Any]) -> list[Any]:
        """Send again what was rolled back, or leave it; what is in the next transaction therefore."""
        if not sent or self.random.random() < 0.3:
            return []
        self.history.will_replay(sent)
        try:
            session._transactions.replay()
        except IllegalStateError as error:
            self._expect(bool(self.history.ended_links), f"replay() raised {error}")
            self.history.was_not_replayed(sent)
            return []
        return sent

    def _commit(self, session: Session, sent: list[Any], received: list[tuple[str, int]]) -> Steps[bool]:
        """Commit; whether it was. Where the failover contract leaves the outcome open, one asks for it (E14)."""
        committed: bool | None = True
        try:
            yield from session._transactions.commit()
        except TransactionRolledBackError as error:
            committed = False
            if not self.contract.resolves_calls and error.transaction_id:
                committed = yield from self._outcome(session, error.transaction_id)
        if committed:
            self.history.was_committed(sent, received, self.container)
        else:
            self.history.was_rolled_back(sent, received, self.container)
        return bool(committed)

    def _outcome(self, session: Session, transaction_id: bytes) -> Steps[bool | None]:
        """What the broker says became of a transaction."""
        self.history.counts["outcomes asked for"] += 1
        while True:
            try:
                return (yield from session._transactions.commit_outcome(transaction_id))
            except JMSError as error:
                self._expect(self._is_released(error), f"commit_outcome() raised {error}")

    def drain(self, names: list[str], done: Callable[[], bool]) -> Steps[None]:
        """Consume all that is left."""
        session = self.connection.create_session()
        consumers: list[tuple[str, ConsumerSteps]] = []
        for name in names:
            if name == DURABLE:
                consumer = yield from session._factory.create_durable_consumer(
                    session._messages.create_topic(TOPIC), "all"
                )
            elif name == SHARED:
                topic = session._messages.create_topic(TOPIC)
                consumer = yield from session._factory.create_shared_durable_consumer(topic, "reds", "color = 'red'")
            elif name == VISITS:
                consumer = yield from session._factory.create_shared_durable_consumer(
                    session._messages.create_topic(TOPIC), "visits"
                )
            else:
                consumer = yield from session._factory.create_consumer(session._messages.create_queue(name))
            consumers.append((name, consumer))
        pause_s = 0.05
        while not done():
            pause_s = min(pause_s * 1.5, 2.0)
            for name, consumer in consumers:
                while (message := (yield from consumer._receive(0.01))) is not None:
                    self._presented(session, self.history.buried(name, message), message)
                    pause_s = 0.05
            yield from sleep(pause_s)
        yield from session._close()
