"""Expiry index: blocks that hold expiring messages, by time. One entry for a block, not one for each message.

when the first of the block's messages expires u64 | place of the block  ->  nothing
"""

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from legato.core.records import ExpiryPlace
from legato.errors import StoreCorruptError
from legato.store.blocks import Block
from legato.store.keys import expiry_key, place_key, read_expiry


class ExpiryChanges:
    """Changes of the index in one commit; the last change of an entry wins."""

    def __init__(self) -> None:
        self._entries: dict[bytes, bool] = {}

    def change(self, queue: int, first: int, before_us: int, after_us: int) -> None:
        """The block under `first` is to be found at another time; 0 is nowhere."""
        if before_us != after_us:
            if before_us:
                self._entries[expiry_key(before_us, queue, first)] = False
            if after_us:
                self._entries[expiry_key(after_us, queue, first)] = True

    def write(self, txn: Any, database: Any) -> None:
        """Put all of it into the index."""
        if not self._entries:
            return
        with txn.cursor(db=database) as cursor:
            for key in sorted(key for key, there in self._entries.items() if not there):
                if cursor.set_key(key):
                    cursor.delete()
            cursor.putmulti([(key, b"") for key, there in sorted(self._entries.items()) if there])


def expired_places(
    index: Any, messages: Any, is_there: Callable[[int], bool], after: ExpiryPlace, now_us: int, limit: int
) -> Sequence[ExpiryPlace]:
    """See `Archive.expired`.

    A block is found under the earliest of its times, so what it has besides waits until the blocks before that time
    have been seen.

    Args:
        index: a cursor on the index.
        messages: a cursor on the messages.
        is_there: tells whether there is a queue of that number.
        after: see there, as the following.
    """
    found: list[ExpiryPlace] = []
    ahead: list[ExpiryPlace] = []
    there = index.first()
    while there and len(found) < limit:
        place = ExpiryPlace(*read_expiry(index.key()))
        if place.expires_us > now_us:
            break
        while ahead and ahead[0] < place:
            found.append(heapq.heappop(ahead))
        if is_there(place.queue):
            for expiring in _places_in(messages, place):
                if after < expiring and expiring.expires_us <= now_us:
                    heapq.heappush(ahead, expiring)
        there = index.next()
    while ahead and len(found) < limit:
        found.append(heapq.heappop(ahead))
    return found[:limit]


def _places_in(messages: Any, place: ExpiryPlace) -> list[ExpiryPlace]:
    """The messages that expire of the block to which the index points."""
    if not messages.set_key(place_key(place.queue, place.seq)):
        raise StoreCorruptError(f"queue {place.queue} has no block {place.seq}, of which the expiry is known")
    block = Block(place.queue, place.seq, messages.value())
    times = zip(block.expiries, block.seqs(), strict=False)
    return [ExpiryPlace(expires_us, place.queue, seq) for expires_us, seq in times if expires_us]
