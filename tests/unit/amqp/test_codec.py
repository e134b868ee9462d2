"""AMQP's type system in Python, against the engine's."""

from __future__ import annotations

import struct
from typing import Any

import cproton
import pytest
from cproton import lib
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.amqp.codec.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from legato.amqp.codec.values import decode_value, encode_value, skip_value
from legato.amqp.engine import pndata
from legato.errors import ProtocolError
from tests.support.examples import examples


def single(value: float) -> Float:
    """The nearest number of 32 bits."""
    return Float(struct.unpack(">f", struct.pack(">f", value))[0])


ascii_text = st.text(st.characters(max_codepoint=127), max_size=300)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 2**8 - 1).map(UByte),
    st.integers(0, 2**16 - 1).map(UShort),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(-(2**7), 2**7 - 1).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Timestamp),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(single),
    st.characters(exclude_categories=["Cs"]).map(Char),
    st.uuids(),
    st.binary(max_size=300),
    st.text(max_size=300),
    ascii_text.map(Symbol),
)
arrays = st.one_of(
    st.lists(st.booleans(), min_size=1, max_size=5),
    st.lists(st.integers(-5, 5).map(Int), min_size=1, max_size=5),
    st.lists(st.integers(-5, 5), min_size=1, max_size=5),
    st.lists(st.integers(0, 2**64 - 1).map(ULong), min_size=1, max_size=5),
    st.lists(st.text(max_size=10), min_size=1, max_size=5),
    st.lists(ascii_text.map(Symbol), min_size=1, max_size=5),
    st.lists(st.binary(max_size=10), min_size=1, max_size=5),
    st.lists(st.uuids(), min_size=1, max_size=5),
).map(Array)


def not_described(value: Any) -> bool:
    """The engine misreads a described value directly inside of another; AMQP has no use for it."""
    return not isinstance(value, Described)


values = st.recursive(
    st.one_of(scalars, arrays),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(st.one_of(st.text(max_size=5), ascii_text.map(Symbol)), inner, max_size=5),
        st.builds(
            Described,
            st.one_of(st.integers(0, 2**64 - 1).map(ULong), ascii_text.map(Symbol)),
            inner.filter(not_described),
        ),
    ),
    max_leaves=20,
)


def typed(value: Any) -> Any:
    """The value with its types, which `==` does not look at."""
    if isinstance(value, Described):
        return "described", typed(value.descriptor), typed(value.value)
    if isinstance(value, dict):
        return "map", [(typed(key), typed(item)) for key, item in value.items()]
    if isinstance(value, list):
        return type(value), [typed(item) for item in value]
    return type(value), value


@given(values)
def test_what_is_encoded_decodes_to_itself(value: Any) -> None:
    data = encode_value(value)
    decoded, end = decode_value(b"xx" + data + b"yy", 2)
    assert typed(decoded) == typed(value)
    assert end == len(data) + 2 == skip_value(b"xx" + data + b"yy", 2)


@given(values)
def test_the_engine_reads_what_we_write(value: Any) -> None:
    data = lib.pn_data(0)
    try:
        encoded = encode_value(value)
        assert cproton.pn_data_decode(data, encoded) == len(encoded)
        assert typed(pndata.read(data)) == typed(value)
    finally:
        lib.pn_data_free(data)


@given(values)
def test_we_read_what_the_engine_writes(value: Any) -> None:
    data = lib.pn_data(0)
    try:
        pndata.put(data, value)
        _, encoded = cproton.pn_data_encode(data, lib.pn_data_encoded_size(data))
        decoded, end = decode_value(bytes(encoded))
        assert typed(decoded) == typed(value)
        assert end == len(encoded)
    finally:
        lib.pn_data_free(data)


@pytest.mark.parametrize(
    "value",
    [
        *(Decimal(bytes(range(length))) for length in (4, 8, 16)),
        *(Array([Decimal(bytes(length)), Decimal(b"\x01" * length)]) for length in (4, 8, 16)),
        Array([None, None]),
        Array([[1, "x"], [2]]),
        Array([{"a": 1}, {}]),
        Array([Array([1, 2]), Array([3])]),
    ],
    ids=repr,
)
def test_what_the_engine_reads_it_writes(value: Any) -> None:
    """A broker echoes what a client says of its source."""
    data, again = lib.pn_data(0), lib.pn_data(0)
    try:
        pndata.put(data, value)
        _, encoded = cproton.pn_data_encode(data, lib.pn_data_encoded_size(data))
        assert cproton.pn_data_decode(again, encoded) == len(encoded)
        assert typed(pndata.read(again)) == typed(value)
    finally:
        lib.pn_data_free(data)
        lib.pn_data_free(again)


def test_a_key_that_is_no_symbol_is_written_as_it_was_read() -> None:
    data = lib.pn_data(0)
    try:
        pndata.put(data, {"\u00e9": 1, Symbol("s"): 2})
        read = pndata.read_map(data)
        pndata.write_map(data, read)
        assert pndata.read_map(data) == read == {"\u00e9": 1, "s": 2}
    finally:
        lib.pn_data_free(data)


def test_a_capability_that_is_no_symbol_is_none() -> None:
    data = lib.pn_data(0)
    try:
        pndata.put(data, ["\u00e9", "queue"])
        assert pndata.read_symbols(data) == ["queue"]
    finally:
        lib.pn_data_free(data)


@given(values, st.data())
def test_a_value_that_is_cut_off_is_an_error(value: Any, data: st.DataObject) -> None:
    encoded = encode_value(value)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    with pytest.raises(ProtocolError):
        decode_value(cut)
    with pytest.raises(ProtocolError):
        skip_value(cut)


@settings(max_examples=examples(500))
@given(
    st.one_of(
        st.binary(max_size=60),
        st.tuples(values, st.binary(max_size=4), st.integers(0, 30)).map(
            lambda parts: encode_value(parts[0])[: parts[2]] + parts[1] + encode_value(parts[0])[parts[2] :]
        ),
    )
)
def test_bytes_decode_or_raise_a_protocol_error(data: bytes) -> None:
    for read in (decode_value, skip_value):
        try:
            result = read(data)
        except ProtocolError:
            continue
        end = result[1] if isinstance(result, tuple) else result
        assert 0 < end <= len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x41",
        b"\xf0\x00\x00\x00\x05\x00\x10\x00\x00\x71",
        b"\xd0\x00\x00\x00\x04\xff\xff\xff\xff",
        b"\xc1\x02\x01\x40",
        b"\xc1\x04\x02\x45\x40",
        b"\xc0\x03\x01\x40\x40",
        b"\xc0\x02\x02\x40",
        b"\x56\x02",
        b"\x73\xff\xff\xff\xff",
        b"\xa1\x01\xff",
        b"\xa3\x01\xff",
        b"\xc0\x04\x01\xa1\x01\xff",
        b"\x00" * 100,
        b"\xc0\xff" * 50,
        b"",
        b"\x00\x53",
    ],
)
def test_lies_about_sizes_and_contents_are_errors(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_value(data)


def test_nesting_is_bounded() -> None:
    value: Any = []
    for _ in range(31):
        value = [value]
    encoded = encode_value(value)
    assert decode_value(encoded)[0] == value
    for _ in range(2):
        value = [value]
    with pytest.raises(ProtocolError):
        decode_value(encode_value(value))


def test_a_described_value_may_be_described() -> None:
    value = [Described(ULong(1), Described(Symbol("a"), None)), None]
    assert decode_value(encode_value(value))[0] == value


def test_decimals_are_carried_as_they_come() -> None:
    for size, code in ((4, 0x74), (8, 0x84), (16, 0x94)):
        encoded = bytes((code,)) + bytes(range(size))
        value, _ = decode_value(encoded)
        assert value == Decimal(range(size))
        assert encode_value(value) == encoded


def test_an_array_of_described_values_is_read() -> None:
    value, _ = decode_value(b"\xe0\x07\x02\x00\x53\x07\x50\x01\x02")
    assert value == [Described(7, 1), Described(7, 2)]


@pytest.mark.parametrize("value", [2**63, UInt(2**32), UInt(-1), UByte(256), Byte(-129), ULong(2**64), Symbol("ä")])
def test_values_out_of_range_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"fit|range|ordinal"):
        encode_value(value)


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j])
def test_values_without_an_amqp_type_are_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        encode_value(value)
