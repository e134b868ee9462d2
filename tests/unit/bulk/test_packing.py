"""What is packed at once is what the store packs, and reads."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.bulk.packing import pack
from legato.store.block_writer import new_blocks
from legato.store.blocks import Block
from tests.support.examples import examples


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.integers(0, 4000), min_size=1, max_size=400)
    | st.builds(lambda size, count: [size] * count, st.integers(0, 20_000), st.integers(1, 400)),
    st.integers(0, 5),
    st.booleans(),
)
def test_blocks_are_those_of_the_store(sizes: list[int], cut_off: int, expiring: bool) -> None:
    bodies = [bytes([index % 256]) * size for index, size in enumerate(sizes)]
    messages = pa.array([*([b"other"] * cut_off), *bodies], pa.binary()).slice(cut_off)
    expiries = {seq: seq * 7 for seq in range(1, len(bodies) + 1) if expiring and seq % 2}
    times = np.array([expiries.get(seq, 0) for seq in range(1, len(bodies) + 1)], np.int64)
    expected = new_blocks(dict(enumerate(bodies, 1)), list(range(1, len(bodies) + 1)), 99, expiries)
    found = [b"".join(block) for block in pack(messages, 99, times)]
    assert len(found) == len(expected)
    seq = 1
    for value, (first, packed, _) in zip(found, expected, strict=True):
        block, other = Block(1, first, memoryview(value)), Block(1, first, memoryview(packed))
        assert first == seq
        assert [entry[:3] for entry in block.entries()] == [entry[:3] for entry in other.entries()]
        assert block.first_expiry_us() == other.first_expiry_us()
        assert block.stored_us == 99
        seq += block.count


@pytest.mark.parametrize("messages", [[], [b""], [b"", b""]])
def test_nothing_and_empty_messages_are_packed(messages: list[bytes]) -> None:
    found = [b"".join(block) for block in pack(pa.array(messages, pa.binary()), 1)]
    assert sum(Block(1, 1, memoryview(value)).count for value in found) == len(messages)
