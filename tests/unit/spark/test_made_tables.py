"""SQL over the tables that `legato ledger run` keeps: silver with names and types, and only what is current."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from legato.errors import ConfigError
from legato.spark.query.ledger_query import LedgerQuery
from legato.spark.query.made_tables import LAST_PART
from legato.spark.summaries.message_summary import MESSAGE_TYPES
from legato.spark.tables.gold import OF_MESSAGES
from tests.spark.history import history
from tests.unit.spark.test_ledger_query import ledger_of

STORED_US = 1_700_000_000_000_000
_ARROW = {"int": pa.int32(), "bigint": pa.int64()}


def write_silver(tables: Path, batch: int, *, is_open: bool, seqs: list[int], whole: bool = True) -> None:
    """Messages of a portion, as `legato ledger run` writes them."""
    columns = {name: pa.array([0] * len(seqs), _ARROW[kind]) for name, kind in MESSAGE_TYPES.items()}
    columns["queue"] = pa.array([7] * len(seqs), pa.int32())
    columns["seq"] = pa.array(seqs, pa.int64())
    columns["stored_us"] = pa.array([STORED_US] * len(seqs), pa.int64())
    columns["left_us"] = pa.array([None] * len(seqs), pa.int64())
    place = tables / "silver" / f"batch={batch}" / f"open={str(is_open).lower()}"
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), place / "part-0.parquet")
    done = tables / "parts" / LAST_PART / f"batch={batch}"
    done.mkdir(parents=True, exist_ok=True)
    if whole:
        (done / "_SUCCESS").touch()


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Two portions, and one that was cut short."""
    made = tmp_path / "it's made"
    write_silver(made, 0, is_open=True, seqs=[1, 2])
    write_silver(made, 0, is_open=False, seqs=[0])
    write_silver(made, 1, is_open=True, seqs=[2])
    write_silver(made, 1, is_open=False, seqs=[1])
    write_silver(made, 2, is_open=False, seqs=[2], whole=False)
    names = made / "gold" / "queue_names"
    names.mkdir(parents=True)
    row = {"queue": pa.array([7], pa.int32()), "destination": ["orders"], "kind": ["queue"], "temporary": [False]}
    pq.write_table(pa.table(row), names / "part-0.parquet")
    (made / "gold" / "empty").mkdir()
    return made


def test_a_message_has_the_name_of_its_queue_times_and_a_boolean_and_is_there_once(tables: Path) -> None:
    with LedgerQuery(tables) as query:
        sql = "select destination, kind, seq, open, epoch_us(stored_at) as us, left_at from silver order by seq"
        rows = query.table(sql).to_pylist()
        described = query.tables()
    common = {"destination": "orders", "kind": "queue", "us": STORED_US, "left_at": None}
    assert rows == [common | {"seq": seq, "open": seq == 2} for seq in (0, 1, 2)]
    assert [table.name for table in described] == ["silver", "gold.queue_names"]
    types = dict(described[0].columns)
    assert (types["open"], types["stored_at"], types["destination"]) == ("boolean", "timestamp", "varchar")


def test_with_the_facts_that_were_kept_there_are_the_tables_of_a_ledger_too(tables: Path, tmp_path: Path) -> None:
    ledger = ledger_of(history(), tmp_path / "ledger")
    with LedgerQuery(ledger) as query:
        expected = query.table("select destination, message_id, state from messages order by all").to_pylist()
    (tables / "bronze" / "batch=0").mkdir(parents=True)
    for segment in ledger.glob("*.parquet"):
        segment.rename(tables / "bronze" / "batch=0" / segment.name)
    with LedgerQuery(tables) as query:
        assert query.table("select destination, message_id, state from messages order by all").to_pylist() == expected
        assert {"silver", "messages", "facts"} <= {table.name for table in query.tables()}


def test_tables_that_cannot_be_asked_say_why(tables: Path) -> None:
    (tables / "silver" / "_delta_log").mkdir()
    with pytest.raises(ConfigError, match="is a Delta table: read it with"):
        LedgerQuery(tables)
    (tables / "silver" / "_delta_log").rmdir()
    for done in tables.glob("parts/*/*/_SUCCESS"):
        done.unlink()
    with pytest.raises(ConfigError, match="are not made yet"):
        LedgerQuery(tables)


def test_the_last_step_of_a_portion_is_the_one_that_is_looked_for() -> None:
    """The queries do not import Spark, and the steps do."""
    assert OF_MESSAGES[-1].name == LAST_PART
