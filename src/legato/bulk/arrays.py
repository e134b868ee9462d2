"""Arrow arrays made of their buffers, and NumPy's views of them: without pandas.

`pa.array`, `pa.scalar` and `to_numpy` import pandas wherever it is installed, to see whether it is meant. In a process
that Spark starts for one question that is a second of processor time, longer than the question takes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask = npt.NDArray[np.bool_]


class _WithoutPandas(MetaPathFinder):
    """Says of pandas that it is not there."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("This process does without pandas.", name=fullname)


def leave_pandas_out() -> None:
    """Have pyarrow do without pandas in this process: for processes in which only code of ours runs."""
    sys.meta_path.insert(0, _WithoutPandas())


def number_array(values: npt.NDArray[Any], valid: Mask | None = None) -> pa.Array:
    """Numbers of NumPy's; null where they are not `valid`."""
    content = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [_validity(valid), content])


def truth_array(values: Mask, valid: Mask | None = None) -> pa.BooleanArray:
    """Truth values of NumPy's."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [_validity(valid), _bits(values)])


def binary_array(values: Iterable[bytes | None], kind: pa.DataType | None = None) -> pa.Array:
    """Byte strings, or as `kind` UTF-8 texts.

    Raises:
        ValueError: they have more than 2 GiB.
    """
    given = list(values)
    ends = np.zeros(len(given) + 1, np.int64)
    np.cumsum([len(value or b"") for value in given], out=ends[1:])
    if ends[-1] > np.iinfo(np.int32).max:
        raise ValueError("an array of binary values holds no more than 2 GiB")
    content = pa.py_buffer(b"".join([value for value in given if value]))
    valid = np.array([value is not None for value in given], bool)
    offsets = pa.py_buffer(ends.astype(np.int32))
    return pa.Array.from_buffers(kind or pa.binary(), len(given), [_validity(valid), offsets, content])


def text_array(values: Iterable[str | None]) -> pa.StringArray:
    """Texts; what UTF-8 cannot spell is a question mark."""
    return binary_array((None if text is None else text.encode("utf-8", "replace") for text in values), pa.string())


def map_array(rows: Sequence[Sequence[tuple[str, bytes | None]] | None], kind: pa.MapType) -> pa.MapArray:
    """Maps of texts to byte strings or UTF-8 texts, as `kind` says; null where there is none."""
    entries = [entry for row in rows for entry in row or ()]
    ends = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row or ()) for row in rows], out=ends[1:])
    keys = text_array(name for name, _ in entries)
    items = binary_array((value for _, value in entries), kind.item_type)
    valid = np.array([row is not None for row in rows], bool)
    pairs = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    buffers = [_validity(valid), pa.py_buffer(ends)]
    return pa.Array.from_buffers(kind, len(rows), buffers, children=[pairs])


def repeated_text(value: str, count: int) -> pa.StringArray:
    """The same text in so many rows."""
    return pa.repeat(text_array([value])[0], count)


def numbers_of(array: pa.Array) -> npt.NDArray[Any]:
    """NumPy's view of numbers, none of which is null."""
    content = np.frombuffer(array.buffers()[1], np.dtype(array.type.to_pandas_dtype()))
    return content[array.offset : array.offset + len(array)]


def _validity(valid: Mask | None) -> pa.Buffer | None:
    return None if valid is None or valid.all() else _bits(valid)


def _bits(values: Mask) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))
