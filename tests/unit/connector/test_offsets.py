"""Shares are fair and never too large; ranges are cut without gaps."""

import json

from hypothesis import given
from hypothesis import strategies as st

from legato.spark.connector.offsets import Range, cut, ordered, shares, together


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
    parts = cut(ranges, at_least=at_least, at_most_rows=rows)
    assert all(not rows or sum(piece.through - piece.after for piece in part) <= rows for part in parts)
    pieces = [piece for part in parts for piece in part]
    for each in ranges:
        mine = [piece for piece in pieces if piece.address == each.address]
        assert [piece.after for piece in mine] == [each.after, *(piece.through for piece in mine[:-1])]
        assert mine[-1].through == each.through


def test_small_ranges_of_many_queues_are_read_together() -> None:
    """Each was a task of its own: 100 queues with a row each took 5 seconds."""
    ranges = [Range(f"q{index}", f"n{index}", 7, 8) for index in range(100)]
    assert cut(ranges, at_least=1, at_most_rows=0) == [ranges]
    assert list(map(len, cut(ranges, at_least=4, at_most_rows=0))) == [25] * 4
    assert list(map(len, cut(ranges, at_least=1, at_most_rows=40))) == [40, 40, 20]


def test_neighbours_of_one_queue_become_one_range() -> None:
    pieces = [(Range("q", "n", 0, 10), 10), (Range("q", "n", 10, 30), 5), (Range("q", "n", 40, 50), 5)]
    assert together(pieces, 20) == [[Range("q", "n", 0, 30), Range("q", "n", 40, 50)]]
    assert together(pieces, 10) == [[Range("q", "n", 0, 10)], [Range("q", "n", 10, 30), Range("q", "n", 40, 50)]]


def test_neighbours_of_a_queue_of_another_group_are_read_there() -> None:
    """They were looked for at the group of the URL, which refused them."""
    pieces = [(Range("q", "n", 0, 10, "rest"), 10), (Range("q", "n", 10, 30, "rest"), 5)]
    assert together(pieces, 20) == [[Range("q", "n", 0, 30, "rest")]]


def test_an_offset_has_one_text() -> None:
    assert json.dumps(ordered({"b": 1, "a": 2})) == json.dumps(ordered({"a": 2, "b": 1})) == '{"a": 2, "b": 1}'
