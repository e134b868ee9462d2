"""Addresses on groups: how even they are spread, and how many move when groups come or go."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from legato.groups.rendezvous import hash_of

Hashes = npt.NDArray[np.uint64]
_CHUNK = 20_000
"""Addresses that are placed in one go."""


class Spread(msgspec.Struct, frozen=True):
    """How evenly something is spread: figures over the mean of those it is spread over, each for its weight."""

    median: float
    p99: float
    most: float


def spread_of(loads: Sequence[float], weights: Sequence[float] | None = None) -> Spread:
    """The spread of loads over those that bear them."""
    each = np.asarray(loads, dtype=float) / (np.ones(len(loads)) if weights is None else np.asarray(weights))
    relative = np.sort(each / (sum(loads) / (len(loads) if weights is None else sum(weights))))
    p99 = relative[math.ceil(len(relative) * 0.99) - 1]
    return Spread(float(np.median(relative)), float(p99), float(relative[-1]))


def hashes(names: Sequence[str]) -> Hashes:
    """What `rendezvous.hash_of` says of each."""
    return np.array([hash_of(name) for name in names], dtype=np.uint64)


Owners = npt.NDArray[np.int32]


def owners(
    addresses: Hashes, groups: Hashes, weights: npt.NDArray[np.float64], counts: Sequence[int]
) -> dict[int, Owners]:
    """The number of the group of each address, as `rendezvous.winner` says, if there are only the first so many groups.

    Args:
        counts: of groups; there is an answer for each.
    """
    found = {count: np.empty(len(addresses), dtype=np.int32) for count in counts}
    for begin in range(0, len(addresses), _CHUNK):
        part = addresses[begin : begin + _CHUNK]
        best, leaders = np.full(len(part), np.inf), np.zeros(len(part), dtype=np.int32)
        for number, (group, weight) in enumerate(zip(groups, weights, strict=True)):
            drawn = _mixed(part ^ group) >> np.uint64(11)
            cost = -np.log((drawn.astype(np.float64) + 0.5) / 2.0**53) / weight
            better = cost < best
            leaders[better] = number
            best[better] = cost[better]
            if number + 1 in found:
                found[number + 1][begin : begin + len(part)] = leaders
    return found


def _mixed(bits: Hashes) -> Hashes:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
