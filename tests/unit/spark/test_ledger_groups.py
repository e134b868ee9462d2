"""Ledgers of several groups: which is whose, and SQL over all of them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from legato.cli.main import app
from legato.core.facts import LogRecord
from legato.errors import ConfigError
from legato.spark.ledger.ledger_groups import ledgers_of, of_one_root
from legato.spark.ledger.segments import write_segment
from legato.spark.query.ledger_query import LedgerQuery
from legato.spark.query.views import VIEWS
from tests.spark.history import history, news_history


def ledger(directory: Path, records: list[LogRecord]) -> Path:
    directory.mkdir(parents=True)
    write_segment(directory, list(enumerate(records, 1)))
    return directory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    ledger(tmp_path / "broker_group=orders", history())
    ledger(tmp_path / "broker_group=news", news_history())
    return tmp_path


def test_a_ledger_is_called_by_its_directory(tmp_path: Path) -> None:
    one, two = tmp_path / "orders" / "store" / "ledger", tmp_path / "rest" / "ledger"
    one.mkdir(parents=True)
    two.mkdir(parents=True)
    assert ledgers_of([two, one]) == {"orders": one, "rest": two}
    assert ledgers_of([f"a={one}", f"b={one}"]) == {"a": one, "b": one}
    with pytest.raises(ConfigError, match="are called 'orders': give NAME=DIRECTORY"):
        ledgers_of([one, tmp_path / "orders" / "ledger"])


def test_a_directory_may_hold_the_ledgers_of_all_groups(root: Path, tmp_path: Path) -> None:
    found = ledgers_of([root])
    assert found == {"news": root / "broker_group=news", "orders": root / "broker_group=orders"}
    assert of_one_root(found) == root
    assert ledgers_of([root / "broker_group=news"]) == {"news": root / "broker_group=news"}
    assert of_one_root({"other": root / "broker_group=news"}) is None
    assert of_one_root({}) is None


def test_sql_asks_all_groups_at_once(root: Path) -> None:
    with LedgerQuery(ledgers_of([root])) as both:
        counts = both.table("select broker_group, count(*) n from messages group by all order by 1").to_pylist()
        # Numbers of queues are a group's own: nothing is joined across groups.
        names = both.table("select distinct broker_group, destination from messages order by all").to_pylist()
        own = both.table("select count(*) n from group_news.messages").to_pylist()
        for view in VIEWS:
            assert both.table(f"from {view.name} limit 1").column_names[0] == "broker_group"
    alone = {}
    for name, path in ledgers_of([root]).items():
        with LedgerQuery(path) as one:
            alone[name] = one.table("select count(*) n from messages").to_pylist()[0]["n"]
            expected = one.table("select distinct destination from messages order by all").to_pylist()
            assert [row["destination"] for row in names if row["broker_group"] == name] == [
                row["destination"] for row in expected
            ]
    assert {row["broker_group"]: row["n"] for row in counts} == alone
    assert own[0]["n"] == alone["news"]


def test_names_that_sql_does_not_tell_apart_are_refused(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"'a' and 'A' differ in capital letters only"):
        LedgerQuery({"a": root / "broker_group=orders", "A": root / "broker_group=news"})


def test_the_command_asks_them_too(root: Path) -> None:
    sql = "select broker_group, count(*) as facts from facts group by all order by 1"
    answer = CliRunner().invoke(app, ["ledger", "query", sql, str(root), "--format", "csv"])
    assert answer.exit_code == 0, answer.output
    assert [line.partition(",")[0] for line in answer.output.split()] == ["broker_group", "news", "orders"]
    named = [f"a={root / 'broker_group=orders'}", f"b={root / 'broker_group=news'}"]
    answer = CliRunner().invoke(app, ["ledger", "query", sql, *named, "--format", "csv"])
    assert [line.partition(",")[0] for line in answer.output.split()] == ["broker_group", "a", "b"]
    answer = CliRunner().invoke(app, ["ledger", "query", sql, *named, "--store", "x"])
    assert answer.exit_code == 2
