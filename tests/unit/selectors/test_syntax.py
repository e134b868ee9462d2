"""What is a selector and what is none: Jakarta Messaging 3.8.1.1, and what its conformance suites try."""

from __future__ import annotations

import pytest

from legato import limits
from legato.errors import InvalidSelectorError
from legato.selectors import compile_selector

NOTHING: dict[str, object] = {}
"""A message without properties."""

ACCEPTED = [
    # literals
    "a = 'it''s'",
    "a = ''",
    "a = 0 OR a = 0L OR a = 00 OR a = 057 OR a = 0x1F OR a = 0XfL OR a = 0b101 OR a = 1_000",
    "a = -9223372036854775808 AND b = 9223372036854775807L AND c = -9223372036854775808L",
    "a = 0xFFFFFFFFFFFFFFFF",
    "a = 7. OR a = .5 OR a = 7E3 OR a = -57.9E2 OR a = +6.2 OR a = 1e-3 OR a = 5f OR a = 5.0D OR a = 0x1.8p1",
    "a = 0. OR a = 0.0 OR a = 0e0",
    "TRUE",
    "false",
    "a = TRUE AND b <> false",
    # identifiers
    "_a IS NULL",
    "$a IS NULL",
    "gr\u00f6\u00dfe > 1 AND \u20ac = 2 AND \u4ef7\u683c = 3 AND a\u0301b = 4",
    "NOTE = 1 AND ANDY = 2 AND ISNULL = 3 AND INN = 4 AND ORDER_ = 5 AND LIKELY = 6 AND NULL_ = 7",
    "JMSMessageID = 'ID:1' AND JMSPriority > 4 AND JMSTimestamp > 0 AND JMSCorrelationID = 'x' AND JMSType = 'y'",
    "JMSDeliveryMode = 'PERSISTENT' AND JMSXGroupSeq = 1 AND JMS_VENDOR_x = 1",
    # white space and case
    "a\t=\f1\r\nAND\nb = 2",
    "a=1and(b=2)or not c=3",
    "a Is nOt NuLl aNd b BeTwEeN 1 AnD 2",
    # operators
    "a",
    "a AND b OR NOT c",
    "NOT NOT a",
    "((a))",
    "a + b - c * d / e = f",
    "- - a = + + 1",
    "a--1 = 2",
    "-(a + 1) * -b < 2",
    "a BETWEEN b - 1 AND b + 1 AND c",
    "a NOT BETWEEN 15 and 19",
    "1 BETWEEN a AND b",
    "a IN ('UK', 'US', 'France')",
    "a NOT IN ('UK')",
    "a LIKE '12%3' AND a NOT LIKE 'l_se'",
    "a LIKE '\\_%' ESCAPE '\\'",
    "a LIKE '%_%%' ESCAPE '%'",
    "'literal' = a AND 5 > a",
    "a = b AND a <> b AND a < b",
    "1 = 1.0 AND TRUE = FALSE AND 'a' <> 'b'",
    "(a) IS NULL AND (a) LIKE 'x'",
]

REFUSED = [
    # the words that are no identifiers
    *(
        f"{word} {rest}"
        for word in ["NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"]
        for rest in ("> 0", "= 0")
    ),
    "1uncorrect IS NULL",
    "%uncorrect IS NULL",
    "a.b = 1",
    "a-b",
    "\u2028a = 1",
    "a\u00a0= 1",
    # values are no conditions, conditions no values
    "3+5",
    "'true'",
    "a AND 5",
    "NOT 5",
    "-a",
    "a + 1 OR b",
    "TRUE AND 3 + 5",
    "(a = 1) = b",
    "(a = 1) + 1 = 2",
    "a = 1 = b",
    # types that do not go together
    "a > 'x'",
    "'x' <= a",
    "'foo' > TRUE",
    "a >= TRUE",
    "a = 'x' + 'y'",
    "-'x' = a",
    "a + TRUE = 1",
    "'1' = 1",
    "TRUE <> 'x'",
    "a + 1 = 'x'",
    "a BETWEEN 'foo' AND 'test'",
    "a BETWEEN TRUE AND 2",
    # IN, LIKE, IS
    "a IN ()",
    "a IN (1, 2)",
    "a IN ('x',)",
    "a IN 'x'",
    "a IN (b)",
    "5 IN ('x')",
    "a + 1 IN ('x')",
    "a LIKE 7",
    "a LIKE b",
    "5 LIKE 'x'",
    "a LIKE 'x' ESCAPE 'ab'",
    "a LIKE 'x' ESCAPE ''",
    "a LIKE 'x!' ESCAPE '!'",
    "a LIKE '%_%' ESCAPE '%'",
    "a IS 5",
    "a IS TRUE",
    "5 IS NULL",
    "a = NULL",
    "a NOT NULL",
    # numbers
    "a = 9223372036854775808",
    "a = -9223372036854775809",
    "a = 0x10000000000000000",
    "a = 1e999",
    "a = 1e39f",
    "a = 08",
    "a = 1__",
    "a = 0x",
    # the rest
    "=TEST 'test'",
    "a =",
    "= 1",
    "a == 1",
    "a != 1",
    "a < > 1",
    "a = 1 AMD b = 2",
    "prop1 = prop2 foo AND string = 'Test'",
    "a b",
    "a = 1;",
    'a = "x"',
    "a = 'x",
    "a = 'x'y'",
    "(a = 1",
    "a = 1)",
    "()",
    "a = 1 -- a comment",
    "a /* comment */ = 1",
    "a % 2 = 1",
    "a = \x00",
    # a field of the header that none may be selected by
    "JMSDestination = 'x'",
    "JMSReplyTo IS NULL",
    "JMSRedelivered",
    "JMSExpiration > 0",
    "JMSDeliveryTime > 0",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_a_selector_of_the_specifications_syntax_is_accepted(text: str) -> None:
    selector = compile_selector(text)
    assert selector.text == text
    assert selector.matches(NOTHING.get) in (True, False)


@pytest.mark.parametrize("text", REFUSED)
def test_a_selector_of_any_other_syntax_is_refused(text: str) -> None:
    with pytest.raises(InvalidSelectorError):
        compile_selector(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour = AND weight > 2", "character 10: 'AND' cannot stand here: colour = >>> AND weight > 2"),
        ("colour = 'red", "character 10: the string that begins here has no end: colour = >>> 'red"),
        ('colour = "red"', "character 10: a string stands in single quotes"),
        ("weight % 2 = 0", "character 8: '%' has no meaning in a selector"),
        ("weight =", "ends too early: weight = ..."),
        ("TRUE AND 3 + 5", "character 10: this is a value, where a condition is needed: TRUE AND >>> 3 + 5"),
        ("(a = 1) = b", "character 2: this is a condition, where a value is needed"),
        ("a > 'x'", "character 5: this is no number"),
        ("5 IN ('x')", "character 1: only a name can stand before IN"),
        ("a = 9223372036854775808", "character 5: the number does not fit a long"),
        ("JMSReplyTo = 'x'", "character 1: JMSReplyTo cannot be selected by"),
        ("a LIKE 'x!' ESCAPE '!'", "character 8: the pattern ends with the escape character"),
        ("x = 1 AND a\u2028 = 1", "character 12: '\\u2028' cannot stand in a name"),
    ],
)
def test_the_error_shows_the_place(text: str, said: str) -> None:
    with pytest.raises(InvalidSelectorError) as caught:
        compile_selector(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["", "   ", "\t\r\n\f"])
def test_an_empty_selector_matches_every_message(text: str) -> None:
    selector = compile_selector(text)
    assert selector.matches(NOTHING.get)
    assert (selector.identifiers, selector.required) == (frozenset(), ())


def test_brackets_may_be_many_and_operations_within_one_another_not() -> None:
    assert compile_selector("(" * 500 + "a" + ")" * 500).matches({"a": True}.get)
    assert compile_selector("NOT " * 60 + "a").matches({"a": True}.get)
    for text in ("NOT " * 100 + "a", "-" * 50 + "(" + "a+" * 50 + "1) = 1"):
        with pytest.raises(InvalidSelectorError, match="more than 64 operations within one another"):
            compile_selector(text)


def test_a_selector_may_be_long_but_not_endless() -> None:
    longest = " OR ".join(f"a = {number}" for number in range(350))
    assert compile_selector(longest).matches({"a": 349}.get)
    with pytest.raises(InvalidSelectorError, match="more than 4096 characters"):
        compile_selector("a" * 4097)
    stored = " OR ".join(f"a = {number}" for number in range(2000))
    assert compile_selector(stored, limits.STORED_SELECTOR_CHARACTERS_MAX).matches({"a": 1999}.get)
    with pytest.raises(InvalidSelectorError):
        compile_selector(stored)


def test_a_selector_is_compiled_once() -> None:
    assert compile_selector("once = 1") is compile_selector("once = 1")


def test_its_identifiers_are_known() -> None:
    selector = compile_selector("a = b + 1 OR NOT (JMSType IN ('x') AND c IS NULL) OR d LIKE '_' OR -e BETWEEN 1 AND f")
    assert selector.identifiers == {"a", "b", "JMSType", "c", "d", "e", "f"}


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("a = 'red' AND b > 2", [("a", (b"red",))]),
        ("'red' = a", [("a", (b"red",))]),
        (
            "a IN ('x', 'y', 'x') AND (b LIKE 'ab%c' AND c LIKE '!%d_' ESCAPE '!')",
            [("a", (b"x", b"y")), ("b", (b"ab",)), ("c", (b"%d",))],
        ),
        ("a = 'gr\u00f6\u00dfe'", [("a", "gr\u00f6\u00dfe".encode())]),
        ("a = 'red' OR b = 'x'", []),
        ("NOT a = 'red'", []),
        ("a <> 'red' AND a NOT IN ('x') AND a NOT LIKE 'x%'", []),
        ("a = '' AND a IN ('', 'x') AND a LIKE '%x' AND a LIKE '_'", []),
        ("a = 5 AND a = b", []),
    ],
)
def test_the_texts_that_a_match_must_contain_are_known(text: str, required: list[tuple[str, object]]) -> None:
    expected = [(name, texts if isinstance(texts, tuple) else (texts,)) for name, texts in required]
    assert list(compile_selector(text).required) == expected
