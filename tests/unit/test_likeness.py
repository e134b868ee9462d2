"""What a mistyped name may have meant: something like it, or nothing."""

import pytest

from legato.likeness import edits_between, meant

OPTIONS = ["--count", "--wait", "--json", "--url", "--store", "--no-ledger"]


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("--cuont", ["--count"]),
        ("--cou", ["--count"]),
        ("--counts", ["--count"]),
        ("--jsno", ["--json"]),
        ("--URL", ["--url"]),
        ("--no_ledgr", ["--no-ledger"]),
        ("--timeout", []),  # `--count` was suggested: half of its letters are in it.
        ("--host", []),
        ("--zzz", []),
        ("-n", []),
        ("", []),
    ],
)
def test_only_what_is_like_a_word_is_suggested_for_it(word: str, names: list[str]) -> None:
    assert meant(word, OPTIONS) == names


def test_the_most_similar_name_goes_first() -> None:
    known = ["queues", "queue", "quota", "quench", "sink"]
    assert meant("queu", known) == ["queue", "queues"]
    assert meant("queu", known, 1) == ["queue"]


def test_a_long_beginning_in_common_is_alike_and_a_short_one_is_not() -> None:
    assert meant("subscribe", ["subscription"]) == ["subscription"]
    assert meant("contract", ["container_id"]) == []


@pytest.mark.parametrize(
    ("one", "other", "edits"), [("dql", "dlq", 1), ("", "abc", 3), ("abc", "abc", 0), ("ca", "abc", 3)]
)
def test_neighbours_that_were_swapped_are_one_mistake(one: str, other: str, edits: int) -> None:
    assert edits_between(one, other) == edits
