"""Selectors of dead letters: as many in a request as a broker reads."""

from __future__ import annotations

from itertools import chain

import pytest

from legato.administration.letter_names import Identity, batches, may_be_called, name_of, selector_of
from legato.selectors.selector import compile_selector


@pytest.mark.parametrize("id_characters", [0, 40, 500, 5000])
@pytest.mark.parametrize("origins", [1, 3])
@pytest.mark.parametrize("sequences", [True, False], ids=["sequences", "no sequences"])
def test_a_batch_names_no_more_than_a_selector_can(id_characters: int, origins: int, *, sequences: bool) -> None:
    if id_characters == 5000 and not sequences:
        pytest.skip("what has nothing but such an id cannot be named")
    letters = [
        Identity("'" * (id_characters // 2), f"topic://of {number % origins}", (5 << 56) + number if sequences else -1)
        for number in range(120)
    ]
    made = list(batches(letters, 50))
    assert list(chain.from_iterable(made)) == letters
    assert all(len(batch) <= 50 for batch in made)
    for batch in made:
        compile_selector(selector_of(batch))
    if id_characters <= 40:
        assert len(made) < 10


@pytest.mark.parametrize("name", ["a#1", "a#-1", "a#²", "a#", "#", "a@b#99999999999999999999", "x" * 3000 + "#7"])
def test_any_name_can_be_looked_for(name: str) -> None:
    compile_selector(may_be_called(name))


def test_a_name_says_where_it_was() -> None:
    assert name_of(Identity("ID:1", "subscription://c/s", 7)) == "ID:1@subscription://c/s#7"
    assert name_of(Identity("ID:1", "", -1)) == "ID:1"
