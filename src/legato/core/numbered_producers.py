"""Numbered producers: their names, and for how long they are remembered (promise 1)."""

from __future__ import annotations

import msgspec

from legato import limits
from legato.core.facts import NumberRefused, ProducerForgotten, ProducerRegistered
from legato.core.kernel import Kernel
from legato.core.outcome import Outcome, RefusedCommit
from legato.core.producers import SINK_PREFIX, Producer
from legato.core.records import ProducerRecord
from legato.core.refusals import NumbersUsedUp


class NumberedProducers:
    """The producers that number their messages.

    Args:
        next_number: the number of the next one that registers.

    Attributes:
        attached: those with a link, or with numbers that are not durable yet, by name.
        forgetting: numbers of those that are forgotten once their `ProducerForgotten` is durable, by name.
    """

    __slots__ = ("_kernel", "_next", "_reviewed", "attached", "forgetting")

    def __init__(self, kernel: Kernel, next_number: int) -> None:
        self.attached: dict[str, Producer] = {}
        self.forgetting: dict[str, int] = {}
        self._kernel = kernel
        self._next = next_number
        self._reviewed = 0
        """The producer, by number, that `forget_unused` looked at last."""

    def is_known(self, name: str) -> bool:
        """Whether there is a producer of that name: it may be that it is being forgotten."""
        return name in self.attached or self._kernel.archive.producer(name) is not None

    def demand_number(self, name: str) -> None:
        """See that the producer of that name has a number, or that there is one for it.

        Raises:
            NumbersUsedUp: there is none.
        """
        if self._next > limits.PRODUCER_NUMBER_MAX and name not in self.attached and self._record(name) is None:
            raise NumbersUsedUp(
                f"This broker's store has given {self._next - 1:,} numbers to producers, and has no more for new ones. "
                "Have the group begin with a new store."
            )

    def attach(self, name: str) -> Producer:
        """A producer that numbers its messages attached a link; call `detach` when that ends.

        Raises:
            NumbersUsedUp: see `demand_number`.
        """
        producer = self.attached.get(name)
        if producer is None:
            self.demand_number(name)
            record = self._record(name)
            if record is None:
                record = ProducerRecord(self._next, name)
                self._next += 1
                self._kernel.record(ProducerRegistered(record.producer, name))
            producer = self.attached[name] = Producer(record)
        producer.links += 1
        return producer

    def _record(self, name: str) -> ProducerRecord | None:
        # The store still has one that is being forgotten: a new one comes in its place.
        return None if name in self.forgetting else self._kernel.archive.producer(name)

    def detach(self, producer: Producer, *, forget: bool) -> None:
        """A numbered producer's link ended; `forget` says that it closed for good."""
        producer.links -= 1
        producer.leaving += 1
        self._kernel.change(Detached(self, producer))
        if producer.links == 0 and forget:
            self.attached.pop(producer.name, None)
            self.forget(producer.id, producer.name)

    def lose(self, producer: int, number: int) -> None:
        """A message could not be stored: of which producer, and its number."""
        found = next((each for each in self.attached.values() if each.id == producer), None)
        if found is not None:
            found.refuse(number)

    def refuse_number(self, producer: Producer, number: int) -> None:
        """A numbered message was refused before it was stored: a resend of it is not a duplicate."""
        producer.refuse(number)
        self._kernel.record(NumberRefused(producer.id, number))

    def refresh(self) -> None:
        """Put on record that the attached producers were used, though they may be idle.

        In this epoch nobody forgets them; in the next one they have as long as others to come back.
        """
        for producer in self.attached.values():
            if producer.links:
                self._kernel.record(ProducerRegistered(producer.id, producer.name))

    def forget_unused(self) -> None:
        """Forget some producers that nobody has used for `limits.PRODUCER_RETENTION_S`, if there are too many.

        Never a sink, nor one that is attached, or whose numbers are not durable yet: it sends on, and a send that it
        repeats after a failover must be known (promise 1). The decision is made here, where both are known, and stored
        like any other fact (docs/decisions/0058-steady-clock.md).
        """
        kernel = self._kernel
        excess = kernel.archive.producers_count() - len(self.forgetting) - limits.PRODUCERS_KEPT
        if excess <= 0:
            return
        end_us = kernel.steady.now_us - limits.PRODUCER_RETENTION_S * 1_000_000
        records = kernel.archive.producers(self._reviewed, limits.PRODUCERS_REVIEWED)
        self._reviewed = records[-1].producer if len(records) == limits.PRODUCERS_REVIEWED else 0
        for record in records:
            kept = record.seen_us >= end_us or record.name.startswith(SINK_PREFIX)
            if kept or record.name in self.forgetting:
                continue
            if record.name in self.attached:
                kernel.record(ProducerRegistered(record.producer, record.name))
            elif excess > 0:
                self.forget(record.producer, record.name)
                excess -= 1

    def forget(self, number: int, name: str) -> None:
        """Forget a producer that is not attached."""
        self.forgetting[name] = number
        self._kernel.change(Forgotten(self, number, name))
        self._kernel.record(ProducerForgotten(number, name))


class Detached(msgspec.Struct, gc=False):
    """A producer may have no link any more."""

    producers: NumberedProducers
    producer: Producer

    def durable(self, outcome: Outcome) -> None:
        """The store remembers its numbers, if no later link has brought more."""
        producer, attached = self.producer, self.producers.attached
        producer.leaving -= 1
        if producer.links == 0 and producer.leaving == 0 and attached.get(producer.name) is producer:
            del attached[producer.name]

    def refused(self, refusal: RefusedCommit) -> None:
        """Its numbers are durable with what is tried again."""
        refusal.retry(self)


class Forgotten(msgspec.Struct, gc=False):
    """A producer is forgotten."""

    producers: NumberedProducers
    number: int
    name: str

    def durable(self, outcome: Outcome) -> None:
        """The store has no record of it any more."""
        forgetting = self.producers.forgetting
        if forgetting.get(self.name) == self.number:
            del forgetting[self.name]

    def refused(self, refusal: RefusedCommit) -> None:
        """It is forgotten all the same."""
        refusal.retry(self)
