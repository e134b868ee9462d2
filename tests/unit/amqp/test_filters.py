"""Selectors over messages as they are stored: with the cheap tests first, the answers are the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, encode_message
from legato.amqp.codec.message_view import View, entries_of
from legato.amqp.codec.selection import matcher
from legato.amqp.codec.types import Symbol
from legato.errors import InvalidSelectorError
from legato.selectors import compile_selector

WORDS = st.sampled_from(["red", "blue", "re", "", "\u00e9t\u00e9", "ID:AMQP_ULONG:7", "PERSISTENT", "a'b"])
SELECTORS = [
    "colour = 'red'",
    "'red' = colour AND weight > 2",
    "colour IN ('red', 'blue') AND JMSType = 'red'",
    "colour LIKE 're%' AND weight BETWEEN 1 AND 3",
    "colour LIKE '%d'",
    "colour = ''",
    "colour <> 'red' OR weight = 3",
    "NOT colour = 'red'",
    "colour NOT IN ('red')",
    "colour = '\u00e9t\u00e9'",
    "colour = 'a''b'",
    "JMSDeliveryMode = 'PERSISTENT'",
    "JMSMessageID = 'ID:AMQP_ULONG:7'",
    "JMSCorrelationID IN ('red', 'ID:AMQP_ULONG:7')",
    "JMSMessageID LIKE 'ID:%'",
    "JMSXGroupID = 'red' AND JMSPriority = 4",
    "weight IS NULL AND JMSType IS NOT NULL",
]
MESSAGES = st.builds(
    encode_message,
    header=st.builds(Header, durable=st.booleans(), priority=st.sampled_from([3, 4])),
    message_annotations=st.sampled_from([None, {"a": 1}]),
    properties=st.none()
    | st.builds(
        Properties,
        message_id=st.none() | WORDS | st.just(7),
        correlation_id=st.none() | WORDS | st.just(7),
        subject=st.none() | WORDS,
        group_id=st.none() | WORDS,
    ),
    application_properties=st.none()
    | st.dictionaries(
        st.sampled_from(["colour", "weight", "red"]),
        st.none() | WORDS | st.integers(0, 4) | st.sampled_from([2.5, True, Symbol("red")]),
    ),
    body=st.just(DataBody(b"red")),
)


@pytest.mark.parametrize("text", SELECTORS)
def test_the_cheap_tests_change_no_answer(text: str) -> None:
    matches = matcher(text)
    selector = compile_selector(text)

    @given(MESSAGES)
    def agrees(data: bytes) -> None:
        assert matches(data) is selector.matches(View(data, *entries_of(data)).get)

    agrees()


@given(MESSAGES, st.integers(0, 300), st.integers(0, 255), st.sampled_from(SELECTORS))
def test_a_malformed_message_raises_nothing(data: bytes, place: int, value: int, text: str) -> None:
    matches = matcher(text)
    matches(data)
    broken = bytearray(data)
    broken[place % len(broken)] = value
    assert matches(bytes(broken)) in (True, False)
    assert matches(data[: place % len(data)]) in (True, False)


@pytest.mark.parametrize("text", ["", "  \t\n"])
def test_an_empty_selector_lets_every_message_through(text: str) -> None:
    assert matcher(text)(b"anything")


def test_a_selector_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(InvalidSelectorError):
        matcher("colour =")


def test_messages_of_different_shapes_may_follow_one_another() -> None:
    matches = matcher("a = 1")
    plain, fuller = {"header": Header()}, {"header": Header(), "properties": Properties(message_id="ID:1", to="q")}
    items: list[dict[str, Any]] = [{"a": 1}, {"a": 2}, {}]
    shapes = [
        encode_message(**parts, application_properties=item, body=DataBody(b"x"))
        for parts in (plain, fuller)
        for item in items
    ]
    expected = [True, False, False] * 2
    assert [matches(data) for data in shapes] == expected
    assert [matches(data) for data in shapes[::-1]] == expected[::-1]
