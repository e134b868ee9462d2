"""Offsets of a stream: for each address, the last number that is planned; how much of what is there becomes the next
batch, and how a batch is cut into partitions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from legato.errors import ConfigError
from legato.quoting import quoted

Offset = dict[str, int]
"""Numbers by address, in the order of the addresses: Spark compares their text."""


class Range(msgspec.Struct, frozen=True):
    """Numbers above `after` up to `through` of what is kept under `name` at the broker for `address`.

    Attributes:
        group: of brokers that has it; empty if there are none, or the query's URL names one.
    """

    address: str
    name: str
    after: int
    through: int
    group: str = ""


def ordered(numbers: Mapping[str, int]) -> Offset:
    """An offset whose text is the same whenever its numbers are."""
    return {address: numbers[address] for address in sorted(numbers)}


def told(offset: object) -> Offset:
    """An offset that Spark had of its checkpoint, perhaps.

    Raises:
        ConfigError: no stream of Legato's has written it.
    """
    try:
        return msgspec.convert(offset, dict[str, Annotated[int, msgspec.Meta(ge=0)]])
    except msgspec.ValidationError:
        raise ConfigError(
            f"The checkpoint says that the stream is at {quoted(offset)}, which is no offset of Legato's: it was begun "
            "with another format, or is damaged. Give this stream a checkpointLocation of its own; it goes on after "
            "what its subscription has acknowledged."
        ) from None


def shares(available: Mapping[str, int], limit: int) -> dict[str, int]:
    """How much of what is available at each address is taken, `limit` in all: in proportion, so that none starves."""
    total = sum(available.values())
    if total <= limit:
        return dict(available)
    taken = {address: limit * count // total for address, count in available.items()}
    left = limit - sum(taken.values())
    short = [address for address in available if taken[address] < available[address]]
    for address in sorted(short, key=lambda address: (taken[address], address))[:left]:
        # What the divisions left over is less than one for each.
        taken[address] += 1
    return taken


def cut(ranges: list[Range], *, at_least: int, at_most_rows: int) -> list[list[Range]]:
    """The ranges in parts of about the same length: about `at_least`, none with more than `at_most_rows` (0: any)."""
    total = sum(each.through - each.after for each in ranges)
    length = max(-(-total // max(at_least, 1)), 1)
    if at_most_rows:
        length = min(length, at_most_rows)
    pieces = [
        msgspec.structs.replace(each, after=begin, through=min(begin + length, each.through))
        for each in ranges
        for begin in range(each.after, each.through, length)
    ]
    return together([(piece, piece.through - piece.after) for piece in pieces], length)


def together(pieces: Iterable[tuple[Range, int]], rows_max: int) -> list[list[Range]]:
    """Neighbours in one part as long as they have no more than `rows_max` rows; a piece is never cut.

    Args:
        pieces: each with how many rows it has.
    """
    parts: list[list[Range]] = []
    left = 0
    for piece, rows in pieces:
        if not parts or rows > left:
            parts.append([piece])
            left = rows_max - rows
            continue
        left -= rows
        last = parts[-1][-1]
        if (last.name, last.through) == (piece.name, piece.after):
            parts[-1][-1] = msgspec.structs.replace(last, through=piece.through)
        else:
            parts[-1].append(piece)
    return parts
