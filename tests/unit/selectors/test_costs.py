"""A selector of any allowed text costs a broker little, and so does a message for it (SECURITY findings 7 and 8)."""

from __future__ import annotations

import contextlib
import gc
import re
import time
import tracemalloc
from collections.abc import Callable

import pytest

from legato import limits
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, encode_message
from legato.amqp.codec.selection import matcher
from legato.errors import InvalidSelectorError
from legato.selectors import compile_selector, prepare
from legato.selectors.patterns import matcher_of
from legato.selectors.selector import _CACHE_CHARACTERS, _kept

TURN_S = 0.05
ALLOWANCE = 10
"""A busy machine is slower than an idle one; what was wrong took seconds to hours."""
LONGEST = limits.SELECTOR_CHARACTERS_MAX


def spent(work: Callable[[], object]) -> float:
    """Processor time of this thread, in which no collection looks through what other tests left."""
    # It stays frozen: to thaw it again would let each later collection look through all that pytest collected.
    gc.freeze()
    began = time.thread_time()
    work()
    return time.thread_time() - began


def test_digits_of_hexadecimal_numbers_are_looked_at_once() -> None:
    prepare()
    digits = "f" * (limits.STORED_SELECTOR_CHARACTERS_MAX - 6)

    def read() -> None:
        with pytest.raises(InvalidSelectorError):
            compile_selector(f"x = 0x{digits}", limits.STORED_SELECTOR_CHARACTERS_MAX)

    assert spent(read) < TURN_S * ALLOWANCE


def filled(unit: str, separator: str = " OR ") -> str:
    """As many of them as a selector may have."""
    return separator.join([unit] * ((LONGEST + len(separator)) // (len(unit) + len(separator))))


SELECTORS = {
    "hexadecimal": "x = 0x" + "f" * (LONGEST - 6),
    "hexadecimal fraction": "x = 0x." + "f_" * (LONGEST // 2 - 4),
    "hexadecimals": filled("x=0x" + "f" * 200),
    "underscores": "x = 1" + "_" * (LONGEST - 5),
    "digits": "x = " + "1" * (LONGEST - 4),
    "exponent": "x = 1e" + "9" * (LONGEST - 6),
    "comparisons": filled("a=1"),
    "identifiers": " OR ".join(f"a{number}" for number in range(500)),
    "IN": "a IN (" + ",".join(["''"] * 1350) + ")",
    "LIKE": filled("a LIKE '%a%'"),
    "BETWEEN": filled("a BETWEEN 1 AND 2"),
    "brackets": "(" * 2000 + "a" + ")" * 2000,
    "signs": "a = " + "-" * 4000 + "1",
    "NOT": "NOT " * 1000 + "a",
    "sums": "1+" * 2000 + "1 = x",
    "products": "x = " + "*".join(["9223372036854775807"] * 200),
    "open string": "x = '" + "a" * 4000,
    "quotes": "x = " + "'" * 4001,
    "name": "\u00e9" * LONGEST,
    "spaces": " " * (LONGEST - 3) + "a=1",
}


@pytest.mark.parametrize("text", SELECTORS.values(), ids=SELECTORS)
def test_reading_a_selector_fits_into_a_turn(text: str) -> None:
    prepare()
    assert len(text) <= LONGEST

    def read() -> None:
        with contextlib.suppress(InvalidSelectorError):
            compile_selector(text)

    assert spent(read) < TURN_S * ALLOWANCE


TESTS = {
    "LIKE": ("a LIKE '%" + "a" * 4000 + "b%'", 1_000_000),
    "LIKE _": ("a LIKE '%" + "a_" * 2000 + "b%'", 1_000_000),
    "LIKE _ just looked at": ("a LIKE '%" + "a_" * 500 + "b%'", limits.LIKE_STEPS_MAX // 1100),
    "segments": ("a LIKE '" + "%_a" * 1000 + "b%'", 1_000_000),
    "many LIKEs": (filled("a LIKE '%_b%'"), 1_000_000),
    "many LIKEs just looked at": (filled("a LIKE '%_b%'"), 2_000),
    "texts": (filled("a = 'b'"), 1_000_000),
    "IN": ("a IN (" + ",".join(f"'{'a' * n}b'" for n in range(80)) + ")", 1_000_000),
    "AND": (filled("a = 'bbb'", " AND "), 1_000_000),
}


@pytest.mark.parametrize(("text", "size"), TESTS.values(), ids=TESTS)
def test_holding_a_message_against_a_selector_fits_into_a_turn(text: str, size: int) -> None:
    message = encode_message(header=Header(), application_properties={"a": "a" * size}, body=DataBody(b"x"))
    matches = matcher(text)
    assert spent(lambda: matches(message)) < TURN_S * ALLOWANCE


def test_forty_selectors_find_their_way_through_one_message_in_one_turn() -> None:
    properties = {str(number): number for number in range(3000)}
    message = encode_message(header=Header(), application_properties=properties, body=DataBody(b"x"))
    matchers = [matcher(" OR ".join(f"z{other}_{number} = 1" for number in range(200))) for other in range(20)] + [
        matcher(" OR ".join(f"y{other}_{number} = 1" for number in range(7))) for other in range(20)
    ]
    assert spent(lambda: [matches(message) for matches in matchers]) < TURN_S * ALLOWANCE
    assert matcher("z = 1 OR " * 20 + "2999 = 2999")(message)


def test_selectors_that_are_kept_have_a_bound_in_bytes() -> None:
    tracemalloc.start()
    try:
        for number in range(15):
            compile_selector(
                " OR ".join(f"a{number} = {other}" for other in range(400))[:LONGEST].rpartition(" OR ")[0]
            )
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(map(len, _kept)) <= _CACHE_CHARACTERS
    assert kept < 8 << 20


PATTERNS = [
    "",
    "%",
    "_",
    "a",
    "a%",
    "%a",
    "%a%",
    "a_c",
    "%b_%",
    "a%c",
    "a%%c",
    "%a_b%c_%",
    "ab%ab",
    "_%_",
    "%ab%ba%",
    "a!%%",
    "!_%",
]
TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "aba",
    "abc",
    "abab",
    "a%x",
    "_x",
    "abcabc",
    "aabbcc",
    "ab\ncd",
    "xaybzcw",
    "%",
    "abba",
    "ba",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_what_the_expression_of_the_same_meaning_means(pattern: str) -> None:
    escape = "!" if "!" in pattern else ""
    pieces, characters = "", iter(pattern)
    for character in characters:
        if character == escape:
            pieces += re.escape(next(characters))
        else:
            pieces += {"%": ".*", "_": "."}.get(character, re.escape(character))
    matches = matcher_of(pattern, escape)
    for text in TEXTS:
        assert matches(text) == bool(re.fullmatch(pieces, text, re.DOTALL)), (pattern, text)


def test_a_text_too_long_for_its_patterns_is_unknown() -> None:
    for text in ("a LIKE '%b%'", "a NOT LIKE '%b%'"):
        assert compile_selector(text).matches({"a": "x" * 400_000}.get) is ("NOT" in text)
        assert not compile_selector(text).matches({"a": "x" * 900_000}.get)
    assert compile_selector("a NOT LIKE '%b%' OR c = 1").matches({"a": "x" * 900_000, "c": 1}.get)
