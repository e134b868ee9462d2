"""Every cell of the specification's two conversion tables (Jakarta Messaging 3.5.4 and 3.11.3)."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.client import Byte, Char, Float, Int, Long, MapMessage, Message, Short, StreamMessage
from legato.client.messages.java_numbers import double_text, float_text, parse_float, parse_integer, single
from legato.errors import MessageFormatError
from tests.unit.client.passing import passed

# As the specification prints them: a row for each type written, a column for each type read.
PROPERTY_TABLE = """
           boolean byte short int long float double string
boolean       x                                       x
byte                x     x    x   x                  x
short                     x    x   x                  x
int                            x   x                  x
long                               x                  x
float                                   x     x       x
double                                        x       x
string        x     x     x    x   x    x     x       x
"""
FIELD_TABLE = """
           boolean byte short char int long float double string bytes
boolean       x                                            x
byte                x     x         x   x                  x
short                     x         x   x                  x
char                           x                           x
int                                 x   x                  x
long                                    x                  x
float                                        x     x       x
double                                             x       x
string        x     x     x         x   x    x     x       x
bytes                                                            x
"""
VALUES: dict[str, Any] = {
    "boolean": True,
    "byte": 7,
    "short": 7,
    "char": "7",
    "int": 7,
    "long": 7,
    "float": 7.0,
    "double": 7.0,
    "string": "7",
    "bytes": b"7",
}
TYPES: dict[str, type] = {
    "boolean": bool,
    "byte": Byte,
    "short": Short,
    "char": Char,
    "int": Int,
    "long": Long,
    "float": Float,
    "double": float,
    "string": str,
    "bytes": bytes,
}
NUMBERS = {"byte", "short", "int", "long"}


def cells(table: str) -> list[tuple[str, str, bool]]:
    """Written, read, and whether the table has it: a column's mark lies below the column's name."""
    header, *rows = table.strip("\n").splitlines()
    columns = {name: header.index(f" {name}") + 1 for name in header.split()}
    result = []
    for row in rows:
        written = row.split()[0]
        for read, begin in columns.items():
            mark = row[begin : begin + len(read)]
            result.append((written, read, "x" in mark))
    return result


def test_the_tables_have_as_many_conversions_as_those_of_the_specification() -> None:
    assert [sum(cell[2] for cell in cells(table)) for table in (PROPERTY_TABLE, FIELD_TABLE)] == [29, 32]


def test_the_reference_shows_the_same_tables() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "messages.md").read_text()
    rows = [line.strip("|\n").split("|") for line in text.splitlines() if line.startswith(("| |", "| **"))]
    shown: list[set[tuple[str, str]]] = []
    columns: list[str] = []
    for first, *marks in rows:
        if first.strip():
            found = zip(columns, marks, strict=True)
            shown[-1] |= {(first.strip(" *"), read) for read, mark in found if mark.strip() == "x"}
        else:
            columns = [name.strip() for name in marks]
            shown.append(set())
    assert shown == [{cell[:2] for cell in cells(table) if cell[2]} for table in (PROPERTY_TABLE, FIELD_TABLE)]


def expected(written: str, read: str) -> Any:
    if read == "string":
        return {"boolean": "true", "float": "7.0", "double": "7.0"}.get(written, "7")
    if read == "boolean":
        return written == "boolean"  # the string "7" is not "true"
    return VALUES[read]


def check(read_value: Callable[[], Any], written: str, read: str, allowed: bool) -> None:
    if not allowed:
        with pytest.raises(MessageFormatError, match=f"read as.*{read}"):
            read_value()
        return
    value = read_value()
    assert value == expected(written, read)
    assert type(value) is type(expected(written, read))


@pytest.mark.parametrize("sent", [False, True], ids=["new", "received"])
@pytest.mark.parametrize(("written", "read", "allowed"), cells(PROPERTY_TABLE))
def test_a_property_is_read_as_the_table_says(written: str, read: str, allowed: bool, sent: bool) -> None:
    message: Any = Message()
    getattr(message, f"set_{written}_property")("a", VALUES[written])
    message = passed(message) if sent else message
    assert type(message.get_object_property("a")) is TYPES[written]
    assert type(message.properties["a"]) is TYPES[written]
    check(lambda: getattr(message, f"get_{read}_property")("a"), written, read, allowed)


@pytest.mark.parametrize("sent", [False, True], ids=["new", "received"])
@pytest.mark.parametrize(("written", "read", "allowed"), cells(FIELD_TABLE))
def test_a_field_of_a_map_is_read_as_the_table_says(written: str, read: str, allowed: bool, sent: bool) -> None:
    message: Any = MapMessage()
    getattr(message, f"set_{written}")("a", VALUES[written])
    message = passed(message) if sent else message
    assert type(message.get_object("a")) is TYPES[written]
    assert type(message["a"]) is TYPES[written]
    check(lambda: getattr(message, f"get_{read}")("a"), written, read, allowed)


@pytest.mark.parametrize("sent", [False, True], ids=["new", "received"])
@pytest.mark.parametrize(("written", "read", "allowed"), cells(FIELD_TABLE))
def test_a_value_of_a_stream_is_read_as_the_table_says(written: str, read: str, allowed: bool, sent: bool) -> None:
    message: Any = StreamMessage()
    getattr(message, f"write_{written}")(VALUES[written])
    if sent:
        message = passed(message)
    message.reset()
    check(lambda: getattr(message, f"read_{read}")(), written, read, allowed)
    if not allowed:  # a value that could not be read is the next one still
        assert message.read_object() == VALUES[written]


@pytest.mark.parametrize("kind", ["boolean", "byte", "short", "int", "long", "float", "double", "string"])
def test_null_is_read_as_false_as_no_string_and_as_no_number(kind: str) -> None:
    message: Any = Message()
    message.set_property("nothing", None)
    fields: Any = MapMessage({"null": None})
    stream: Any = StreamMessage([None])
    stream.reset()
    reads: list[Callable[[], Any]] = [
        lambda: getattr(message, f"get_{kind}_property")("nothing"),
        lambda: getattr(message, f"get_{kind}_property")("missing"),
        lambda: getattr(fields, f"get_{kind}")("null"),
        lambda: getattr(fields, f"get_{kind}")("missing"),
        lambda: getattr(stream, f"read_{kind}")(),
    ]
    for read in reads:
        if kind in ("boolean", "string"):
            assert read() is (False if kind == "boolean" else None)
        else:
            with pytest.raises(MessageFormatError, match="not set"):
                read()


def test_null_is_no_character_and_no_bytes() -> None:
    message = MapMessage()
    assert message.get_bytes("missing") is None
    with pytest.raises(MessageFormatError):
        message.get_char("missing")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *[(kind, text) for kind in sorted(NUMBERS) for text in ("", " 7", "7 ", "7.0", "0x7", "1_0", "seven", "+-7")],
        *[("byte", text) for text in ("128", "-129")],
        *[("short", text) for text in ("32768", "-32769")],
        *[("int", text) for text in ("2147483648", "-2147483649")],
        *[("long", text) for text in ("9223372036854775808", "-9223372036854775809", "9" * 5000)],
        *[(kind, text) for kind in ("float", "double") for text in ("", "inf", "nan", "1_0", "1e", ".", "NaNf", "x")],
    ],
)
def test_a_string_that_does_not_spell_the_number_is_refused(kind: str, text: str) -> None:
    message: Any = Message()
    message.set_property("a", text)
    with pytest.raises(MessageFormatError):
        getattr(message, f"get_{kind}_property")("a")


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("yes", False), ("1", False), ("", False)])
def test_a_string_is_true_if_it_says_so(text: str, value: bool) -> None:
    message = Message()
    message.set_property("a", text)
    assert message.get_boolean_property("a") is value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", 1),
        ("boolean", None),
        ("byte", 128),
        ("byte", -129),
        ("byte", "7"),
        ("byte", True),
        ("byte", None),
        ("short", 32768),
        ("int", 1 << 31),
        ("int", 1.0),
        ("long", 1 << 63),
        ("float", "1"),
        ("float", 1e39),
        ("float", True),
        ("double", 10**400),
        ("double", None),
        ("string", 1),
        ("string", b"x"),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_refused(kind: str, value: object) -> None:
    message: Any = Message()
    fields: Any = MapMessage()
    stream: Any = StreamMessage()
    writes: list[Callable[[], Any]] = [
        lambda: getattr(message, f"set_{kind}_property")("a", value),
        lambda: getattr(fields, f"set_{kind}")("a", value),
        lambda: getattr(stream, f"write_{kind}")(value),
    ]
    for write in writes:
        with pytest.raises(MessageFormatError):
            write()
    assert (len(message.properties), len(fields), stream.body) == (0, 0, [])


@pytest.mark.parametrize("value", ["", "ab", "\U0001f375", 7, None])
def test_a_character_is_one_that_java_has(value: Any) -> None:
    with pytest.raises(MessageFormatError):
        MapMessage().set_char("a", value)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.000999, "9.99E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1e23, "1.0E23"),
        (5e-324, "4.9E-324"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
    ],
)
def test_a_double_is_spelled_as_java_does(number: float, text: str) -> None:
    assert double_text(number) == text
    assert MapMessage({"a": number}).get_string("a") == text


@pytest.mark.parametrize(
    ("number", "text"), [(1.1, "1.1"), (1 / 3, "0.33333334"), (1e10, "1.0E10"), (1e-45, "1.4E-45"), (3e38, "3.0E38")]
)
def test_a_float_is_spelled_with_the_digits_that_tell_it_from_others(number: float, text: str) -> None:
    assert float_text(single(number)) == text


@given(st.floats())
def test_the_spelling_of_a_double_is_read_as_the_same_number(number: float) -> None:
    again = parse_float(double_text(number))
    assert again is not None
    assert again == number or (math.isnan(again) and math.isnan(number))


@given(st.floats(width=32))
def test_the_spelling_of_a_float_is_read_as_the_same_number(number: float) -> None:
    again = parse_float(float_text(number))
    assert again is not None
    assert single(again) == number or (math.isnan(again) and math.isnan(number))


@pytest.mark.parametrize(
    ("text", "number"), [(" 1.5\n", 1.5), ("1.f", 1.0), ("-.5e1D", -5.0), ("0x1.8p1", 3.0), ("1e400", math.inf)]
)
def test_numbers_are_read_in_all_of_javas_spellings(text: str, number: float) -> None:
    assert parse_float(text) == number


@given(st.integers(-(1 << 70), 1 << 70), st.sampled_from([8, 16, 32, 64]))
def test_an_integer_is_read_if_it_has_so_many_bits(number: int, bits: int) -> None:
    fits = -(1 << (bits - 1)) <= number < 1 << (bits - 1)
    assert parse_integer(str(number), bits) == (number if fits else None)
