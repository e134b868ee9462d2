"""Numbered producers: a send is stored once (promise 1)."""

from legato.core.records import ProducerRecord
from legato.core.refused_numbers import RefusedNumbers

SINK_PREFIX = "sink://"
"""Before the names of producers that are sinks of streams: they are remembered until somebody has them forgotten."""

ONCE_PREFIX = "write://"
"""Before the names of those that write one batch, under a name that never comes again."""


class Producer:
    """The state of a numbered producer.

    `last` is the highest number handled, `stored` the highest that is stored or on its way to the store; `refused` are
    those that were not stored, so a resend of them is new; the oldest of them are forgotten. `links` are attached,
    `leaving` ended, and what they brought may not be durable yet.
    """

    __slots__ = ("id", "last", "leaving", "links", "name", "refused", "stored")

    def __init__(self, record: ProducerRecord) -> None:
        self.id = record.producer
        self.name = record.name
        self.last = self.stored = record.last_number
        self.refused = RefusedNumbers.of(record)
        self.links = 0
        self.leaving = 0
        self.stored = self.refused.highest_other(self.stored)

    def is_duplicate(self, number: int) -> bool:
        """Whether the message of that number is already stored."""
        return number <= self.last and number > self.refused.forgotten and number not in self.refused

    def may_be_stored(self, number: int) -> bool:
        """Whether the message of that number is stored, or nobody knows any more that it was refused."""
        return number <= self.last and number not in self.refused

    def is_overtaken(self, number: int) -> bool:
        """Whether the message of that number was refused, or may have been, and one that was sent after it was not.

        Ask only if it is no duplicate.
        """
        return number <= self.refused.forgotten or (number < self.stored and number in self.refused)

    def accept(self, number: int) -> None:
        """The message of that number is on its way to the store."""
        if number > self.last:
            self.last = number
        else:
            self.refused.discard(number)
        if number > self.stored:
            self.stored = number

    def accept_run(self, last: int) -> None:
        """Messages of numbers above all others, up to `last`, are on their way to the store."""
        self.last = self.stored = last

    def refuse(self, number: int) -> None:
        """The message of that number was not stored."""
        if number > self.last:
            self.last = number
        self.refused.add(number)
        self.stored = self.refused.highest_other(self.stored)
