"""SQL over the tables that `legato ledger run` keeps: silver with names and types, and only what is current."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from legato.errors import ConfigError, StoreCorruptError
from legato.spark.ledger.ledger_groups import ledgers_of
from legato.spark.query.ledger_query import LedgerQuery
from legato.spark.query.made_tables import LAST_PART
from legato.spark.summaries.message_summary import MESSAGE_TYPES
from legato.spark.tables.gold import OF_MESSAGES
from tests.spark.history import history
from tests.unit.spark.test_ledger_query import ledger_of, run

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


def test_tables_in_a_directory_that_is_called_like_a_url_are_asked(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_facts(tables, 0)
    tables.rename(tables.parent / "file:x")
    monkeypatch.chdir(tables.parent)
    with LedgerQuery("file:x") as query:
        assert query.table("select seq, open from silver order by seq").to_pylist() == [
            {"seq": seq, "open": seq == 2} for seq in (0, 1, 2)
        ]
        assert query.table("select count(*) > 0 as some from facts").to_pylist() == [{"some": True}]


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


COUNT = "select count(*) n from silver"


def kept_facts(tables: Path, batch: int) -> None:
    """The facts of a portion, as `--bronze` keeps them."""
    (tables / "bronze").mkdir(exist_ok=True)
    ledger_of(history(), tables / "bronze" / f"batch={batch}")


def test_what_is_being_written_is_not_read(tables: Path) -> None:
    """The next portion is half there: its messages, its facts, and files without an end."""
    kept_facts(tables, 0)
    with LedgerQuery(tables) as query:
        before = query.table("select count(*) n from facts").to_pylist()
    kept_facts(tables, 2)
    for place in (
        "silver/batch=2/open=true",
        "silver/batch=1/open=false",
        "bronze/batch=3/_temporary",
        "bronze/batch=1",
    ):
        (tables / place).mkdir(parents=True, exist_ok=True)
        (tables / place / ".part-0.parquet.1f0c.parquet").write_bytes(b"PAR1")
    (tables / "silver" / "batch=2" / "open=false" / "part-1.parquet").write_bytes(b"PAR1")
    (tables / "bronze" / "batch=3" / "_temporary" / "part-0.parquet").write_bytes(b"PAR1")
    with LedgerQuery(tables) as query:
        assert query.table("select count(*) n from facts").to_pylist() == before
        assert query.table(COUNT).to_pylist() == [{"n": 3}]


def test_what_was_opened_stays_what_it_is_as_portions_come(tables: Path) -> None:
    """The tables of gold are replaced, and what waited after a portion is removed, while somebody asks."""
    gold = tables / "gold" / "queue_names" / "part-0.parquet"
    with LedgerQuery(tables) as query:
        silver = query.table("from silver order by seq")
        names = query.table("from gold.queue_names")
        numbers = pa.array(range(7, 107), pa.int32())
        more = pa.table({"queue": numbers, "destination": [f"queue {number}" for number in range(100)]})
        pq.write_table(more, tables / "new")
        (tables / "new").rename(gold)
        shutil.rmtree(tables / "silver" / "batch=1" / "open=true")
        assert query.table("from silver order by seq") == silver
        assert query.table("from gold.queue_names") == names
        settled = tables / "silver" / "batch=1" / "open=false" / "part-0.parquet"
        settled.write_bytes(b"damaged")
        with pytest.raises(StoreCorruptError) as raised:
            query.table("from silver")
    assert str(settled) in str(raised.value)


def test_times_as_spark_writes_them_are_those_of_other_tables(tables: Path) -> None:
    at = datetime(2023, 11, 14, 22, 13, 20, 123456)
    (tables / "gold" / "audit").mkdir()
    hours = pa.table({"hour": pa.array([at], pa.timestamp("us"))})
    pq.write_table(hours, tables / "gold" / "audit" / "part-0.parquet", use_deprecated_int96_timestamps=True)
    with LedgerQuery(tables) as query:
        assert query.table("from gold.audit") == hours
        types = {table.name: dict(table.columns) for table in query.tables()}
    assert types["gold.audit"]["hour"] == types["silver"]["stored_at"] == "timestamp"


def test_a_first_portion_without_its_gold_is_not_made_yet(tables: Path) -> None:
    for file in (tables / "gold" / "queue_names").iterdir():
        file.unlink()
    with pytest.raises(ConfigError, match="are not made yet: let legato ledger run finish a portion"):
        LedgerQuery(tables)
    for directory in (tables / "gold").iterdir():
        directory.rmdir()
    (tables / "gold").rmdir()
    with pytest.raises(ConfigError, match="are not made yet: let legato ledger run finish a portion"):
        LedgerQuery(tables)


@pytest.mark.parametrize("damaged", ["silver/batch=1/open=true", "gold/queue_names", "bronze/batch=0"])
def test_a_file_that_is_cut_off_is_named(damaged: str, tables: Path) -> None:
    kept_facts(tables, 0)
    file = sorted((tables / damaged).glob("*.parquet"))[-1]
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(StoreCorruptError, match=r"is not as it was written\. Let legato ledger run") as raised:
        LedgerQuery(tables)
    assert str(file) in str(raised.value)


def test_tables_without_messages_are_empty(tables: Path) -> None:
    for file in tables.glob("silver/*/*/*.parquet"):
        file.unlink()
    with LedgerQuery(tables) as query:
        assert query.table(COUNT).to_pylist() == [{"n": 0}]
        assert dict(query.tables()[0].columns)["open"] == "boolean"


def test_a_portion_that_is_gone_is_named(tables: Path) -> None:
    shutil.rmtree(tables / "silver" / "batch=0")
    with pytest.raises(StoreCorruptError, match="batch=0 is missing"):
        LedgerQuery(tables)


def test_the_command_says_what_the_tables_are_without(tables: Path) -> None:
    """The first portion was made without --bronze, and the second one of a ledger that lacked a segment."""
    kept_facts(tables, 1)
    (tables / "coverage").mkdir()
    (tables / "coverage" / "batch=0.json").write_text("[[1, 4]]")
    (tables / "coverage" / "batch=1.json").write_text("[[7, 9]]")
    result = run("select count(*) n from messages", tables)
    assert result.exit_code == 0
    assert "1 of the 2 portions in" in result.stderr
    assert "without commits 5-6" in result.stderr
    kept_facts(tables, 0)
    (tables / "coverage" / "batch=1.json").write_text("[[5, 9]]")
    assert run("select count(*) n from messages", tables).stderr == ""


@pytest.fixture
def of_groups(tables: Path, tmp_path: Path) -> Path:
    """The tables of two groups, as `legato ledger run` keeps them."""
    both = tmp_path / "both"
    for group in ("orders", "rest"):
        shutil.copytree(tables, both / f"broker_group={group}")
        kept_facts(both / f"broker_group={group}", 0)
    write_silver(both / "broker_group=rest", 2, is_open=False, seqs=[2, 3])
    return both


def test_tables_of_several_groups_are_asked_as_one(of_groups: Path) -> None:
    with LedgerQuery(ledgers_of([of_groups])) as query:
        sql = "select broker_group, destination, count(*) n, bool_or(open) o from silver group by all order by 1"
        assert query.table(sql).to_pylist() == [
            {"broker_group": "orders", "destination": "orders", "n": 3, "o": True},
            {"broker_group": "rest", "destination": "orders", "n": 4, "o": False},
        ]
        names = [table.name for table in query.tables()]
        assert names[:2] == ["silver", "gold.queue_names"]
        assert {"messages", "facts"} <= {*names}
        assert {table.columns[0][0] for table in query.tables()} == {"broker_group"}
    with LedgerQuery(of_groups / "broker_group=rest") as query:
        assert "broker_group" not in query.table("from silver").column_names


def test_tables_and_ledgers_are_not_asked_together(of_groups: Path, tmp_path: Path) -> None:
    ledger = ledger_of(history(), tmp_path / "ledger")
    with pytest.raises(ConfigError, match=r"has tables, .* is a ledger: ask one kind"):
        LedgerQuery({"orders": of_groups / "broker_group=orders", "rest": ledger})


def test_the_last_step_of_a_portion_is_the_one_that_is_looked_for() -> None:
    """The queries do not import Spark, and the steps do."""
    assert OF_MESSAGES[-1].name == LAST_PART
