"""Current readers of a store, from LMDB's table of readers. The pages that they see cannot be reused."""

from __future__ import annotations

from typing import Any

from legato.store.base import Reading


def holding_readings(environment: Any) -> list[Reading]:
    """The read transactions, of all processes, that see an older commit than the last but one.

    What later commits freed nobody can use while they last. Those of dead processes are among them.
    """
    last_txnid = environment.info()["last_txnid"]
    found = []
    for line in environment.readers().splitlines():
        words = line.split()
        # Who reads nothing at the moment has a line with `-` for its commit; a headline and a remark have other words.
        if len(words) == 3 and words[0].isdecimal() and words[2].isdecimal() and int(words[2]) < last_txnid - 1:
            found.append(Reading(int(words[0]), words[1], int(words[2])))
    return found
