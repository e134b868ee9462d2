"""Record batches of a queue's range, made from whole blocks on disk.

Each row is a message as its sender encoded it; who reads makes columns of it (`columns`), beside the broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from legato.amqp.codec.stubs import STUB_MARK, Stub, body_bytes_least, read_stub, stub_head
from legato.bulk.buffer_slices import Ints
from legato.bulk.tickets import BODY_BYTES_MAX
from legato.core.records import StoredMessage
from legato.store.blocks import RawBlock
from legato.store.lmdb import LmdbStore

SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("stored_us", pa.int64(), nullable=False),
        pa.field("failed_deliveries", pa.int32(), nullable=False),
        pa.field("flagged", pa.bool_(), nullable=False),
        pa.field("message", pa.binary(), nullable=False),
    ]
)
"""Of a frame; `seq` is a queue's sequence, or an assignment's number."""

BARE_SCHEMA = pa.schema([*list(SCHEMA)[:-1], pa.field("expires", pa.timestamp("us", "UTC"))])
"""Of a frame without the messages."""

FRAME_BYTES = 4 << 20
_OPENING_BYTES = 8
"""Of a body's section, before its content, if that is bytes or text whose size has four bytes."""
BARE_FRAME_BYTES = 32 << 20
"""Likewise of messages that are left out."""
OMITTED = b"omitted"
"""Among the metadata of a frame's schema: of which rows the body is left out, and its size (`omitted_of`)."""


def frames(
    store: LmdbStore,
    queue: int,
    after: int,
    through: int,
    *,
    bare: bool = False,
    body_bytes_max: int = BODY_BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    """The messages of a queue with `after` < seq <= `through`, in the same lane, some megabytes a frame.

    Args:
        bare: without the messages themselves (`BARE_SCHEMA`).
        body_bytes_max: of large messages, larger bodies than that are left out: `OMITTED` says of which rows.
    """
    while after < through:
        if bare:
            frame = store.read_blocks(queue, after, through, BARE_FRAME_BYTES, _bare)
        else:
            frame = store.read_blocks(queue, after, through, FRAME_BYTES, _joined)
        if frame is None:
            frame = _one_by_one(store, queue, after, through, None if bare else body_bytes_max)
        else:
            seqs = frame.column(0).to_numpy()
            begin, end = np.searchsorted(seqs, [after, through], side="right")
            frame = frame.slice(int(begin), int(end - begin))
        if not frame.num_rows:
            return
        after = frame.column(0)[-1].as_py()
        yield frame


def _joined(blocks: Sequence[RawBlock]) -> pa.RecordBatch | None:
    """Whole blocks as one batch; None if a message in them is a large one, which is elsewhere."""
    data = b"".join([block.content for block in blocks])
    counts = [block.rows for block in blocks]
    offsets = np.zeros(sum(counts) + 1, np.int32)
    offsets[1:] = np.frombuffer(b"".join([block.ends for block in blocks]), ">u4")
    sizes = np.array([len(block.content) for block in blocks], np.int64)
    before = np.cumsum(sizes) - sizes
    offsets[1:] += np.repeat(before, counts).astype(np.int32)
    if _any_large(data, offsets):
        return None
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    messages = pa.BinaryArray.from_buffers(pa.binary(), sum(counts), buffers)
    return pa.RecordBatch.from_arrays([*_known(blocks), messages], schema=SCHEMA)


def _any_large(data: bytes, offsets: npt.NDArray[np.int32]) -> bool:
    """Whether a message may be a stub: few other messages end as one, and none has to."""
    ends = offsets[1:][np.diff(offsets) >= len(STUB_MARK)]
    maybe = ends[np.frombuffer(data, np.uint8)[ends - 1] == STUB_MARK[-1]]
    return any(data.endswith(STUB_MARK, 0, int(end)) for end in maybe)


def _bare(blocks: Sequence[RawBlock]) -> pa.RecordBatch:
    """Rows known from the heads of whole blocks."""
    times = [block.expiries or bytes(8 * block.rows) for block in blocks]
    expires = np.frombuffer(b"".join(times), ">u8").astype(np.int64)
    return pa.RecordBatch.from_arrays([*_known(blocks), _expiries(expires)], schema=BARE_SCHEMA)


def _known(blocks: Sequence[RawBlock]) -> list[pa.Array]:
    """The columns that are in both schemas; of blocks none was delivered in vain."""
    counts = [block.rows for block in blocks]
    numbers = np.frombuffer(b"".join([block.deltas for block in blocks]), ">u4").astype(np.int64)
    numbers += np.repeat(np.array([block.first for block in blocks], np.int64), counts)
    times = np.repeat(np.array([block.stored_us for block in blocks], np.int64), counts)
    failed, flagged = np.zeros(len(numbers), np.int32), np.zeros(len(numbers), bool)
    return [pa.array(numbers), pa.array(times), pa.array(failed), pa.array(flagged)]


def _expiries(times_us: Ints) -> pa.Array:
    return pa.array(times_us, pa.int64(), mask=times_us == 0).cast(BARE_SCHEMA.field("expires").type)


def _one_by_one(store: LmdbStore, queue: int, after: int, through: int, body_bytes_max: int | None) -> pa.RecordBatch:
    """Copies of what a topic keeps, large messages, and those with failed deliveries: message by message.

    Args:
        body_bytes_max: None for no messages at all.
    """
    found = [message for message in store.messages(queue, after, 1 << 16, FRAME_BYTES) if message.seq <= through]
    wholes, omitted = ([], {}) if body_bytes_max is None else _wholes(store, found, body_bytes_max)
    bare = body_bytes_max is None
    if not bare:
        found = found[: len(wholes)]
    known = [
        pa.array([message.seq for message in found], pa.int64()),
        pa.array([message.stored_us for message in found], pa.int64()),
        pa.array([message.count for message in found], pa.int32()),
        pa.array([message.flagged for message in found], pa.bool_()),
    ]
    if bare:
        expires = _expiries(np.array([message.expires_us for message in found], np.int64))
        return pa.RecordBatch.from_arrays([*known, expires], schema=BARE_SCHEMA)
    schema = SCHEMA.with_metadata({OMITTED: msgspec.msgpack.encode(omitted)}) if omitted else SCHEMA
    return pa.RecordBatch.from_arrays([*known, pa.array(wholes, pa.binary())], schema=schema)


def _wholes(
    store: LmdbStore, messages: Sequence[StoredMessage], body_bytes_max: int
) -> tuple[list[bytes], dict[int, int]]:
    """The first messages, whole, until a frame is full; and of which of them the body is left out, and its size."""
    wholes: list[bytes] = []
    omitted: dict[int, int] = {}
    left = FRAME_BYTES
    for message in messages:
        stub = read_stub(message.body)
        body_bytes = 0 if stub is None else _body_bytes(store, stub)
        is_omitted = body_bytes > body_bytes_max
        left -= len(message.body) + (0 if is_omitted else body_bytes)
        if wholes and left < 0:
            break
        if is_omitted:
            omitted[len(wholes)] = body_bytes
        if stub is None:
            wholes.append(message.body)
        else:
            wholes.append(b"".join([stub_head(message.body), *(() if is_omitted else _chunks(store, stub))]))
    return wholes, omitted


def _body_bytes(store: LmdbStore, stub: Stub) -> int:
    """How many bytes a large message's body has, without what its section needs if it is one."""
    opening = (store.chunk(stub.large, 0) or b"")[:_OPENING_BYTES]
    if opening[3:4] in (b"\xb0", b"\xb1") and body_bytes_least(opening, 0) == stub.size:
        return stub.size - _OPENING_BYTES
    return stub.size


def _chunks(store: LmdbStore, stub: Stub) -> Iterator[bytes]:
    index = 0
    while (part := store.chunk(stub.large, index)) is not None:
        yield part
        index += 1
