"""Free pages of an LMDB file: LMDB's own list of them, which its bindings do not show.

The layout is that of LMDB 0.9 (`MDB_meta`, `MDB_page`, `MDB_node` of its `mdb.c`), which all its files have.
"""

import struct
from typing import Any, BinaryIO

_META = struct.Struct("=16x 4s 20x 40x Q 40x Q Q Q")
"""Of a meta page: magic, the free list's root, that of the data, the last page, the transaction."""
_MAGIC = (0xBEEFC0DE).to_bytes(4, "little")
_PAGE = struct.Struct("=8x 2x H H H")
"""Of any other page: flags, where its list of nodes ends, where the nodes begin; for overflow pages their count."""
_PAGE_BYTES = 16
_NODE = struct.Struct("=H H H H")
_BRANCH, _LEAF, _OVERFLOW = 0x01, 0x02, 0x04
_BIG = 0x01
_EMPTY = (1 << 64) - 1
_TRIES = 100


def free_pages(environment: Any, file: BinaryIO) -> set[int]:
    """The numbers of the pages that hold nothing, as of the last commit.

    Args:
        environment: an open `lmdb.Environment`.
        file: its `data.mdb`, open for reading, unbuffered.

    Raises:
        ValueError: the list cannot be read: the file is damaged.
    """
    page_bytes: int = environment.stat()["psize"]
    for _ in range(_TRIES):
        # While it is open nobody writes to pages that it can see.
        with environment.begin() as transaction:
            file.seek(transaction.id() % 2 * page_bytes)
            magic, root, _, _, number = _META.unpack(_read(file, _META.size))
            if magic != _MAGIC:
                raise ValueError("there is no meta page")
            if number == transaction.id():
                return set() if root == _EMPTY else set(_Tree(file, page_bytes).numbers(root))
    raise ValueError("it is written to too fast")


class _Tree:
    """The tree of the free list: transactions, and the pages that each has freed."""

    def __init__(self, file: BinaryIO, page_bytes: int) -> None:
        self._file = file
        self._page_bytes = page_bytes

    def numbers(self, page: int, depth: int = 0) -> list[int]:
        self._file.seek(page * self._page_bytes)
        data = _read(self._file, self._page_bytes)
        flags, lower, _ = _PAGE.unpack_from(data)
        if depth > 32 or not flags & (_BRANCH | _LEAF) or lower > self._page_bytes:
            raise ValueError(f"page {page} is no part of the list")
        found: list[int] = []
        for at in struct.unpack_from(f"={(lower - _PAGE_BYTES) // 2}H", data, _PAGE_BYTES):
            low, high, node_flags, key_bytes = _NODE.unpack_from(data, at)
            if flags & _BRANCH:
                found += self.numbers(low | high << 16 | node_flags << 32, depth + 1)
                continue
            begin, size = at + _NODE.size + key_bytes, low | high << 16
            if node_flags & _BIG:
                (overflow,) = struct.unpack_from("=Q", data, begin)
                self._file.seek(overflow * self._page_bytes + _PAGE_BYTES)
                value = _read(self._file, size)
            else:
                value = data[begin : begin + size]
            count, *numbers = struct.unpack(f"={len(value) // 8}Q", value)
            found += numbers[:count]
        return found


def _read(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise ValueError("it ends in the middle of a page")
    return data
