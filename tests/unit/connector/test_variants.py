"""Properties as Spark's variants, which Spark's own functions read, and back."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import VariantVal

from legato.amqp.codec.types import Byte, Float, Int, Short, Symbol, Timestamp, UInt
from legato.amqp.codec.values import decode_value
from legato.spark.connector.variant import VARIANT, UnfitRow, encoded_of, spelled

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-128, 127).map(Byte),
    st.integers(-(1 << 15), (1 << 15) - 1).map(Short),
    st.integers(-(1 << 31), (1 << 31) - 1).map(Int),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(width=32).map(Float),
    st.floats(),
    st.text(max_size=100),
    st.binary(max_size=100),
)


def variants(*texts: str) -> pa.StructArray:
    rows = [VariantVal.parseJson(text) for text in texts]
    return pa.array([{"value": each.value, "metadata": each.metadata} for each in rows], VARIANT)


def back(found: pa.MapArray) -> list[dict[str, Any]]:
    return [{name: decode_value(value)[0] for name, value in row.as_py()} for row in found]


def is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (one == other or (isinstance(one, float) and math.isnan(one)))


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=10), values, max_size=5))
def test_what_was_sent_is_what_spark_reads_and_what_is_sent_on(properties: dict[str, Any]) -> None:
    found = spelled(properties)
    shown = VariantVal(*found).toPython()
    assert shown.keys() == properties.keys()
    assert all(shown[name] == value or value != value for name, value in properties.items())
    [sent] = back(encoded_of(pa.array([found._asdict()], VARIANT)))
    assert sent.keys() == properties.keys()
    assert all(is_same(sent[name], value) for name, value in properties.items())


def test_an_object_may_have_many_and_long_fields() -> None:
    properties = {f"name{number}": "x" * number for number in range(400)}
    found = spelled(properties)
    assert VariantVal(*found).toPython() == properties
    assert back(encoded_of(pa.array([found._asdict()], VARIANT))) == [properties]


def test_amqps_own_types_are_the_narrowest_of_jakarta_messaging() -> None:
    found = spelled({"a": UInt(4_000_000_000), "b": Timestamp(5), "c": Symbol("red")})
    assert VariantVal(*found).toPython() == {"a": 4_000_000_000, "b": 5, "c": "red"}


def test_what_spark_made_of_json_can_be_sent() -> None:
    """Short fractions are decimals in it, and properties have none: they are doubles."""
    rows = variants(
        '{"weight": 2.5, "count": 3, "big": 123456789012, "on": true, "none": null, "s": "é"}', "null", "{}"
    )
    first, second, third = encoded_of(rows)
    assert {name: decode_value(value)[0] for name, value in first.as_py()} == {
        "weight": 2.5,
        "count": 3,
        "big": 123456789012,
        "on": True,
        "none": None,
        "s": "é",
    }
    assert not second.is_valid
    assert third.as_py() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5", "no object"),
        ("[1]", "no object"),
        ('{"a": {"b": 1}}', "'a' is an object or an array"),
        ('{"a": [1]}', "'a' is an object or an array"),
        (f'{{"a": {Decimal("0.1234567890123456789")}}}', "'a' is 0.1234567890123456789, which has too many digits"),
    ],
)
def test_what_no_property_can_be_is_told_with_its_row(text: str, said: str) -> None:
    with pytest.raises(UnfitRow, match=said) as told:
        encoded_of(variants("{}", text))
    assert told.value.row == 1


def test_broken_variants_are_told() -> None:
    whole = spelled({"name": "value"})
    for value, metadata in ((whole.value[:-3], whole.metadata), (b"", b""), (whole.value, b"\x01")):
        with pytest.raises(UnfitRow):
            encoded_of(pa.array([{"value": value, "metadata": metadata}], VARIANT))
