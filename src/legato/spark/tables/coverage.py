"""Coverage of the tables: which segments each portion was made of, and so which commits are missing.

TABLES/coverage/batch=N.json        the first and last position of each segment of a portion
TABLES/coverage/trimmed=N.json      those of which the ledger had only what its trimming left
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from legato.store.segment_names import SegmentSpan, gaps, span_of


def note_coverage(tables: Path, batch: int, paths: Iterable[str], trimmed: Iterable[SegmentSpan] = ()) -> None:
    """Put on record of which segments a portion is made; what was noted of it before is replaced.

    Args:
        trimmed: positions of which only what a trimming of the ledger left was there.
    """
    if left := sorted(trimmed):
        _write(tables, f"trimmed={batch}.json", left)
    spans = [span for path in paths if (span := span_of(path.rpartition("/")[2])) is not None]
    _write(tables, f"batch={batch}.json", sorted(spans))


def _write(tables: Path, name: str, spans: list[SegmentSpan]) -> None:
    directory = tables / "coverage"
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f".{name}"
    temporary.write_text(json.dumps(spans))
    os.replace(temporary, directory / name)


def forget_coverage(tables: Path, batch: int) -> None:
    """Take off the record of which segments a portion was made."""
    for name in (f"batch={batch}.json", f"trimmed={batch}.json"):
        (tables / "coverage" / name).unlink(missing_ok=True)


def spans_before(tables: Path, batch: int) -> list[SegmentSpan]:
    """The positions of the log that the portions before one have; of tables that a former version began, all before
    the first portion on record."""
    files = sorted((int(file.stem.removeprefix("batch=")), file) for file in (tables / "coverage").glob("batch=*.json"))
    spans = sorted(
        SegmentSpan(*span) for number, file in files if number < batch for span in json.loads(file.read_text())
    )
    if spans and files[0][0] > 0:
        spans.insert(0, SegmentSpan(1, spans[0].first - 1))
    joined: list[SegmentSpan] = []
    for span in spans:
        if joined and span.first <= joined[-1].last + 1:
            joined[-1] = SegmentSpan(joined[-1].first, max(joined[-1].last, span.last))
        else:
            joined.append(span)
    return joined


def without(span: SegmentSpan, taken: Iterable[SegmentSpan]) -> list[SegmentSpan]:
    """What is left of a span of positions."""
    left = [span]
    for other in taken:
        left = [
            part
            for each in left
            for part in (
                SegmentSpan(each.first, min(each.last, other.first - 1)),
                SegmentSpan(max(each.first, other.last + 1), each.last),
            )
            if part.first <= part.last
        ]
    return left


def missing_commits(tables: Path) -> list[SegmentSpan]:
    """The positions of the log, up to the last one taken over, that no portion has.

    Of tables that a former version began, what lies before the first portion on record is not known.
    """
    spans = _noted(tables, "batch")
    if not spans:
        return []
    is_whole = (tables / "coverage" / "batch=0.json").exists()
    return gaps(spans, 1 if is_whole else spans[0].first)


def trimmed_commits(tables: Path) -> list[SegmentSpan]:
    """The positions of the log that were trimmed from the ledger before a portion was made of them."""
    return _noted(tables, "trimmed")


def _noted(tables: Path, kind: str) -> list[SegmentSpan]:
    """The positions in all records of a kind."""
    files = (tables / "coverage").glob(f"{kind}=*.json")
    return sorted(SegmentSpan(*span) for file in files for span in json.loads(file.read_text()))


def trimmings_of(tables: Path) -> list[str]:
    """What to say of tables for which a part of the log was trimmed too early."""
    first = min((span.first for span in _noted(tables, "batch")), default=1)
    return [
        f"The tables begin after commit {span.last}, through which the ledger was trimmed: of what was before, they "
        "have what waited then."
        if span.first == first
        else f"Commits {span.first}-{span.last} were trimmed from the ledger before the tables took them over: what "
        "happened in them is not counted, and messages that they consumed are open for ever. Make new tables in "
        "another directory, and run legato ledger run before legato ledger trim."
        for span in trimmed_commits(tables)
    ]


def complaints_of(tables: Path) -> list[str]:
    """What to say of tables that are not made of the whole log."""
    from legato.spark.checks.log import positions_missing  # Who asks tables with DuckDB may have no Spark.

    sentence = f"{positions_missing.wording.one} {positions_missing.wording.remedy}"
    return [
        sentence.format(first_missing=span.first, last_missing=span.last, segment=span.file_name)
        for span in missing_commits(tables)
    ]
