"""Reference counts of topics' bodies, kept beside the bodies, so that a body is written once."""

from collections.abc import Mapping, Sequence
from typing import Any

from legato.core.records import QueueRecord
from legato.store.block_reader import blocks_with, waiting_among
from legato.store.block_writer import BlockWriter, new_reference_blocks
from legato.store.blocks import Entry
from legato.store.keys import place_key
from legato.store.lanes import split_by_last


class Copies:
    """Counts references, inside a write transaction.

    Args:
        cursor: on the database `copies`.
        writer: of the same.
    """

    def __init__(self, cursor: Any, writer: BlockWriter, time_us: int) -> None:
        self._cursor = cursor
        self._writer = writer
        self._time_us = time_us

    def among(self, topic: int, seqs: Sequence[int]) -> dict[int, int]:
        """How many copies there are of those of `seqs` (ascending) that have any."""
        return waiting_among(self._cursor, topic, seqs)

    def add(self, topic: QueueRecord, counts: Mapping[int, int], there: Mapping[int, int]) -> None:
        """Count further copies; `there` is what `among` said."""
        below, above = split_by_last(topic, sorted(counts))
        if above:
            blocks = new_reference_blocks(above, [counts[seq] for seq in above], topic.queue, self._time_us)
            self._writer.append(topic.queue, blocks)
        if below:
            entries = [Entry(seq, counts[seq] + there.get(seq, 0), topic=topic.queue) for seq in below]
            self._writer.insert(topic.queue, entries, self._time_us)

    def release(self, topic: int, released: Mapping[int, int]) -> list[int]:
        """Count copies that went, so many of each sequence; returns the sequences (ascending) of which none is left."""
        gone: list[int] = []
        for block, indexes in blocks_with(self._cursor, topic, sorted(released)):
            counts, seqs = block.sizes(), block.seqs()
            for index in indexes:
                counts[index] -= released[seqs[index]]
                if counts[index] <= 0:
                    gone.append(seqs[index])
            if any(count > 0 for count in counts):
                self._cursor.put(place_key(topic, block.first), block.pack_counts(counts))
            else:
                self._cursor.delete()
        return gone
