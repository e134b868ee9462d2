"""Names of ledger segments, from which one can tell how far the log of facts has been exported."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_NAME = re.compile(r"facts-(\d{16,})-(\d{16,})\.parquet")


class SegmentSpan(NamedTuple):
    """First and last log position in a segment."""

    first: int
    last: int

    @property
    def file_name(self) -> str:
        """The name of the segment's file; names sort as positions do."""
        return f"facts-{self.first:016d}-{self.last:016d}.parquet"


def span_of(name: str) -> SegmentSpan | None:
    """Span of positions in a file of that name; None if it is no segment."""
    match = _NAME.fullmatch(name)
    return SegmentSpan(int(match[1]), int(match[2])) if match else None


def spans(ledger: Path) -> Iterator[SegmentSpan]:
    """The segments in a ledger's directory, in no order; none if the directory does not exist."""
    try:
        names = os.listdir(ledger)
    except FileNotFoundError:
        return
    for name in names:
        if span := span_of(name):
            yield span


def gaps(found: Iterable[SegmentSpan], expected: int = 1) -> list[SegmentSpan]:
    """What is missing between segments.

    Args:
        found: in the order of the log.
        expected: the position with which they should begin.
    """
    missing: list[SegmentSpan] = []
    for span in found:
        if span.first > expected:
            missing.append(SegmentSpan(expected, span.first - 1))
        expected = max(expected, span.last + 1)
    return missing


def exported_through(ledger: Path) -> int:
    """The last log position that the ledger holds, 0 if none: up to here a store may trim its log.

    One directory listing, no file is opened.
    """
    return max((span.last for span in spans(ledger)), default=0)
