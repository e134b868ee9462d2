"""Stages as they are published: what a store cannot keep is refused, whoever wrote the file.

A commit that cannot be made ends the primary, and the next one, of which the same is asked. So nothing of a stage is
taken on trust: its file may be of another version, or of a client that found a way.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import assert_never

from legato import limits
from legato.amqp.codec.stubs import STUB_MARK
from legato.bulk.stage_files import BlockRun, DigestRecord, MessageRecord, Record
from legato.errors import StoreCorruptError
from legato.store.block_writer import BLOCK_MESSAGES
from legato.store.blocks import RawBlock, raw_block

_PRIORITY_MAX = 9
_TIME_US_MAX = limits.TIME_MS_MAX * 1000
_ROWS_MAX = 1 << 32
_DIGEST_BYTES = 16
_DELTAS = struct.pack(f">{BLOCK_MESSAGES}I", *range(BLOCK_MESSAGES))


def checked(stage: str, records: list[Record]) -> list[Record]:
    """The records of a stage.

    Raises:
        StoreCorruptError: it has what cannot be stored.
    """
    for record in records:
        if (why := _objection(record)) is not None:
            raise StoreCorruptError(f"the stage {stage} cannot be published: {why}")
    return records


def _objection(record: Record) -> str | None:
    """Why a store cannot keep that; None if it can."""
    match record:
        case BlockRun():
            return _objection_to_run(record)
        case MessageRecord():
            return _objection_to_message(record)
        case DigestRecord(count, digest):
            is_sound = 0 <= count < _ROWS_MAX and len(digest) == _DIGEST_BYTES
            return None if is_sound else "its digest is none"
        case _:
            assert_never(record)


def _objection_to_message(message: MessageRecord) -> str | None:
    if not 0 <= message.priority <= _PRIORITY_MAX:
        return f"a message has the priority {message.priority}"
    for name, time_us in (("expiry", message.expires_us), ("delivery time", message.deliver_us)):
        if not 0 <= time_us <= _TIME_US_MAX:
            return f"a message has the {name} {time_us}"
    if len(message.duplicate_id) > limits.LARGE_MESSAGE_BYTES:
        return "a duplicate id is too long"
    if message.body.endswith(STUB_MARK):
        return "a message ends as none may"
    return None


def _objection_to_run(run: BlockRun) -> str | None:
    said = run.record
    if not 0 <= said.priority <= _PRIORITY_MAX:
        return f"a run has the priority {said.priority}"
    rows = size = 0
    for piece in run.pieces:
        try:
            block = raw_block(0, 0, memoryview(piece))
        except (StoreCorruptError, struct.error):
            return "a block is none"
        if block is None:
            return "a block has no bodies"
        why = _objection_to_block(block)
        if why is not None:
            return why
        rows += block.rows
        size += len(block.content)
    if (rows, size) != (said.count, said.size) or not rows:
        return f"a run has {rows} messages of {size} bytes and says {said.count} of {said.size}"
    return None


def _objection_to_block(block: RawBlock) -> str | None:
    rows = block.rows
    if block.deltas != (_DELTAS[: 4 * rows] if rows <= BLOCK_MESSAGES else struct.pack(f">{rows}I", *range(rows))):
        return "a block is not one of neighbours"
    ends = struct.unpack(f">{rows}I", block.ends)
    if sorted(ends) != list(ends) or len(block.expiries) not in (0, 8 * rows):
        return "a block is none"
    expiries = struct.unpack(f">{rows}Q", block.expiries) if block.expiries else ()
    if max((block.stored_us, *expiries)) > _TIME_US_MAX:
        return "a block has a time that is none"
    content = bytes(block.content)
    if STUB_MARK in content and any(content.endswith(STUB_MARK, begin, end) for begin, end in pairwise((0, *ends))):
        return "a message ends as none may"
    return None
