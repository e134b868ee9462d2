"""The main job from flights to verdict: real brokers, a real SIGKILL, a real Spark."""

import sqlite3
from io import StringIO

import msgspec
import pyarrow.parquet as parquet
import pytest
from rich.console import Console

from legato.demo.carriers import FILE
from legato.demo.job import judge, run_demo
from legato.demo.options import DemoOptions
from legato.demo.run import RunResult, records_directory

FLIGHTS = 4_000


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> DemoOptions:
    """A run that held; the tests look at what it left."""
    out = tmp_path_factory.mktemp("main-job")
    options = DemoOptions(flights=FLIGHTS, kills=1, seed=3, out=out / "out", json_file=out / "result.json")
    screen = StringIO()
    outcome = run_demo(options, Console(file=screen, width=140))
    assert outcome.holds, screen.getvalue()
    return options


def test_every_message_is_accounted_for_after_a_kill(done: DemoOptions) -> None:
    assert done.json_file is not None
    result = msgspec.json.decode(done.json_file.read_bytes())
    assert (result["sent"], result["consumed"], result["forwarded"]) == (FLIGHTS, FLIGHTS, FLIGHTS)
    assert (result["lost"], result["duplicated"], result["dead_lettered"]) == (0, 0, 0)
    assert (result["totals_equal"], result["database_equal"]) == (True, True)
    assert [takeover["epoch"] for takeover in result["takeovers"]] == [2]
    assert result["takeovers"][0]["gap_ms"] > 0
    assert (done.out / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.slow
def test_records_that_are_missing_or_there_twice_and_a_wrong_total_in_the_database_are_found(
    done: DemoOptions,
) -> None:
    result = RunResult(sent=FLIGHTS, collected=FLIGHTS, takeovers=[], kills=0, seconds=1.0, seed=3)
    file = max(records_directory(done.out).glob("*.parquet"), key=lambda file: file.stat().st_size)
    whole = parquet.read_table(file)
    parquet.write_table(whole.slice(1), file)
    parquet.write_table(whole.slice(1, 2), file.with_name("part-twice.parquet"))
    with sqlite3.connect(done.out / FILE) as database:
        database.execute("UPDATE carriers SET distance = distance + 1 WHERE carrier = 'UA'")
    screen = StringIO()
    outcome = judge(done, result, done.out / "store", Console(file=screen, width=140))
    assert (outcome.lost, outcome.duplicated, outcome.totals_equal, outcome.holds) == (1, 2, False, False)
    assert not outcome.database_equal
    assert "1 messages were lost" in screen.getvalue()
