"""What commands about ledgers take from a command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from legato.cli.audit import time_of
from legato.cli.ledger import _ledgers_and_tables, seconds_of
from legato.cli.main import app
from legato.errors import ConfigError
from legato.spark.runtime.session import _require_java


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-23T21:00:30",
        "2026-11-23 21:00:30",
        "2026-11-23T21:00:30Z",
        "2026-11-23T21:00:30.000000Z",
        "2026-11-23 21:00:30 UTC",
        "2026-11-23T22:00:30+01:00",
    ],
)
def test_an_audit_takes_times_as_queries_logs_and_audits_print_them(text: str) -> None:
    """A time with its Z, copied from an answer of `legato ledger query`, was refused."""
    assert time_of(text) == datetime(2026, 11, 23, 21, 0, 30, tzinfo=UTC)


def test_what_is_no_time_is_refused_with_examples() -> None:
    with pytest.raises(typer.BadParameter, match=r"'yesterday' is not a time such as 2026-11-23, .*Z"):
        time_of("yesterday")


def test_how_much_to_keep_may_be_in_seconds() -> None:
    assert (seconds_of("90s"), seconds_of("2 d")) == (90, 172_800)


def test_a_wrong_java_home_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It said that no java was found at that path, on machines that have one on PATH."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=f"JAVA_HOME is {tmp_path}, which has no bin/java"):
        _require_java()


OF_LEDGERS = ["story ID:1", "ledger query tables", "ledger query --tables", "ledger compact", "ledger trim --keep 1d"]


@pytest.mark.parametrize("words", OF_LEDGERS)
def test_a_ledger_is_named_by_itself_by_its_store_or_not_at_all(
    words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`legato story` took no `--store`, and `legato ledger compact` had no default."""
    monkeypatch.chdir(tmp_path)
    for given, meant in (
        ([], "store/ledger"),
        (["--store", "other"], "other/ledger"),
        (["segments", "--store", "other"], "segments"),
    ):
        answer = CliRunner().invoke(app, [*words.split(), *given])
        assert isinstance(answer.exception, ConfigError), answer.output
        assert re.search(rf"There is no directory (/.*/)?{meant}\.", str(answer.exception))


def test_an_audit_finds_the_ledger_of_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def run_audit(ledger: Path, **_: object) -> None:
        asked.append(ledger)
        raise ConfigError("enough")

    monkeypatch.setattr("legato.spark.job.run_audit", run_audit)
    for given in ([], ["--store", "other"], ["segments", "--store", "other"]):
        CliRunner().invoke(app, ["audit", *given])
    assert asked == [Path("store/ledger"), Path("other/ledger"), Path("segments")]


def test_tables_are_made_of_a_ledger_or_of_that_of_a_store() -> None:
    assert _ledgers_and_tables(["segments", "tables"], None) == ("segments", Path("tables"))
    assert _ledgers_and_tables(["tables"], Path("other")) == ("other/ledger", Path("tables"))
    groups = {"a": Path("a"), "b": Path("x")}
    assert _ledgers_and_tables(["a", "b=x", "tables"], None) == (groups, Path("tables"))
    for places, store in ((["tables"], None), (["segments", "tables"], Path("other"))):
        with pytest.raises(typer.BadParameter, match=r"give .* such as legato ledger run"):
            _ledgers_and_tables(places, store)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "ledger", "tables", "--segments", "0"],
        ["run", "ledger", "tables", "--every", "0"],
        ["run", "ledger", "tables", "--every", "-1"],
        ["show", "tables", "audit", "--rows", "0"],
    ],
)
def test_a_number_that_cannot_be_is_refused_before_spark_starts(words: list[str]) -> None:
    told = CliRunner().invoke(app, ["ledger", *words])
    assert told.exit_code == 2
    assert words[-2] in told.stderr
    assert "is not in the range" in " ".join(told.stderr.split())
