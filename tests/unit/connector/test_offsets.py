"""Shares are fair and never too large; ranges are cut without gaps."""

import json

from hypothesis import given
from hypothesis import strategies as st

from legato.spark.connector.offsets import Range, cut, ordered, shares


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 100)), st.integers(0, 300))
def test_shares_use_the_limit_and_no_more_than_there_is(available: dict[str, int], limit: int) -> None:
    taken = shares(available, limit)
    assert sum(taken.values()) == min(limit, sum(available.values()))
    assert all(0 <= taken[address] <= available[address] for address in available)


def test_shares_are_in_proportion() -> None:
    assert shares({"busy": 900, "quiet": 100}, 100) == {"busy": 90, "quiet": 10}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), max_size=4), st.integers(1, 9), st.integers(0, 20))
def test_pieces_make_up_their_ranges(sizes: list[tuple[int, int]], at_least: int, rows: int) -> None:
    ranges = [Range(f"q{index}", "n", after, after + count) for index, (after, count) in enumerate(sizes)]
    pieces = cut(ranges, at_least=at_least, at_most_rows=rows)
    for each in ranges:
        mine = [piece for piece in pieces if piece.address == each.address]
        assert [piece.after for piece in mine] == [each.after, *(piece.through for piece in mine[:-1])]
        assert mine[-1].through == each.through
        assert all(not rows or piece.through - piece.after <= rows for piece in mine)


def test_an_offset_has_one_text() -> None:
    assert json.dumps(ordered({"b": 1, "a": 2})) == json.dumps(ordered({"a": 2, "b": 1})) == '{"a": 2, "b": 1}'
