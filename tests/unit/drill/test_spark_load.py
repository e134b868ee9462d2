"""The Spark job in the load of a drill: who is beside it, what becomes of its driver, and what the account says."""

import ast
import importlib.util
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from legato.cli.failures import explain
from legato.cli.main import app
from legato.client import TextMessage
from legato.drill import job, spark_job
from legato.drill.checker import Finding, judge_records
from legato.drill.client_history import head_of
from legato.drill.driver import Driver, members_of
from legato.drill.load import Client, Trait, spark_clients_of
from legato.drill.messages import MutilatedError, check, make_message, text_of
from legato.drill.options import DrillOptions
from legato.drill.records import SENDING, STORED, Identity, Producing, RecordWriter
from legato.drill.spark_job import SparkOrders
from legato.errors import ConfigError

WAIT_S = 60.0
PROGRAM = ("sh", "-c")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Two messages were sent to the job and are stored, and a third one perhaps."""
    source = spark_clients_of("")[0].flow
    with RecordWriter(tmp_path, "p", Producing("p", source)) as record:
        record.sent(SENDING, [1, 2, 3])
        record.sent(STORED, [1, 2])
    return tmp_path


def collector() -> Client:
    """Who receives what comes out of the job."""
    (found,) = [client for client in spark_clients_of("") if client.collects]
    return found


def come_out(records: Path, *numbers: int) -> Finding:
    with RecordWriter(records, "c", head_of(collector())) as record:
        for number in numbers:
            record.seen(Identity("p", number), redelivered=False)
            record.done([Identity("p", number)])
    (finding,) = judge_records(records)
    return finding


def test_who_collects_is_held_against_what_was_sent_to_the_job() -> None:
    assert collector().flow == "spark-out"
    assert head_of(collector()).subscription == "spark/end-to-end"
    assert head_of(collector()).flow == "spark"
    assert head_of(collector()).exactly_once
    assert [client.name for client in spark_clients_of("") if client.sends] == [
        "spark-producer",
        "spark-transacted-producer",
    ]


def test_what_comes_out_once_holds(records: Path) -> None:
    assert come_out(records, 1, 2).holds
    assert come_out(records, 3).holds


def test_what_does_not_come_out_is_lost(records: Path) -> None:
    finding = come_out(records, 1)
    assert (finding.lost, finding.duplicated, finding.falsely_told) == (1, 0, 0)
    assert "lost: message 2 of p in spark/end-to-end" in finding.examples[0]


def test_what_comes_out_twice_is_a_duplicate(records: Path) -> None:
    finding = come_out(records, 1, 2, 2)
    assert (finding.lost, finding.duplicated, finding.wrong_flags) == (0, 1, 1)


def test_what_nobody_sent_is_false(records: Path) -> None:
    assert come_out(records, 1, 2, 9).falsely_told == 1


def test_a_body_that_is_not_the_one_that_was_sent_is_noticed() -> None:
    message, _ = make_message(Identity("p", 1), Trait.STREAMED)
    check(message, Trait.STREAMED, "")
    with pytest.raises(MutilatedError, match="is not what was sent"):
        check(TextMessage(text_of(Identity("p", 1))[:-1]), Trait.STREAMED, "")


def test_without_spark_the_drill_says_so_before_it_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(job, "spark_is_there", lambda: False)
    with pytest.raises(ConfigError, match="--spark-load needs Spark: pip install") as raised:
        job.run_drill(DrillOptions(spark_load=True, out=tmp_path / "out"), Console())
    assert explain(raised.value) == (str(raised.value), 2)
    assert not (tmp_path / "out").exists()


def test_the_list_says_which_fault_needs_the_job() -> None:
    listed = CliRunner().invoke(app, ["drill", "--list"]).output
    assert re.search(r"^  kill-driver +\+ SIGKILL", listed, re.MULTILINE)
    assert "between-publish-and-commit" in listed


# -- the driver


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[[str], Driver]]:
    made: list[Driver] = []

    def make(script: str) -> Driver:
        """A driver that a shell plays; its second word is the orders'."""
        orders = SparkOrders("amqp://nobody", "in", "out", str(tmp_path / "checkpoint"))
        made.append(Driver(orders, tmp_path, {}, ["sh", "-c", script]))
        return made[-1]

    yield make
    for each in made:
        each.end()


def note(checkpoint: Path, log: str, batch: int) -> None:
    (checkpoint / log).mkdir(parents=True, exist_ok=True)
    (checkpoint / log / str(batch)).touch()
    (checkpoint / log / f".{batch}.crc").touch()


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def starts_of(driver: Driver) -> int:
    driver.poll()
    return driver.starts


def test_a_kill_leaves_no_process_and_the_next_life_begins_late(driver: Callable[[str], Driver]) -> None:
    one = driver("sleep 1000 & sleep 1000")
    one.start()
    wait_until(lambda: len(one.pids) == 3)
    session = min(one.pids)
    one.kill(late_s=0.2)
    assert members_of(session) == []
    one.poll()
    assert (one.starts, one.kills, one.interrupted, one.pids) == (1, 1, 0, [])
    assert not one.is_at_work()
    wait_until(lambda: starts_of(one) == 2)
    assert one.failures == []


def test_a_kill_in_the_midst_of_a_batch_is_counted(driver: Callable[[str], Driver], tmp_path: Path) -> None:
    one = driver("sleep 1000")
    one.start()
    assert (one.batches, one.is_in_batch, one.is_at_work()) == (0, False, False)
    note(tmp_path / "checkpoint", "offsets", 0)
    note(tmp_path / "checkpoint", "commits", 0)
    assert (one.batches, one.is_in_batch, one.is_at_work()) == (1, False, True)
    note(tmp_path / "checkpoint", "offsets", 1)
    one.kill(late_s=0.0)
    assert one.interrupted == 1
    one.poll()
    assert not one.is_at_work(), "its second life has done nothing yet"


def test_a_driver_that_ends_by_itself_is_started_again_and_says_why(
    driver: Callable[[str], Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("legato.drill.driver.AGAIN_S", 0.0)
    one = driver("echo no luck >&2; exit 3")
    one.start()
    wait_until(lambda: starts_of(one) == 2)
    assert one.failures[0] == "exit code 3: no luck"


def test_the_last_life_is_not_followed_by_another(driver: Callable[[str], Driver]) -> None:
    one = driver('case "$1" in *\'"until_empty":true\'*) exit 0;; esac; sleep 1000')
    one.start()
    one.drain()
    wait_until(one.has_ended)
    one.poll()
    assert (one.exit_code, one.starts, one.failures) == (0, 2, [])


def test_what_the_job_imports_is_there() -> None:
    """It is imported in the job's own process only: a module that moved would be missed in drills, minutes later."""
    tree = ast.parse(Path(spark_job.__file__).read_text())
    names = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert names
    for name in names:
        assert importlib.util.find_spec(str(name)) is not None
