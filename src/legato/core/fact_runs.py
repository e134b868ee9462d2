"""Facts of runs, taken apart: what neighbours have in common is said once in the log, and means a fact of each.

Who does not care how many messages a fact is of asks here for facts of one message each.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec.structs import replace

from legato.core.facts import (
    AnyFact,
    MessageConsumed,
    MessagePublished,
    MessagesConsumed,
    MessagesStored,
    MessageStored,
)
from legato.core.records import Batch
from legato.errors import StoreError


def pack_ends(ends: array[int]) -> bytes:
    """`MessagesStored.ends`, of the machine's own numbers."""
    if sys.byteorder == "little":
        ends = ends[:]
        ends.byteswap()
    return ends.tobytes()


def ends_of(fact: MessagesStored) -> array[int]:
    """Where each message of a run ends in its bytes."""
    ends = array("I")
    ends.frombytes(fact.ends)
    if sys.byteorder == "little":
        ends.byteswap()
    return ends


def size_of(fact: MessagesStored) -> int:
    """The bytes of all messages of a run."""
    return int.from_bytes(fact.ends[-4:], "big")


def numbers_of(fact: MessagesStored) -> range:
    """The numbers that its producer gave the messages of a run; none if it does not number them."""
    return range(fact.number, fact.number + fact.count) if fact.producer else range(0)


def singles(fact: AnyFact) -> Iterable[AnyFact]:
    """Facts of one message each that mean the same; the fact itself if it is no run's."""
    if isinstance(fact, MessagesStored):
        return _stored(fact)
    if isinstance(fact, MessagesConsumed):
        places = range(fact.seq, fact.seq + fact.count)
        return [MessageConsumed(fact.queue, seq, fact.consumer, fact.delivered_us, 1) for seq in places]
    return (fact,)


def single_facts(facts: Iterable[AnyFact]) -> Iterator[AnyFact]:
    """The same of many facts, in order."""
    for fact in facts:
        yield from singles(fact)


def single_batch(batch: Batch) -> Batch:
    """The batch with facts and bodies of one message each.

    Raises:
        StoreError: there are other bodies than those of the facts.
    """
    if not any(isinstance(fact, MessagesStored | MessagesConsumed) for fact in batch.facts):
        return batch
    bodies = iter(batch.bodies)
    apart: list[bytes] = []
    for fact in batch.facts:
        if isinstance(fact, MessagesStored):
            apart += bodies_of(fact, next(bodies, b""))
        elif has_body(fact):
            apart += islice(bodies, 1)
    return replace(batch, facts=[*single_facts(batch.facts)], bodies=[*apart, *bodies])


def has_body(fact: AnyFact) -> bool:
    """Whether one of the bodies of its batch is the fact's."""
    match fact:
        case MessageStored() | MessagesStored():
            return True
        case MessagePublished(subscriptions=subscriptions):
            return bool(subscriptions)
    return False


def bodies_of(fact: MessagesStored, run: bytes) -> list[bytes]:
    """The messages of a run, of its bytes.

    Raises:
        StoreError: these are not the run's bytes.
    """
    begin, bodies = 0, []
    for end in ends_of(fact):
        bodies.append(run[begin:end])
        begin = end
    if begin != len(run) or len(bodies) != fact.count:
        raise StoreError(f"the batch's bytes are not the {fact.count} messages at {fact.seq} of queue {fact.queue}")
    return bodies


def _stored(fact: MessagesStored) -> list[AnyFact]:
    ids = fact.ids.decode("ascii")
    width = len(ids) // fact.count
    begin, facts = 0, list[AnyFact]()
    number, step = (fact.number, 1) if fact.producer else (0, 0)
    for place, end in enumerate(ends_of(fact)):
        message_id = ids[width * place : width * (place + 1)]
        facts.append(
            MessageStored(fact.queue, fact.seq + place, end - begin, message_id, fact.producer, number + place * step)
        )
        begin = end
    return facts
