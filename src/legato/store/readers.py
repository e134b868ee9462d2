"""Who reads a store now, by LMDB's table of readers: what they see must stay, so its pages cannot be used again."""

from __future__ import annotations

from typing import Any

import msgspec


class Reading(msgspec.Struct, frozen=True, order=True):
    """A read transaction of some process."""

    pid: int
    thread: str
    txnid: int
    """Of the commit that it sees."""


def readings(environment: Any) -> list[Reading]:
    """The read transactions there are, of all processes, those of dead ones too."""
    found = []
    for line in environment.readers().splitlines():
        words = line.split()
        # Who reads nothing at the moment has a line with `-` for its commit; a headline and a remark have other words.
        if len(words) == 3 and words[0].isdecimal() and words[2].isdecimal():
            found.append(Reading(int(words[0]), words[1], int(words[2])))
    return found


def holds_pages(reading: Reading, last_txnid: int) -> bool:
    """Whether commits up to `last_txnid` have left pages that only this reader still needs."""
    return reading.txnid < last_txnid - 1
