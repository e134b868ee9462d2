"""Rendezvous hashing with weights: of some named candidates the one for a key, the same wherever it is asked.

Each candidate draws a number for the key, and the smallest wins. A candidate that comes takes only keys that it wins
itself, and one that goes gives only its own keys away: so nothing else moves.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

_MASK = (1 << 64) - 1
_PERSON = b"legato-groups"


def hash_of(name: str) -> int:
    """64 bits of a name, evenly spread."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, person=_PERSON)
    return int.from_bytes(digest.digest(), "big")


def mixed(bits: int) -> int:
    """64 bits in which each bit depends on all bits of the argument (the finaliser of SplitMix64)."""
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & _MASK
    return bits ^ bits >> 31


class Candidate:
    """One of those among whom keys are shared out.

    Args:
        weight: its share of the keys, over the sum of all weights.
    """

    __slots__ = ("_hash", "_weight", "name")

    def __init__(self, name: str, weight: float = 1.0) -> None:
        self.name = name
        self._hash = hash_of(name)
        self._weight = weight

    def cost(self, key_hash: int) -> float:
        """What it draws for a key, exponentially distributed with its weight as the rate: the smallest wins."""
        # The 53 bits of a float, and a half, so that neither 0 nor 1 is drawn.
        return -math.log(((mixed(key_hash ^ self._hash) >> 11) + 0.5) / (1 << 53)) / self._weight


def winner(key: str, candidates: Iterable[Candidate]) -> Candidate:
    """The candidate for a key; of two that draw the same the one whose name comes first.

    Raises:
        ValueError: there are no candidates.
    """
    key_hash = hash_of(key)
    return min(candidates, key=lambda each: (each.cost(key_hash), each.name))
