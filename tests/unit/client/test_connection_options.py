"""The options that editors know are those that a connection has."""

from __future__ import annotations

from typing import get_type_hints

import pytest

from legato.client import ConnectionFactory, ConnectionOptions
from legato.client.failover.uri import FAILOVER_CONTRACTS, Options


def test_editors_know_every_option_and_its_type() -> None:
    known, real = get_type_hints(ConnectionOptions), get_type_hints(Options)
    # What is one of a few words has these words as its type.
    chosen = {"failover_contract", "listener_error"}
    assert known.keys() == real.keys()
    assert {name: known[name] for name in known.keys() - chosen} == {name: real[name] for name in real.keys() - chosen}


def test_editors_know_every_contract() -> None:
    assert get_type_hints(ConnectionOptions)["failover_contract"].__args__ == FAILOVER_CONTRACTS


@pytest.mark.parametrize("word", ["redeliver", "acknowledge", None])
def test_editors_offer_what_may_become_of_a_message_whose_listener_raised(word: str | None) -> None:
    hint = get_type_hints(ConnectionOptions)["listener_error"]
    assert repr(word) in repr(hint) or type(word) in hint.__args__
    ConnectionFactory(listener_error=word)  # type: ignore[arg-type]
