"""Application properties with their types: Spark's VARIANT, which Arrow carries as a value and its names."""

from __future__ import annotations

import json
from functools import lru_cache

import pyarrow as pa
from pyspark.sql.types import VariantVal

from legato.bulk.oddities import properties_of

VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        # By that Spark tells it from a structure of two columns.
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)


def variants_of(messages: pa.BinaryArray, properties: pa.Array) -> pa.StructArray:
    """One object a message: numbers and truth values are such, all else is text; null where there are no properties.

    Args:
        properties: the same as texts, by which is known who has some.
    """
    found = [
        _variant(json.dumps(properties_of(message.as_py()), default=str)) if has.as_py() else None
        for message, has in zip(messages, properties.is_valid(), strict=True)
    ]
    return pa.array([None if each is None else {"value": each[0], "metadata": each[1]} for each in found], VARIANT)


@lru_cache(maxsize=1024)
def _variant(text: str) -> tuple[bytes, bytes]:
    """Messages of one producer mostly have few different ones."""
    parsed = VariantVal.parseJson(text)
    return parsed.value, parsed.metadata
