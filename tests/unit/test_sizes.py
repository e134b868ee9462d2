"""Sizes in words."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.sizes import size, sizes_apart
from tests.support.examples import examples


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (120 << 20, 100 << 20, ("120 MiB", "100 MiB")),
        ((3 << 20) - 100_000, 3 << 20, ("2.9 MiB", "3.0 MiB")),
        ((3 << 20) - 10_000, 3 << 20, ("2.99 MiB", "3.00 MiB")),
        ((3 << 20) - 10, 3 << 20, ("3,145,718 bytes", "3,145,728 bytes")),
        (3 << 20, 3 << 20, ("3.0 MiB", "3.0 MiB")),
    ],
)
def test_two_sizes_that_are_compared_have_as_many_digits_as_tell_them_apart(
    one: int, other: int, told: tuple[str, str]
) -> None:
    """`only 3 MiB of disk are free; the reserve is 3 MiB`"""
    assert sizes_apart(one, other) == told


@given(st.integers(0, 1 << 50), st.integers(-(1 << 30), 1 << 30))
@settings(max_examples=examples(300))
def test_different_sizes_never_look_the_same(one: int, more: int) -> None:
    other = max(one + more, 0)
    told = sizes_apart(one, other)
    assert (told[0] == told[1]) == (one == other)


def test_sizes_are_short() -> None:
    for count in (0, 1023, 1024, 999 << 10, 5 << 30, 1 << 40):
        assert re.fullmatch(r"\d{1,4}(\.\d)? [KMGT]?i?B", size(count))
