"""Names of dead letters, and the selectors that select them: an id alone does not tell the copies of a message apart.

Each subscription has a copy of a message, all with one id, and several may bury theirs in one queue. Other clients send
messages without an id, or with an id that a client of Legato spells in another way than the broker compares it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from legato import limits
from legato.core.dead_letters import ORIGINAL_DESTINATION, ORIGINAL_SEQUENCE, ORIGINAL_SUBSCRIPTION
from legato.selectors.literals import literal_of

RESPELLED = ("ID:AMQP_NO_PREFIX:", "ID:AMQP_STRING:")
"""What clients put before an id that is a string without `ID:`, or that looks as if it were of another type."""
ID_CHARACTERS_MAX = 512
"""A longer id is not compared where the sequence is."""
SELECTOR_CHARACTERS_MAX = limits.SELECTOR_CHARACTERS_MAX - 64
_DIGITS_MAX = 19
"""Of a sequence number, which is less than 1 << 63."""


class Identified(Protocol):
    """What tells a dead letter from all others of its queue."""

    @property
    def id(self) -> str:
        """The message's id as a client spells it; empty if it has none."""
        ...

    @property
    def origin(self) -> str:
        """Where it was: a queue, `topic://NAME` or a subscription; empty if unknown."""
        ...

    @property
    def sequence(self) -> int:
        """Its sequence there; -1 if unknown."""
        ...


class Identity(NamedTuple):
    """An `Identified` by itself."""

    id: str
    origin: str
    sequence: int


One = TypeVar("One", bound=Identified)


def name_of(letter: Identified) -> str:
    """The name of a dead letter: `ID@ORIGIN#SEQUENCE`, or its id if nobody knows where it came from."""
    return letter.id if letter.sequence < 0 else f"{letter.id}@{letter.origin}#{letter.sequence}"


def selector_of(meant: Iterable[Identified]) -> str:
    """The condition that selects these dead letters, and no other copies of the same messages."""
    by_origin: dict[str, dict[str, Identified]] = {}
    for letter in meant:
        by_origin.setdefault(letter.origin if letter.sequence >= 0 else "", {})[name_of(letter)] = letter
    return " OR ".join(_of_origin(origin, list(letters.values())) for origin, letters in by_origin.items())


def _of_origin(origin: str, letters: Sequence[Identified]) -> str:
    either = " OR ".join(_is(letter) for letter in letters)
    if not origin:
        return f"({either})"
    sequences = [letter.sequence for letter in letters]
    # Most messages are told by the range alone.
    between = f"{ORIGINAL_SEQUENCE} BETWEEN {min(sequences)} AND {max(sequences)}"
    return f"({_came_from(origin)} AND {between} AND ({either}))"


def _came_from(origin: str) -> str:
    text = literal_of(origin)
    destination = f"{ORIGINAL_SUBSCRIPTION} IS NULL AND {ORIGINAL_DESTINATION} = {text}"
    return f"({ORIGINAL_SUBSCRIPTION} = {text} OR {destination})"


def _is(letter: Identified) -> str:
    if letter.sequence < 0:
        return f"{ORIGINAL_SEQUENCE} IS NULL AND {has_id(letter.id)}"
    place = f"{ORIGINAL_SEQUENCE} = {letter.sequence}"
    return place if len(letter.id) > ID_CHARACTERS_MAX else f"{place} AND {has_id(letter.id)}"


def has_id(id: str) -> str:
    """The condition that selects the messages with an id as clients spell it; empty: those without one."""
    if not id:
        return "JMSMessageID IS NULL"
    for prefix in RESPELLED:
        if id.startswith(prefix):
            id = id.removeprefix(prefix)
            break
    return f"JMSMessageID = {literal_of(id)}"


def may_be_called(name: str) -> str:
    """A condition that selects at least the dead letters with a name or an id."""
    _, mark, sequence = name.rpartition("#")
    is_number = mark and sequence.isdecimal() and sequence.isascii() and len(sequence) <= _DIGITS_MAX
    if not (is_number and int(sequence) < 1 << 63):
        return has_id(name)
    place = f"{ORIGINAL_SEQUENCE} = {sequence}"
    return f"{place} OR {has_id(name)}" if len(name) <= ID_CHARACTERS_MAX else place


def batches(letters: Sequence[One], size: int) -> Iterator[list[One]]:
    """Dead letters in batches, as many in each as one selector can name, and at most so many."""
    batch: list[One] = []
    origins: set[str] = set()
    characters = 0
    for letter in letters:
        cost = len(_is(letter)) + len(" OR ")
        if letter.origin not in origins:
            cost += len(_of_origin(letter.origin, [letter])) + len(" OR ")
        if batch and (len(batch) == size or characters + cost > SELECTOR_CHARACTERS_MAX):
            yield batch
            batch, origins, characters = [], set(), 0
            cost = len(_of_origin(letter.origin, [letter])) + len(_is(letter)) + len(" OR ")
        batch.append(letter)
        origins.add(letter.origin)
        characters += cost
    if batch:
        yield batch
