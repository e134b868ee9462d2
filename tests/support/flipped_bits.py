"""Copies of a Parquet file in whose data a disk has changed one bit."""

from collections.abc import Iterator


def flipped_bits(whole: bytes, count: int) -> Iterator[bytes]:
    """The bytes of a file, again and again, each time with another bit of its pages changed.

    Args:
        whole: the file's bytes.
        count: at how many places of its pages, at equal distances.
    """
    end = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for place in range(4, end, end // count):
        changed = bytearray(whole)
        changed[place] ^= 1
        yield bytes(changed)
