"""Moves between two maps of groups: which addresses change their group, and how many must."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from legato.groups.group_map import Directory, GroupMap


class Move(NamedTuple):
    """An address that another group serves from now on."""

    address: str
    former: str
    group: str


def moves(
    before: GroupMap, after: GroupMap, addresses: Iterable[str], decisive: Callable[[str], str] = str
) -> Iterator[Move]:
    """Those of the addresses that have another group by the second map.

    Args:
        decisive: the address that decides where one is, such as that of a queue where its dead letters are.
    """
    old, new = Directory(before), Directory(after)
    for address in addresses:
        decides = decisive(address)
        former, group = old.group_of(decides).name, new.group_of(decides).name
        if former != group:
            yield Move(address, former, group)


def least_share(before: GroupMap, after: GroupMap) -> float:
    """The share of the addresses without pins that any balanced placement has to move, from 0 to 1.

    A group whose share of all weights falls gives the difference away; what it gives another one gets.
    """
    old, new = _shares(before), _shares(after)
    return sum(max(share - new.get(name, 0.0), 0.0) for name, share in old.items())


def _shares(group_map: GroupMap) -> dict[str, float]:
    total = sum(group.weight for group in group_map.group)
    return {group.name: group.weight / total for group in group_map.group}
