"""Rendezvous hashing: the same everywhere, even, and nothing moves but what must."""

from collections import Counter

import pytest

from legato.groups.rendezvous import Candidate, hash_of, winner

KEYS = [f"orders.{number}" for number in range(4_000)]


def test_the_choice_is_the_same_in_each_version_and_on_each_machine() -> None:
    candidates = [Candidate(name) for name in ("one", "two", "three", "four")]
    assert hash_of("orders") == 0x783FBCEE6D42C3CA
    chosen = [winner(key, candidates).name for key in KEYS[:8]]
    assert chosen == ["two", "one", "three", "one", "three", "four", "four", "one"]


def test_candidates_get_keys_by_their_weights() -> None:
    candidates = [Candidate("half", 0.5), Candidate("one"), Candidate("two", 2.0)]
    counts = Counter(winner(key, candidates).name for key in KEYS)
    for name, weight in (("half", 0.5), ("one", 1.0), ("two", 2.0)):
        assert counts[name] / len(KEYS) == pytest.approx(weight / 3.5, abs=0.03)


def test_a_candidate_that_goes_gives_away_only_what_it_had() -> None:
    candidates = [Candidate(f"c{number}", 1 + number % 3) for number in range(10)]
    before = {key: winner(key, candidates).name for key in KEYS}
    after = {key: winner(key, candidates[1:]).name for key in KEYS}
    assert {key for key in KEYS if before[key] != after[key]} == {key for key in KEYS if before[key] == "c0"}
    # And its keys are not another one's alone.
    assert len({after[key] for key in KEYS if before[key] == "c0"}) == 9


def test_more_weight_only_brings_keys() -> None:
    candidates = [Candidate("a"), Candidate("b"), Candidate("c")]
    heavier = [Candidate("a", 1.5), Candidate("b"), Candidate("c")]
    moved = {(winner(k, candidates).name, winner(k, heavier).name) for k in KEYS}
    assert {pair for pair in moved if pair[0] != pair[1]} == {("b", "a"), ("c", "a")}


def test_the_order_of_candidates_does_not_matter() -> None:
    candidates = [Candidate(f"c{number}") for number in range(7)]
    assert all(winner(key, candidates).name == winner(key, candidates[::-1]).name for key in KEYS[:500])


def test_there_must_be_a_candidate() -> None:
    with pytest.raises(ValueError, match="empty"):
        winner("orders", [])
