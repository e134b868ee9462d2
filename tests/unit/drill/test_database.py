"""What is wrong in the database of a drill's flows is found, each under its name."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from legato.drill.database import DATABASE_NAME, INSERT, STAGES, TABLE, judge_database
from legato.drill.records import REFUSED, SENDING, STORED, Producing, RecordWriter


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Messages 1 and 2 were stored, 3 perhaps, 4 was refused; 1 and 2 went through all stages."""
    with RecordWriter(tmp_path / "records", "p", Producing("p", "q")) as record:
        record.sent(SENDING, [1, 2, 3, 4])
        record.sent(STORED, [1, 2])
        record.sent(REFUSED, [4])
    write(tmp_path / "records", [1, 2])
    return tmp_path / "records"


def write(records: Path, numbers: Sequence[int], stages: Sequence[int] = STAGES) -> None:
    with closing(sqlite3.connect(records.parent / DATABASE_NAME)) as database, database:
        database.execute(TABLE)
        database.executemany(INSERT, [("p", number, stage) for number in numbers for stage in stages])


def test_one_row_of_each_stage_for_each_stored_message_holds(records: Path) -> None:
    finding = judge_database(records, "q")
    assert finding.holds
    assert (finding.subscription, finding.sent, finding.received) == ("q/database", 2, 2)


def test_a_stored_message_that_misses_one_stage_is_lost(records: Path) -> None:
    with RecordWriter(records, "p", Producing("p", "q")) as record:
        record.sent(STORED, [5, 6])
    write(records, [5, 6], STAGES[:2])
    finding = judge_database(records, "q")
    assert finding.lost == 2
    assert "message 5 of p in q/database (rows: 1 of stage 1, 1 of stage 2, 0 of stage 3)" in finding.examples[0]


def test_a_second_row_of_one_stage_is_a_duplicate(records: Path) -> None:
    write(records, [2], [2])
    finding = judge_database(records, "q")
    assert (finding.lost, finding.duplicated) == (0, 1)
    assert "message 2 of p" in finding.examples[0]


def test_what_was_perhaps_stored_may_be_there_and_not_twice(records: Path) -> None:
    write(records, [3])
    assert judge_database(records, "q").holds
    write(records, [3])
    assert judge_database(records, "q").duplicated == 1


def test_rows_of_what_was_refused_or_never_sent_are_false(records: Path) -> None:
    write(records, [4, 9])
    assert judge_database(records, "q").falsely_told == 2


def test_without_a_database_all_that_was_stored_is_lost(records: Path) -> None:
    (records.parent / DATABASE_NAME).unlink()
    assert judge_database(records, "q").lost == 2
