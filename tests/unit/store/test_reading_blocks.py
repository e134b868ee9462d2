"""What is read of blocks at once: those of a kind of their own, and those that the disk has altered."""

import pytest

from legato.core.records import StoredMessage, StoredRun
from legato.errors import StoreCorruptError
from legato.store.blocks import Block, pack_bodies, pack_references, read_plain

QUEUE, FIRST, NO_LIMIT = 7, 100, 1 << 30
BODIES = [bytes([number]) * (number + 3) for number in range(9)]


def read(value: bytes, after: int = 0, limit: int = NO_LIMIT) -> list[StoredMessage] | None:
    found = read_plain(QUEUE, FIRST, memoryview(value), after, limit, NO_LIMIT)
    if found is None:
        return None
    return [message for each in found for message in (each.messages() if isinstance(each, StoredRun) else (each,))]


def test_what_is_not_plain_is_left_to_those_who_look_at_each_message() -> None:
    seqs = range(FIRST, FIRST + len(BODIES))
    assert read(pack_bodies(FIRST, seqs, BODIES, 1)) is not None
    assert read(pack_bodies(FIRST, [*seqs[:-1], seqs[-1] + 1], BODIES, 1)) is None
    assert read(pack_bodies(FIRST, seqs, BODIES, 1, [0] * 8 + [5])) is None
    assert read(pack_bodies(FIRST, seqs[:1], BODIES[:1], 1, [5])) is None
    assert read(pack_references(FIRST, seqs, [9] * len(BODIES), 3, 1)) is None
    assert read(pack_references(FIRST, seqs[:1], [9], 3, 1)) is None


@pytest.mark.parametrize("count", [1, 2, len(BODIES)])
@pytest.mark.parametrize("after", [0, FIRST + 3])
@pytest.mark.parametrize("bit", [1, 0x80])
def test_ends_that_the_disk_has_altered_are_never_handed_on(count: int, after: int, bit: int) -> None:
    """Whoever sends a run trusts its ends: they ascend, and stay within its bytes."""
    whole = pack_bodies(FIRST, range(FIRST, FIRST + count), BODIES[:count], 1)
    told = 0
    for at in range(len(whole)):
        value = bytearray(whole)
        value[at] ^= bit
        for altered in (bytes(value), whole[:at]):
            try:
                found = read_plain(QUEUE, FIRST, memoryview(altered), after, NO_LIMIT, NO_LIMIT)
                if found is None:
                    Block(QUEUE, FIRST, memoryview(altered))
            except StoreCorruptError:
                told += 1
                continue
            for run in found or ():
                if isinstance(run, StoredRun):
                    assert [0, *run.ends] == sorted([0, *run.ends])
                    assert run.ends[-1] == len(run.content)
    assert told >= len(whole)
