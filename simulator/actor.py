"""Base of applications: makes messages, picks addresses, receives, and predicts what a failover may do to a call."""

from __future__ import annotations

import io
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any, Protocol, TypeVar

from legato.client.calls.consumer_steps import ConsumerSteps
from legato.client.calls.patience import TIMEOUT
from legato.client.calls.producer_steps import ProducerSteps
from legato.client.links.session_state import AcknowledgeMode
from legato.client.mapping.conditions import UNBLOCKED
from legato.client.messages import BytesMessage, TextMessage
from legato.client.messages.destinations import Destination
from legato.client.steps import Steps
from legato.errors import JMSError, ResourceAllocationError, TransactionRolledBackError
from simulator.clients import Connection, Session, sleep
from simulator.history import History
from simulator.plan import COLORS, LINE, SHARED, TOPIC, Plan, QueuePlan
from simulator.record import text_of

Made = TypeVar("Made")

LARGE_CHARACTERS = (100, 9_000)
"""Of a message that may be large, beside its number."""
CLOSE_TIMEOUT_US = 60_000_000
"""So long closing waits for a broker (`close_timeout_s`)."""
GROUP_LENGTH = 5
"""Every so many messages one is the last of its group, where groups are closed."""


def color_of(number: int) -> str:
    """The property by which messages are selected."""
    return COLORS[number % len(COLORS)]


def wants(subscription: str, number: int) -> bool:
    """Whether a subscription wants a message."""
    return subscription != SHARED or color_of(number) == "red"


class TornFile(io.BytesIO):
    """A file that cannot be read beyond its middle."""

    def read(self, size: int | None = -1) -> bytes:
        """See `io.BytesIO.read`."""
        if self.tell() > len(self.getbuffer()) // 2:
            raise OSError("it is torn")
        return super().read(size)


class Run(Protocol):
    """What an application sees of the run that it is part of."""

    history: History
    random: Random
    plan: Plan
    recent_ids: dict[str, deque[str]]
    """Duplicate ids that were used, by address."""
    ending: bool
    """It is to come to its end."""

    batches: dict[str, list[Any]]
    """What sinks publish, by the sink's id: of each batch its bodies and its records."""
    published: Counter[str]
    """How many of them each was told are published."""

    def read_range(self, name: str, after: int, through: int) -> list[tuple[int, int]]:
        """What an assignment holds, as a process beside the broker reads it: sequences and numbers of messages."""

    def change_limits(self) -> None:
        """Queues are to have other bounds, once the configuration is read again."""

    def next_number(self) -> int:
        """A number for a message, unlike all others."""


class Actor:
    """One connection, and what one does with it."""

    def __init__(self, run: Run, connection: Connection) -> None:
        self.contract = connection._options.contract
        self.run = run
        self.random = run.random
        self.history = run.history
        self.connection = connection
        self.container = connection._transport.connecting.settings.container_id
        self.patient = True
        """Whether it may wait for room."""
        self._senders = 0
        self._again: str | None = None
        """A duplicate id to be used next."""

    def _new_message(self, destination: Destination, sender: str) -> tuple[TextMessage | BytesMessage, dict[str, Any]]:
        message, options = self._new_text(destination, sender)
        if self.run.plan.uploads and "length" in message.properties and self.random.random() < 0.6:
            return self._out_of_a_file(message), options
        return message, options

    def _out_of_a_file(self, message: TextMessage) -> BytesMessage:
        """The same as bytes of a file, which cannot be read to its end now and then."""
        self.history.counts["sent out of files"] += 1
        data = str(message.text).encode()
        torn = self.random.random() < 0.1
        sent = BytesMessage(stream=TornFile(data) if torn else io.BytesIO(data))
        for name, value in message.properties.items():
            sent.set_property(name, value)
        if torn:
            self.history.unreadable.add(sent)
        return sent

    def _new_text(self, destination: Destination, sender: str) -> tuple[TextMessage, dict[str, Any]]:
        number = self.run.next_number()
        message = TextMessage(f"<{number}>")
        message.properties["color"] = color_of(number)
        message.properties["sender"] = sender
        if self.run.plan.large and self.random.random() < (0.4 if self.run.plan.uploads else 0.15):
            # Its body is not where its facts are: what is left of it there says its number too.
            message.properties["mark"] = f"<{number}>"
            message.text = f"<{number}>" + "." * self.random.randint(*LARGE_CHARACTERS)
            message.properties["length"] = len(message.text)
        plan = self.run.plan.address(destination.name) or self.run.plan.topic
        if plan.grouped and self.random.random() < 0.7:
            group = message.properties["JMSXGroupID"] = f"g{number % 3}"
            self.history.groups[number] = group
            if self.run.plan.groups_close and number % GROUP_LENGTH == 0:
                message.properties["JMSXGroupSeq"] = -1
                self.history.closing.add(number)
        options: dict[str, Any] = {}
        if plan.repeated and self.random.random() < 0.8:
            options["duplicate_id"] = self._duplicate_id(destination.name, message)
        if not plan.ranked:
            return message, options
        if self.random.random() < 0.3:
            options["priority"] = self.random.randint(0, 9)
        if self.random.random() < 0.05:
            options["time_to_live_ms"] = self.random.choice([1, 500, 5_000])
        if self.random.random() < 0.1:
            options["delivery_delay_ms"] = self.random.choice([1, 300, 2_000])
        return message, options

    def _duplicate_id(self, name: str, message: TextMessage) -> str:
        """A new one, or one that somebody gave to another message; it stands in the body too."""
        recent = self.run.recent_ids.setdefault(name, deque(maxlen=6))
        duplicate_id = f"{name}-{self.run.next_number()}"
        if self._again is not None and self._again.startswith(f"{name}-"):
            duplicate_id, self._again = self._again, None
        elif recent and self.random.random() < 0.4:
            duplicate_id = self.random.choice(recent)
        recent.append(duplicate_id)
        message.properties["id"] = duplicate_id
        number, end, rest = str(message.text).partition(">")
        message.text = f"{number}{end}#{duplicate_id}#{rest}"
        if "length" in message.properties:
            message.properties["length"] = len(message.text)
        return duplicate_id

    def _somewhere(self, session: Session, *, may_wait: bool = True) -> Destination:
        """A queue or the topic; `may_wait`: also what makes its producers wait when it is full."""
        may_wait = may_wait and self.patient
        queues = [queue.name for queue in self.run.plan.queues if may_wait or queue.when_full != "block"]
        if not queues or self.random.random() < 0.3:
            return session._messages.create_topic(TOPIC)
        return session._messages.create_queue(self.random.choice(queues))

    def _sender(self) -> str:
        """A name for what a producer sends from now on, in order."""
        self._senders += 1
        return f"{self.container}/{self._senders}"

    def _completed(self, message: Any, error: JMSError | None) -> None:
        if error is None:
            self.history.was_confirmed(message)
        elif isinstance(error, ResourceAllocationError) or self._is_torn(message, error):
            self._refused(message)
        else:
            # Nobody knows whether it is stored: another message of the same duplicate id settles that (CONTRACT E17).
            cut_off = (not self.contract.resends and error.code == UNBLOCKED) or self.history.has_ended(error)
            self._expect(cut_off or self._may_give_up(error), f"send() raised {error}")
            self.history.counts["sends cut off" if cut_off else "sends given up"] += 1
            self._again = message.properties.get("id") or self._again

    def _is_torn(self, message: Any, error: JMSError) -> bool:
        """Whether it was not sent because its file cannot be read."""
        return message in self.history.unreadable and isinstance(error.linked, OSError)

    def _may_give_up(self, error: JMSError) -> bool:
        """Whether closing may have given up what there was no room for (`close_timeout_s`), what a slow log kept, or
        what was on its way over a link that a broker ended meanwhile."""
        plan = self.run.plan
        return error.code == TIMEOUT and (
            plan.disk_fills
            or bool(self.history.ended_links)
            or any(queue.when_full == "block" for queue in plan.queues)
            or self.history.was_slow(CLOSE_TIMEOUT_US)
        )

    def _closed(self, closing: Steps[None]) -> Steps[None]:
        """Close a producer or its session; what was sent with them may be given up."""
        try:
            yield from closing
        except JMSError as error:
            self._expect(self._may_give_up(error), f"close() raised {error}")

    def _refused(self, message: Any) -> None:
        """There was no room: another message of the same id is sent soon."""
        self.history.was_refused(message)
        self._again = message.properties.get("id") or self._again

    def _presented(self, session: Session, name: str, message: Any) -> int:
        length = message.properties.get("length")
        self._expect(
            length in (None, len(text_of(message))), f"{message.message_id} of {length} characters is not whole"
        )
        in_order = name == LINE or session.acknowledge_mode in (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK)
        return self.history.was_presented(name, message, self.container, in_order=in_order)

    def _producer(self, session: Session, *, may_wait: bool = True) -> Steps[ProducerSteps]:
        """A producer for a queue or the topic; `may_wait`: see `_somewhere`."""

        def create() -> Steps[ProducerSteps]:
            return session._factory.create_producer(self._somewhere(session, may_wait=may_wait))

        return (yield from self._insisting(create))

    def _consumer(self, session: Session) -> Steps[tuple[str, ConsumerSteps]]:
        """A consumer of a queue, and the name under which the store keeps what it receives from."""

        def create() -> Steps[tuple[str, ConsumerSteps]]:
            queue = self.random.choice(self.run.plan.queues)
            return queue.name, (yield from self._consumer_of(session, queue))

        return (yield from self._insisting(create))

    def _consumer_of(self, session: Session, queue: QueuePlan) -> Steps[ConsumerSteps]:
        """A consumer of a queue that wants all or some of it, much at once or little."""
        selector = None
        if queue.selected and self.random.random() < 0.7:
            selector = f"color = '{self.random.choice(COLORS)}'"
        prefetch = self.random.choice([0, 1, 5, 1000])
        priority = self.random.choice([0, 0, 0, 5]) if queue.ranked else 0
        return (
            yield from session._factory.create_consumer(
                session._messages.create_queue(queue.name), selector, prefetch=prefetch, priority=priority
            )
        )

    def _insisting(self, making: Callable[[], Steps[Made]]) -> Steps[Made]:
        """What `making` makes, as soon as the broker lets somebody."""
        while True:
            try:
                return (yield from making())
            except JMSError as error:
                if not self.history.has_ended(error):
                    raise
            yield from sleep(self.random.random() * 0.3)

    def _leave(self, ended: ConsumerSteps | ProducerSteps, *, subscribes: bool = False) -> Steps[None]:
        """The broker has ended its link: one may close it; who `subscribes` has to, before another one does so."""
        self.history.counts["consumers or producers replaced"] += 1
        if subscribes or self.random.random() < 0.5:
            yield from self._closed(ended._close())

    def _take(self, consumer: ConsumerSteps, timeout_s: float) -> Steps[Any]:
        """The next message; None if none comes, also if the failover contract ends the call.

        Raises:
            TransactionRolledBackError: the failover contract says so, of what the session had not acknowledged.
            JMSError: the broker has ended the consumer's link.
        """
        try:
            return (yield from consumer._receive(timeout_s))
        except TransactionRolledBackError:
            self._expect(self.contract.abort_raises, "P3: receive() raised although the contract knows of no abort")
            raise
        except JMSError as error:
            if self.history.has_ended(error):
                raise
            self._expect(self._is_released(error), f"receive() raised {error}")
            return None

    def _expect(self, allowed: bool, otherwise: str) -> None:
        """What a failover contract allows, and no other."""
        if not allowed:
            raise self.history.broken(otherwise)

    def _is_released(self, error: JMSError) -> bool:
        """Whether a call ended because the connection was lost, as the failover contract says (CONTRACT E11)."""
        return self.contract.releases_blocked_calls and error.code == UNBLOCKED
