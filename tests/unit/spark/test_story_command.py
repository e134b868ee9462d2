"""`legato story`: one message's life, told without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from legato.cli.failures import EXIT_FAILED, explain
from legato.cli.main import app
from legato.errors import LegatoError
from legato.spark.ledger.segments import write_segment
from tests.spark.history import READERS, history, news_history
from tests.unit.spark.test_ledger_query import ledger_of

WHAT_IT_LOADS = """
import sys
from legato.cli.main import main

sys.argv = ["legato", "story", "ID:5", sys.argv[1]]
try:
    main()
finally:
    print(" ".join(sys.modules))
"""


def events(message: str, ledger: Path) -> list[tuple[str, int, str]]:
    told = CliRunner().invoke(app, ["story", message, str(ledger), "--json"])
    assert told.exit_code == 0, told.output
    return [(each["queue"], each["seq"], each["event"]) for each in json.loads(told.output)["chapters"]]


def test_a_story_follows_a_message_to_the_dead_letters(tmp_path: Path) -> None:
    ledger = ledger_of(history(), tmp_path / "ledger")
    assert events("ID:5", ledger) == [
        ("orders", 5, "stored, 10 bytes by shop as its 5"),
        ("orders", 5, "dead-lettered by consumer 1 of w: poison, to DLQ 1"),
        ("DLQ", 1, "stored, 10 bytes from orders 5"),
    ]
    lines = CliRunner().invoke(app, ["story", "ID:5", str(ledger)]).output.splitlines()
    assert lines[0] == "ID:5"
    assert "  +285 ms  epoch 2  orders 5: dead-lettered" in lines[2]


def test_a_story_follows_a_copy_through_a_delayed_redelivery(tmp_path: Path) -> None:
    """As `tests/spark/test_message_stories.py` has it of the audit's stories."""
    told = events(f"{READERS}/3", ledger_of(news_history(), tmp_path / "ledger"))
    assert [(queue.rpartition("/")[2], seq, event.partition(",")[0]) for queue, seq, event in told[:3]] == [
        ("readers", 3, "stored"),
        ("readers", 3, "came back by consumer 1: modified"),
        ("readers", 3, "moved: delayed"),
    ]
    assert (told[-1][1], told[-1][2].partition(",")[0]) == (5, "consumed by consumer 1")


def test_a_message_may_be_named_by_its_queue(tmp_path: Path) -> None:
    ledger = ledger_of(history(), tmp_path / "ledger")
    assert events("orders/5", ledger) == events("ID:5", ledger)
    assert events("DLQ/1", ledger) == events("ID:5", ledger)
    told = CliRunner().invoke(app, ["story", "nowhere/5", str(ledger)])
    assert str(told.exception) == "The ledger knows no message nowhere/5."


def test_a_ledger_in_which_commits_are_missing_is_not_read_without_a_word(tmp_path: Path) -> None:
    facts = list(enumerate(history(), 1))
    for first in range(0, len(facts), 4):
        write_segment(tmp_path, facts[first : first + 4])
    commands = (
        ["story", "ID:5"],
        ["ledger", "query", "select count(*) from facts"],
        ["ledger", "compact", "--dry-run"],
    )
    for words in commands:
        assert "Incomplete" not in CliRunner().invoke(app, [*words, str(tmp_path)]).stderr
    sorted(tmp_path.glob("facts-*"))[1].unlink()
    for words in commands:
        told = CliRunner().invoke(app, [*words, str(tmp_path)])
        assert f"Incomplete: Commits are missing in {tmp_path}: 5-8." in told.stderr
    sorted(tmp_path.glob("facts-*"))[0].unlink()
    told = CliRunner().invoke(app, ["story", "ID:5", str(tmp_path)])
    assert f"Incomplete: The ledger in {tmp_path} begins with commit 9" in told.stderr


def test_a_segment_that_is_damaged_is_named(tmp_path: Path) -> None:
    ledger = ledger_of(history(), tmp_path / "ledger")
    damaged = sorted(ledger.glob("facts-*"))[1]
    content = bytearray(damaged.read_bytes())
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[4:footer] = bytes(footer - 4)
    damaged.write_bytes(content)
    told = CliRunner().invoke(app, ["story", "orders/5", str(ledger)])
    assert f"The segment {damaged} cannot be read" in str(told.exception)


def test_a_message_that_nobody_knows_is_a_sentence(tmp_path: Path) -> None:
    write_segment(tmp_path, list(enumerate(history(), 1)))
    told = CliRunner().invoke(app, ["story", "ID:none", str(tmp_path)])
    assert isinstance(told.exception, LegatoError)
    assert explain(told.exception) == (
        "The ledger knows no message ID:none. "
        "What Spark's sink published has no ids there: name it by its place, QUEUE/SEQUENCE.",
        EXIT_FAILED,
    )


def test_a_story_needs_no_spark(tmp_path: Path) -> None:
    write_segment(tmp_path, list(enumerate(history(), 1)))
    answer = subprocess.run(
        [sys.executable, "-c", WHAT_IT_LOADS, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "dead-lettered" in answer.stdout
    assert "pyspark" not in answer.stdout.splitlines()[-1].split()
