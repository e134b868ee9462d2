"""Whoever reads facts on Spark's side knows each kind, or names it as ignored: a new fact makes these fail."""

from typing import Any, get_args

import numpy as np
import pytest

from legato.core.facts import (
    ActionAudited,
    AnyFact,
    AssignmentAcknowledged,
    Fact,
    LogRecord,
    MessagesAssigned,
    MessagesConsumed,
    MessagesStored,
    RunStored,
)
from legato.drill.history import History
from legato.spark.auditor.story_words import NOT_TOLD, TOLD, Names, event
from legato.spark.ledger.fact_schema import TAGS, facts_table, row_count
from legato.spark.summaries import message_summary_numpy
from legato.spark.summaries.message_summary import KINDS, LEFT_KINDS, NOT_TALLIED, WEIGHTS

ALL: tuple[type[Fact], ...] = get_args(AnyFact)
TAKEN_APART: tuple[type[Fact], ...] = (MessagesStored, MessagesConsumed)
"""Without rows of their own: `test_fact_runs.py` sees that theirs are those of single messages."""
NAMES = {fact.__name__ for fact in ALL}
ANY_OF: dict[str, Any] = {
    "txn": b"12345678",
    "subscriptions": [4, 5],
    "origin": None,
    "id": b"d",
    "digest": b"d",
    "floors": [1],
    "ends": bytes([0, 0, 0, 4, 0, 0, 0, 9]),
    "ids": b"id",
}
TEXTS = (
    "broker reason name container selector link cause message_id first_message_id trace_id flow_id stage call group "
    "event operation object decision user origin client mechanism object_type to"
)

ELSEWHERE = ("subscriptions", "origin", "floors", "source", "stages")
"""Fields in rows of their own or in two columns; and those that a pipeline or a sink keeps for itself."""


def example(kind: type[Fact]) -> Fact:
    """A fact of that kind, in which each field is something."""
    any_of = ANY_OF | ({"origin": "x"} if kind is ActionAudited else {})
    values = {name: any_of.get(name, "x" if name in TEXTS.split() else 2) for name in kind.__struct_fields__}
    flags = {name: True for name in ("paused", "flagged", "no_local", "temporary", "shared") if name in values}
    return kind(**values | flags)


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind not in TAKEN_APART], ids=lambda kind: kind.__name__)
def test_each_fact_has_a_row_in_which_none_of_its_fields_is_lost(kind: type[Fact]) -> None:
    fact = example(kind)
    record = LogRecord(1, 1000, [fact])  # type: ignore[list-item]
    table = facts_table([(7, record)])
    table.validate(full=True)
    row = table.to_pylist()[0]
    assert row["kind"] == kind.__name__
    assert len(table) == row_count(record)
    assert row["tag"] == TAGS[kind.__name__]
    said = {name for name, value in row.items() if value is not None} - {"position", "ordinal", "epoch", "time_us"}
    fields = [name for name in kind.__struct_fields__ if name not in ELSEWHERE]
    assert len(said - {"kind", "tag"}) >= len(fields), "a field has no column"


def test_what_a_message_comes_to_is_made_of_all_facts_but_those_named() -> None:
    assert set(KINDS) | set(NOT_TALLIED) == NAMES
    assert not set(KINDS) & set(NOT_TALLIED)
    assert set(LEFT_KINDS) | {"MessageStored"} == WEIGHTS.keys() <= set(KINDS)


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind.__name__ in KINDS], ids=lambda kind: kind.__name__)
def test_numpy_adds_up_each_fact_that_is_tallied(kind: type[Fact]) -> None:
    table = facts_table([(7, LogRecord(1, 1000, [example(kind)]))])  # type: ignore[list-item]
    added = message_summary_numpy.tallies_of(TAGS[kind.__name__], table)
    assert added["queue"].tolist() == [2]
    more = {name for name, column in added.items() if (column != message_summary_numpy.NOTHING.get(name, 0)).any()}
    assert more - {"queue", "seq", "first_epoch", "last_epoch"}, "it adds nothing"
    assert all(column.dtype == np.int64 for column in added.values())


def test_a_story_tells_all_facts_but_those_named() -> None:
    assert set(TOLD) | set(NOT_TOLD) == NAMES
    assert not set(TOLD) & set(NOT_TOLD)


class Nobody(Names):
    """Knows no names."""

    def __init__(self) -> None:
        self._found = {}


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind.__name__ in TOLD], ids=lambda kind: kind.__name__)
def test_each_fact_that_is_told_has_words(kind: type[Fact]) -> None:
    (row, *_) = facts_table([(7, LogRecord(1, 1000, [example(kind)]))]).to_pylist()  # type: ignore[list-item]
    assert event(row, Nobody())


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_a_log_audited_without_spark_knows_each_fact(kind: type[Fact]) -> None:
    history = History()
    history.add(1, LogRecord(1, 1000, [example(kind)]))  # type: ignore[list-item]
    assert history.finding.facts == 1


def test_a_log_audited_without_spark_counts_what_pipelines_and_sinks_do() -> None:
    history = History()
    facts: list[AnyFact] = [
        RunStored(1, 1, 3, 30, 5, 1),
        MessagesAssigned(1, 1, 2, 20, 9, 1),
        AssignmentAcknowledged(9, 2, 2),
    ]
    history.add(1, LogRecord(1, 1000, facts))
    finding = history.judge({1: 1}, {})
    assert (finding.complaints, finding.stored, finding.consumed) == ([], 5, 2)
