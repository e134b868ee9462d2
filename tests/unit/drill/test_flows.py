"""When a subscription has all that it will get: read from the records of all its consumers, in all their lives."""

from pathlib import Path

import pytest

from legato.drill import client_totals
from legato.drill.client_totals import FlowProgress
from legato.drill.load import Client, Work
from legato.drill.records import SENDING, STORED, Consuming, Identity, Producing, RecordWriter

ONE, TWO = Identity("p", 1), Identity("p", 2)


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two messages were stored, and a third one perhaps; nobody waits to see whether more comes."""
    monkeypatch.setattr(client_totals, "IDLE_S", -1.0)
    with RecordWriter(tmp_path, "p", Producing("p", "q")) as record:
        record.sent(SENDING, [1, 2, 3])
        record.sent(STORED, [1, 2])
    return tmp_path


def test_what_any_consumer_has_done_has_arrived(records: Path) -> None:
    mine = FlowProgress([], records)
    with RecordWriter(records, "c1", Consuming("q", "q")) as record:
        record.trying([ONE, TWO])
        record.done([ONE])
        assert not mine.complete("q", "q")
        record.undone([TWO])
        assert not mine.complete("q", "q")
    with RecordWriter(records, "c2", Consuming("q", "q")) as record:
        record.done([TWO])
    assert mine.complete("q", "q")


def test_what_a_consumer_that_was_killed_tried_need_not_come_again(records: Path) -> None:
    mine = FlowProgress([], records)
    with RecordWriter(records, "c", Consuming("q", "q")) as record:
        record.trying([ONE, TWO])
    assert not mine.complete("q", "q")
    with RecordWriter(records, "c", Consuming("q", "q")):
        assert mine.complete("q", "q")


def test_the_results_of_forwarders_are_complete_when_these_have_ended(records: Path) -> None:
    mine = FlowProgress([Client("f", Work.FORWARD, "before", "consumers", to="q")], records)
    with RecordWriter(records, "c", Consuming("q", "q", told=False)) as record:
        record.seen(ONE, redelivered=False)
        record.seen(TWO, redelivered=False)
    assert not mine.complete("q", "q")
    mine.fed("q")
    assert mine.complete("q", "q")


def test_what_does_not_come_is_given_up(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = FlowProgress([], records)
    assert not mine.complete("q", "q")
    monkeypatch.setattr(client_totals, "PATIENCE_S", -1.0)
    assert mine.complete("q", "q")


def test_what_a_picky_consumer_never_takes_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_totals, "IDLE_S", -1.0)
    with RecordWriter(tmp_path, "p", Producing("p", "q")) as record:
        record.sent(STORED, [40])
    picky = [Client("c", Work.PICKY, "q", "consumers")]
    assert not FlowProgress(picky, tmp_path).complete("q", "q"), "it may come again before it is dead"
    monkeypatch.setattr(client_totals, "DYING_S", -1.0)
    assert not FlowProgress([], tmp_path).complete("q", "q")
    assert FlowProgress(picky, tmp_path).complete("q", "q")
