"""Selectors against an independent reading of the specification, and against SQLite where it means the same."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from legato.selectors import compile_selector
from tests.support.examples import examples
from tests.unit.selectors.random_selectors import (
    MESSAGES,
    Message,
    Node,
    conditions,
    identifiers,
    is_like,
    negations,
    patterns,
    text_of,
    truth_of,
)


@settings(max_examples=examples(300))
@given(conditions, MESSAGES)
def test_a_selector_means_what_the_specification_says(condition: Node, message: Message) -> None:
    assert compile_selector(text_of(condition)).matches(message.get) is (truth_of(condition, message) is True)


@given(conditions, MESSAGES)
def test_not_of_a_selector_is_true_where_it_is_false_and_nowhere_else(condition: Node, message: Message) -> None:
    """Jakarta Messaging 3.8.1.3: NOT of unknown is unknown."""
    negated = compile_selector(f"NOT {text_of(condition)}")
    assert negated.matches(message.get) is (truth_of(condition, message) is False)


@given(st.data())
def test_what_is_required_is_in_every_message_that_matches(data: st.DataObject) -> None:
    words = st.sampled_from(["", "a", "ab", "a%b"])
    names = st.sampled_from(["a", "b"]).map(lambda name: ("name", name))
    tests = st.one_of(
        st.tuples(st.just("="), names, words.map(lambda value: ("string", value))),
        st.tuples(st.just("in"), negations, names, st.lists(words, min_size=1, max_size=2)),
        st.tuples(st.just("like"), negations, names, patterns),
    )
    condition = data.draw(st.recursive(tests, lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner)))
    selector = compile_selector(text_of(condition))
    for first in ("", "a", "ab", "a%b", "%"):
        for second in ("", "a", "ab", "_"):
            message = {"a": first, "b": second}
            if selector.matches(message.get):
                for name, texts in selector.required:
                    assert any(text in message[name].encode() for text in texts)


# -- SQLite as a judge: it has the same logic of three values, if the types are as they should be --------------------

SMALL = st.integers(-9, 9)
WORDS = st.text("abAB%_! ", max_size=4)
COLUMNS = {"n": SMALL, "m": SMALL, "x": st.sampled_from([0.5, -1.5, 2.0]), "s": WORDS, "t": WORDS}
ROWS = st.fixed_dictionaries({name: st.none() | values for name, values in COLUMNS.items()})
SQL_NUMBERS = st.recursive(
    st.sampled_from("nmx").map(lambda name: ("name", name)) | SMALL.map(lambda value: ("number", value)),
    lambda inner: st.tuples(st.sampled_from("+-*/"), inner, inner) | st.tuples(st.just("negative"), inner),
    max_leaves=4,
)
SQL_STRINGS = st.sampled_from("st").map(lambda name: ("name", name))
SQL_SIMPLE = st.one_of(
    st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), SQL_NUMBERS, SQL_NUMBERS),
    st.tuples(st.just("between"), negations, SQL_NUMBERS, SQL_NUMBERS, SQL_NUMBERS),
    st.tuples(st.sampled_from(["=", "<>"]), SQL_STRINGS, WORDS.map(lambda value: ("string", value)) | SQL_STRINGS),
    st.tuples(st.just("in"), negations, SQL_STRINGS, st.lists(WORDS, min_size=1, max_size=3)),
    st.tuples(st.just("like"), negations, SQL_STRINGS, patterns),
    st.tuples(st.just("null"), negations, st.sampled_from("nmxst").map(lambda name: ("name", name))),
)
SQL_CONDITIONS = st.recursive(
    SQL_SIMPLE,
    lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner) | st.tuples(st.just("not"), inner),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def judge() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like = ON")
    connection.execute("CREATE TABLE message (n INTEGER, m INTEGER, x REAL, s TEXT, t TEXT)")
    return connection


@settings(max_examples=examples(300))
@given(condition=SQL_CONDITIONS, row=ROWS)
def test_sqlite_agrees(judge: sqlite3.Connection, condition: Node, row: Message) -> None:
    text = text_of(condition)
    judge.execute("DELETE FROM message")
    judge.execute("INSERT INTO message VALUES (:n, :m, :x, :s, :t)", row)
    (found,) = judge.execute(f"SELECT count(*) FROM message WHERE {text}").fetchone()
    assert compile_selector(text).matches(row.get) is bool(found)


# -- LIKE ------------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(300))
@given(st.text("ab%_!'\n", max_size=7), patterns, identifiers)
@example("a\nb", "a_b", ("name", "a"))
def test_like_is_as_if_everything_were_tried(text: str, pattern: str, name: Node) -> None:
    selector = compile_selector(text_of(("like", False, name, pattern)))
    assert selector.matches({name[1]: text}.get) is is_like(text, pattern)


def test_a_pattern_that_takes_others_forever_takes_no_time() -> None:
    selector = compile_selector("a LIKE '" + "%a" * 200 + "%b'")
    assert not selector.matches({"a": "a" * 20_000}.get)


# -- what the specification says in words ----------------------------------------------------------------------------

ORDER = {"colour": "red", "weight": 3, "price": 9.5, "urgent": True, "Phone": "12993", "count": "2", "zero": 0}


def matches(text: str, **message: Any) -> bool:
    return compile_selector(text).matches({**ORDER, **message}.get)


@pytest.mark.parametrize(
    "text",
    [
        "colour = 'red' AND weight > 2",
        "urgent",
        "urgent AND NOT (weight > 3)",
        "urgent = TRUE AND urgent <> FALSE",
        "Phone LIKE '12%3' AND colour LIKE 'r_d'",
        "weight BETWEEN 3 AND 3 AND weight NOT BETWEEN 4 AND 5",
        "colour IN ('blue', 'red') AND colour NOT IN ('green')",
        "price = 9.5 AND price > 9 AND weight = 3.0 AND weight < price",
        "weight / 2 = 1 AND -7 / 2 = -3 AND weight / 2.0 = 1.5 AND 7 / -2 = -3",
        "weight + 1 * 2 = 5 AND (weight + 1) * 2 = 8",
        "- weight + 3 = 0 AND weight - -1 = 4",
        "missing IS NULL AND colour IS NOT NULL",
        "0x1F = 31 AND 017 = 15 AND 0b11 = 3 AND 1_0 = 10 AND 10L = 10 AND 0xFFFFFFFFFFFFFFFF = -1",
        "7E3 = 7000. AND .7e4 = 7000 AND 0.1f <> 0.1 AND 0x1.8p1 = 3",
        "9223372036854775807 + 1 = -9223372036854775808",
        "9007199254740993 = 9007199254740992.0",
        "1 / -0.0 < -1e308 AND 1 / -(0.0) < -1e308",
        "1 / 0.0 > 1e308 AND -1 / 0.0 < -1e308 AND NOT 0.0 / 0.0 = 0.0 / 0.0 AND 0.0 / 0.0 <> 0.0 / 0.0",
        "NOT FALSE",
    ],
)
def test_a_message_matches(text: str) -> None:
    """Jakarta Messaging 3.8.1.1 and 3.8.1.2."""
    assert matches(text)


@pytest.mark.parametrize(
    "text",
    [
        "count > 1",
        "count = 2",
        "count <> 2",
        "NOT count + 1 > 0",
        "urgent = 1",
        "weight = TRUE",
        "urgent > 0",
        "colour = 5",
        "weight LIKE '3'",
        "weight NOT LIKE '4'",
        "weight NOT IN ('3')",
        "colour BETWEEN 1 AND 2",
        "colour NOT BETWEEN 1 AND 2",
        "Colour = 'red'",
        "colour = 'Red'",
        "colour",
        "NOT colour",
        "weight",
    ],
)
def test_values_of_other_types_do_not_match(text: str) -> None:
    """Jakarta Messaging 3.8.1.2: a comparison of unlike types is false; no conversions as the getters have them."""
    assert not matches(text)


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
def test_a_comparison_with_something_missing_is_unknown(operator: str) -> None:
    """Jakarta Messaging 3.8.1.3."""
    assert not matches(f"missing {operator} 1")
    assert not matches(f"NOT missing {operator} 1")
    assert not matches(f"NOT missing + 1 {operator} weight")
    assert matches(f"missing {operator} 1 OR urgent")
    assert not matches(f"NOT (missing {operator} 1 AND urgent)")
    assert matches(f"NOT (missing {operator} 1 AND NOT urgent)")


@pytest.mark.parametrize(
    "text", ["weight / zero = 1", "NOT weight / zero = 1", "weight / zero <> 1", "weight / (zero * 5) > 0"]
)
def test_a_whole_number_divided_by_zero_is_unknown(text: str) -> None:
    assert not matches(text)
    assert matches(f"({text}) OR urgent")


def test_what_is_no_value_of_a_property_is_like_nothing() -> None:
    assert not matches("a = 'x' OR a = 1 OR a IN ('x') OR a LIKE '%' OR a IS NULL OR a > 0 OR a", a=b"x")
    assert not matches("a > 1 OR a = 'x'", a=[1])
