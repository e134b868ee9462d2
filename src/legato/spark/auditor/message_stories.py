"""Stories of messages: where one was stored, who had it, why it came back, where it went."""

from collections.abc import Collection, Mapping
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from legato.errors import ConfigError
from legato.spark.auditor.story_words import (
    KNOWN_BY,
    LIVES,
    Names,
    Place,
    Story,
    chapters,
    key_of,
    named_by_numbers,
    numbers_in,
    places_of,
)
from legato.spark.ledger.fact_filter import is_kind

_HOPS_MAX = 20
"""A message that is moved in a circle has a long story; its beginning is enough."""


def tell(facts: DataFrame, message: str) -> Story:
    """The story of a message.

    Args:
        facts: a ledger.
        message: its message id, or `QUEUE/SEQ`, the numbers by which an audit names it.

    Raises:
        ConfigError: the ledger does not know it.
    """
    rows: dict[tuple[Any, ...], Row] = {}
    places = named_by_numbers(message)
    if not places:
        rows = {key_of(row): row for row in facts.where(F.col("message_id") == message).collect()}
        places = {place for row in rows.values() for place in places_of(row)}
    known: set[Place] = set()
    for _ in range(_HOPS_MAX):
        if places <= known:
            break
        known |= places
        rows |= {key_of(row): row for row in about(facts, known).collect()}
        places = {place for row in rows.values() for place in places_of(row)}
    if not rows:
        raise ConfigError(f"the ledger knows no message {message}")
    ids = [row["message_id"] for row in rows.values() if row["message_id"]]
    return Story(ids[0] if ids else message, chapters(rows.values(), names_in(facts, numbers_in(rows.values()))))


def short_stories(
    facts: DataFrame, places: Collection[Place], txns: Collection[str]
) -> dict[Place | str, tuple[str, list[str]]]:
    """For some messages, and transactions by their id in hexadecimal, a name and the lines of what happened to them.

    Unlike `tell` it does not follow them to where they went, and so takes one look at the ledger.
    """
    of_txns = F.hex("txn").isin(sorted(txns))
    rows = facts.where(_at(places) | of_txns if places else of_txns).collect()
    names = names_in(facts, numbers_in(rows))
    told: dict[Place | str, tuple[str, list[str]]] = {}
    for queue, seq in sorted(places):
        own = [row for row in rows if (row["queue"], row["seq"]) == (queue, seq) and row["kind"] in LIVES]
        message = next((row["message_id"] for row in own if row["message_id"]), "")
        name = f"{names.queue(queue)} {seq} ({queue}/{seq}){' ' + message if message else ''}"
        told[queue, seq] = (name, Story(message, chapters(own, names)).lines()[:_LINES_MAX])
    for txn in sorted(txns):
        own = [row for row in rows if row["txn"] and bytes(row["txn"]).hex().upper() == txn]
        told[txn] = (f"transaction {txn}", Story(txn, chapters(own, names)).lines()[:_LINES_MAX])
    return told


_LINES_MAX = 30


def about(facts: DataFrame, places: Collection[Place]) -> DataFrame:
    """The facts about the messages at these places, about copies of them, and about where they came from and went."""

    here = F.col("kind").isin(*LIVES) & (_at(places) | _at(places, "topic"))
    return facts.where(here | _at(places, "origin_queue", "origin_seq"))


def _at(places: Collection[Place], queue: str = "queue", seq: str = "seq") -> Column:
    return reduce(Column.__or__, (((F.col(queue) == q) & (F.col(seq) == s)) for q, s in sorted(places)))


def names_in(facts: DataFrame, wanted: Mapping[str, Collection[int]]) -> Names:
    """What some numbers stand for.

    Args:
        facts: a ledger.
        wanted: the numbers of interest, by column of `KNOWN_BY`.
    """
    named = (
        F.expr(is_kind(kind)) & F.col(column).isin(sorted(wanted[column]))
        for kind, column in KNOWN_BY.items()
        if wanted.get(column)
    )
    condition = reduce(Column.__or__, named, F.lit(False))
    return Names(facts.where(condition).select("kind", "queue", "consumer", "producer", "name", "queue_kind").collect())
