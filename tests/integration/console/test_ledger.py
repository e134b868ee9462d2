"""Takeovers and stories in the console, from a ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.console.ledger_view import Epoch, Ledger
from legato.console.pages.members import time_line
from legato.core.facts import (
    ConsumerAttached,
    EpochBegan,
    EpochEnded,
    LogRecord,
    MessageConsumed,
    MessageDeadLettered,
    MessageReturned,
    MessageStored,
    QueueCreated,
    ServingBegan,
)
from legato.spark.ledger.segments import write_segment

WAIT_S = 60.0


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Two epochs, of which the first crashed; one message that died, and one that was consumed."""
    first = [
        LogRecord(1, 1_000_000, [EpochBegan("a:5672"), ServingBegan(1_000_000, "start")]),
        LogRecord(
            1, 2_000_000, [QueueCreated(1, "orders"), QueueCreated(2, "DLQ.orders"), ConsumerAttached(7, 1, "ann")]
        ),
        LogRecord(
            1, 3_000_000, [MessageStored(1, 1, 10, message_id="ID:tea"), MessageStored(1, 2, 10, message_id="ID:x")]
        ),
        LogRecord(1, 4_000_000, [MessageReturned(1, 1, 1, True, 7, "no cup")]),
    ]
    second = [
        LogRecord(2, 9_000_000, [EpochBegan("b:5672"), ServingBegan(9_000_000, "crash", 3_000)]),
        LogRecord(2, 9_500_000, [MessageDeadLettered(1, 1, 7, "maximum deliveries", 2, 1)]),
        LogRecord(2, 9_600_000, [MessageStored(2, 1, 10, "ID:tea", origin=(1, 1))]),
        LogRecord(2, 9_700_000, [MessageConsumed(1, 2, 7, 9_650_000, 1)]),
        LogRecord(2, 9_900_000, [EpochEnded("shutdown")]),
    ]
    write_segment(tmp_path, list(enumerate(first, 1)))
    write_segment(tmp_path, list(enumerate(second, 1 + len(first))))
    return Ledger(tmp_path)


def test_the_story_of_a_message_follows_it_to_the_dead_letters(ledger: Ledger) -> None:
    search = ledger.story("ID:tea", WAIT_S)
    assert search.is_over
    assert search.error == ""
    told = [(each.epoch, each.queue, each.event) for each in search.chapters]
    assert [(epoch, queue) for epoch, queue, _ in told] == [
        (1, "orders"),
        (1, "orders"),
        (2, "orders"),
        (2, "DLQ.orders"),
    ]
    assert "no cup" in told[1][2]
    assert "consumer 7 of ann" in told[1][2]
    assert "dead-lettered" in told[2][2]
    assert "to DLQ.orders 1" in told[2][2]


def test_a_message_that_the_ledger_does_not_know_is_told_as_such(ledger: Ledger) -> None:
    search = ledger.story("ID:nobody", WAIT_S)
    assert search.error == (
        "The ledger knows no message ID:nobody. "
        "What Spark's sink published has no ids there: name it by its place, QUEUE/SEQUENCE."
    )
    assert ledger.story("nowhere/5", WAIT_S).error == "The ledger knows no message nowhere/5."


def test_epochs_are_read_with_how_they_began_and_ended(ledger: Ledger) -> None:
    one, two = ledger.epochs(WAIT_S)
    assert (one.broker, one.serving_us, one.last_us, one.ended_us) == ("a:5672", 1_000_000, 4_000_000, 0)
    assert (two.broker, two.cause, two.detection_us, two.ended_us, two.ended) == (
        "b:5672",
        "crash",
        3_000,
        9_900_000,
        "shutdown",
    )


def test_the_time_line_shows_a_gap_where_nobody_served() -> None:
    one = Epoch(1, "a", 1_000_000, 1_000_000, last_us=4_000_000)
    two = Epoch(2, "b", 9_000_000, 9_000_000)
    line = time_line([one, two], 11_000_000)
    first, second = line["bars"]
    assert first["crashed"]
    assert first["x"] + first["width"] == pytest.approx(line["width"] * 0.3)
    assert second["x"] == pytest.approx(line["width"] * 0.8)
    assert second["lane"] == 1


def test_a_directory_without_segments_is_told_in_a_sentence(tmp_path: Path) -> None:
    assert "no segments" in Ledger(tmp_path / "nothing").obstacle()
