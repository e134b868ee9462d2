"""The refused numbers of a producer: exact for the latest ones, in bounded memory.

A sender has at most `limits.PRODUCER_CREDIT` sends without an answer, so a number further behind the last one cannot
come again in good faith (docs/decisions/0042-refused-messages-and-cut-links.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from legato import limits
from legato.core.records import ProducerRecord


class RefusedNumbers:
    """Numbers of one producer whose messages were not stored; true if there are any, or were.

    Attributes:
        forgotten: the highest refused number that is not kept any more; 0 if there is none.
    """

    __slots__ = ("_bits", "_first", "forgotten")

    def __init__(self, first: int = 1, bits: int = 0, forgotten: int = 0) -> None:
        self._first = first
        """The number of the lowest bit."""
        self._bits = bits
        self.forgotten = forgotten

    @classmethod
    def of(cls, record: ProducerRecord) -> RefusedNumbers:
        """Numbers on record."""
        bits = int.from_bytes(record.refused_bits, "little")
        refused = cls(record.refused_first, bits, record.refused_forgotten)
        for number in record.refused:
            refused.add(number)
        return refused

    def note(self, record: ProducerRecord) -> None:
        """Put them on record, without those that are too far behind the last number there."""
        self.trim(record.last_number)
        record.refused = []
        record.refused_first = self._first
        record.refused_bits = self._bits.to_bytes((self._bits.bit_length() + 7) // 8, "little")
        record.refused_forgotten = self.forgotten

    def __contains__(self, number: int) -> bool:
        return number >= self._first and self._bits >> (number - self._first) & 1 == 1

    def __bool__(self) -> bool:
        return bool(self._bits or self.forgotten)

    def __iter__(self) -> Iterator[int]:
        """Recorded numbers, in order."""
        bits = self._bits
        return (self._first + at for at in range(bits.bit_length()) if bits >> at & 1)

    def add(self, number: int) -> None:
        """It was refused. Numbers come from peers: none may make this large."""
        if number - self._first >= 2 * limits.REFUSED_NUMBERS_KEPT:
            self.trim(number)
        if not self._bits:
            self._first = number
        elif number < self._first:
            if self._first + self._bits.bit_length() - number > 2 * limits.REFUSED_NUMBERS_KEPT:
                self.forgotten = max(self.forgotten, number)
                return
            self._bits <<= self._first - number
            self._first = number
        self._bits |= 1 << (number - self._first)

    def discard(self, number: int) -> None:
        """It came again and is stored."""
        if number in self:
            self._bits ^= 1 << (number - self._first)

    def trim(self, last: int) -> None:
        """Forget those further than `limits.REFUSED_NUMBERS_KEPT` behind the last number."""
        beyond = min(last - limits.REFUSED_NUMBERS_KEPT + 1 - self._first, self._bits.bit_length())
        if beyond <= 0:
            return
        gone = self._bits & ((1 << beyond) - 1)
        if gone:
            self.forgotten = max(self.forgotten, self._first + gone.bit_length() - 1)
        self._bits >>= beyond
        self._first += beyond

    def highest_other(self, number: int) -> int:
        """The highest number up to `number` that is not among them."""
        if number not in self:
            return number
        others = ~self._bits & ((1 << (number - self._first)) - 1)
        return self._first + others.bit_length() - 1


def note_refused(record: ProducerRecord, numbers: Mapping[int, bool]) -> None:
    """Put on record which of the numbers that a batch decides were refused.

    Args:
        numbers: each with whether it was; none is above the last number on record.
    """
    if not (record.refused or record.refused_bits or any(numbers.values())):
        return
    refused = RefusedNumbers.of(record)
    for number, is_refused in numbers.items():
        if is_refused:
            refused.add(number)
        else:
            refused.discard(number)
    refused.note(record)
