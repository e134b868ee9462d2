"""Reservations: messages kept for a consumer whose connection was lost, for a time (CONTRACT B21).

Messages that its application has, its groups, and its turn at an exclusive queue.
"""

from __future__ import annotations

from collections.abc import Collection

from legato.core.consumers import Consumer, Reservation
from legato.core.dispatch_modes import DispatchModes
from legato.core.dispatcher import Dispatcher
from legato.core.facts import MessagePresented, MessageReturned
from legato.core.kernel import Kernel
from legato.core.message import Message
from legato.core.message_states import CLAIM, KEEP, enter
from legato.core.presentations import Presentations
from legato.core.queues import Queue, in_order
from legato.core.redelivery import Redelivery

CLAIMED = "claimed"
"""Cause of a `MessageReturned` that takes a delivery back: it goes on, with the application that has it."""


class Reservations:
    """Made when a consumer detaches, claimed when it attaches, released by time or by a proper close.

    Attributes:
        queues: those that keep something.
    """

    __slots__ = ("_dispatcher", "_kernel", "_modes", "_presentations", "_redelivery", "queues")

    def __init__(
        self,
        kernel: Kernel,
        modes: DispatchModes,
        dispatcher: Dispatcher,
        presentations: Presentations,
        redelivery: Redelivery,
    ) -> None:
        self._kernel = kernel
        self._modes = modes
        self._dispatcher = dispatcher
        self._presentations = presentations
        self._redelivery = redelivery
        self.queues: set[Queue] = set()

    def reserve(self, consumer: Consumer, until_us: int, *, leads: bool) -> Reservation:
        """Keep what the consumer had; messages are added by who takes them from it."""
        queue = consumer.queue
        if earlier := queue.reservations.get((consumer.container, consumer.name)):
            self._release(queue, earlier)
        # A clock that jumps must not take from a client the time to come back (docs/decisions/0058-steady-clock.md).
        until_us += self._kernel.steady.at(self._kernel.now_us) - self._kernel.now_us
        reservation = Reservation(consumer, until_us, leads=leads)
        queue.reservations[consumer.container, consumer.name] = reservation
        self.queues.add(queue)
        return reservation

    def keep(self, reservation: Reservation, messages: list[Message]) -> None:
        """These were presented: they wait for nobody else, and that they were presented is on record from here on."""
        unrecorded = self._presentations.unrecorded()
        for message in messages:
            enter(message, KEEP)
            reservation.messages[message.seq] = message
            if id(message) in unrecorded:
                self._presentations.record(message, reservation.consumer)

    def review(self, queue: Queue, reservation: Reservation) -> None:
        """One that keeps nothing is none."""
        if not (reservation.messages or reservation.leads or queue.groups.has_any(reservation.consumer)):
            self._dissolve(queue, reservation)

    def _dissolve(self, queue: Queue, reservation: Reservation) -> None:
        consumer = reservation.consumer
        queue.reservations.pop((consumer.container, consumer.name), None)
        if not queue.reservations:
            self.queues.discard(queue)

    def resume(self, consumer: Consumer, held: Collection[int]) -> None:
        """The consumer came back: what its application still holds is its own again, in order, and the same delivery.

        What it does not hold any more was a delivery that failed.
        """
        queue = consumer.queue
        reservation = queue.reservations.get((consumer.container, consumer.name))
        if reservation is None:
            return
        self._dissolve(queue, reservation)
        queue.groups.pass_on(reservation.consumer, consumer)
        for message in reservation.messages.values():
            if message.seq in held:
                message.flagged = True
                consumer.first.append(message)
            else:
                message.presented = False
                self._redelivery.fail(message, reservation.consumer, "disconnect")
        self._dispatcher.returned_to.add(queue)

    def take_back(self, consumer: Consumer, message: Message) -> None:
        """An application that still has the message claims it: the delivery that was given up goes on.

        It had been counted when its connection or its broker was lost; now it counts when it ends (promise 4).
        """
        enter(message, CLAIM)
        message.flagged = True
        message.presented = True
        message.unrecorded = False
        if message.lost:
            message.lost -= 1
            message.count -= 1
            self._kernel.record(
                MessageReturned(message.queue.id, message.seq, message.count, True, consumer.id, CLAIMED)
            )
        else:
            self._kernel.record(MessagePresented(message.queue.id, message.seq, consumer.id))

    def release_container(self, container: str) -> None:
        """Its connection was closed properly: nothing is kept for it any more."""
        for queue in in_order(self.queues):
            for reservation in list(queue.reservations.values()):
                if reservation.consumer.container == container:
                    self._release(queue, reservation)

    def release_overdue(self) -> None:
        """Release the reservations of consumers that did not return in time."""
        for queue in in_order(self.queues):
            for reservation in list(queue.reservations.values()):
                if reservation.until_us <= self._kernel.steady.now_us:
                    self._release(queue, reservation)

    def _release(self, queue: Queue, reservation: Reservation) -> None:
        self._dissolve(queue, reservation)
        if queue.groups.release(reservation.consumer):
            queue.rewind()
        for message in reservation.messages.values():
            message.presented = False
            self._redelivery.fail(message, reservation.consumer, "disconnect")
        self._modes.review(queue)
        self._dispatcher.dispatch(queue)

    def forget(self, queue: Queue) -> None:
        """The queue is deleted, with what it keeps."""
        queue.reservations.clear()
        self.queues.discard(queue)
