"""Patterns of topic exchanges, as AMQP 0.9.1 defines them."""

import pytest

from legato.kombu.bindings import Binding, topic_matches


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders.new", ["orders.new"], ["orders", "orders.new.eu", "ordersxnew"]),
        ("orders.*", ["orders.new", "orders."], ["orders", "orders.new.eu"]),
        ("orders.#", ["orders", "orders.new", "orders.new.eu"], ["order", "my.orders"]),
        ("#", ["", "orders", "orders.new"], []),
        ("#.eu", ["eu", "orders.eu", "orders.new.eu"], ["eu.orders", "europe"]),
        ("*.#.eu", ["orders.eu", "orders.new.old.eu"], ["eu"]),
        ("#.new.#.eu", ["new.eu", "a.new.b.eu", "new.new.eu"], ["eu.new", "a.b.eu"]),
        ("*", ["orders"], ["", "orders.new"]),
        ("", [""], ["orders"]),
        ("a+b.(c", ["a+b.(c"], ["aab.(c"]),
    ],
)
def test_a_pattern_matches_whole_words(pattern: str, matching: list[str], others: list[str]) -> None:
    assert [key for key in matching if not topic_matches(pattern, key)] == []
    assert [key for key in others if topic_matches(pattern, key)] == []


def test_a_direct_exchange_compares_and_a_fanout_exchange_does_not() -> None:
    assert Binding("q", "x", "a.*").matches("a.*")
    assert not Binding("q", "x", "a.*").matches("a.b")
    assert Binding("q", "x", "a", type="fanout").matches("anything")
