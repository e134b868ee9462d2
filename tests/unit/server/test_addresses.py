"""Settings of addresses: which tables hold, and what is said of those that cannot be used."""

from pathlib import Path
from typing import Any

import pytest

from legato.address_patterns import matches
from legato.core.settings import DEFAULT_SETTINGS
from legato.errors import ConfigError
from legato.server.config.addresses import Addresses
from legato.server.config.configuration import load


@pytest.mark.parametrize(
    ("pattern", "address", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "orders.new", False),
        ("orders.*", "orders.new", True),
        ("orders.*", "orders", False),
        ("orders.*", "orders.new.eu", False),
        ("orders.#", "orders", True),
        ("orders.#", "orders.new.eu", True),
        ("orders.#", "ordersnew", False),
        ("#", "", True),
        ("#.eu", "orders.new.eu", True),
        ("#.eu", "eu", True),
        ("*.new.#", "orders.new", True),
        ("#.new.#", "a.new.b.new.c", True),
        ("#.#", "a", True),
    ],
)
def test_a_star_is_one_word_and_a_hash_any_number(pattern: str, address: str, expected: bool) -> None:
    assert matches(pattern.split("."), address.split(".")) is expected


def test_an_address_without_a_table_has_the_defaults() -> None:
    assert Addresses([{"match": "orders", "max_messages": 1}]).settings("other") is DEFAULT_SETTINGS


def test_the_more_specific_table_wins_field_by_field() -> None:
    addresses = Addresses(
        [
            {"match": "orders.new", "max_messages": 3},
            {"match": "#", "max_messages": 1, "maximum_deliveries": 5, "exclusive": True},
            {"match": "orders.*", "max_messages": 2, "maximum_deliveries": 6},
        ]
    )
    found = addresses.settings("orders.new")
    assert (found.max_messages, found.maximum_deliveries, found.exclusive) == (3, 6, True)


def test_of_equally_specific_tables_the_later_wins() -> None:
    addresses = Addresses([{"match": "a.*", "max_messages": 1}, {"match": "a.*", "max_messages": 2}])
    assert addresses.settings("a.b").max_messages == 2


def test_a_default_said_out_loud_wins_over_a_less_specific_table() -> None:
    addresses = Addresses([{"match": "#", "max_messages": 1}, {"match": "free", "max_messages": 0}])
    assert addresses.settings("free").max_messages == 0


def test_a_policy_stands_for_its_settings_and_the_table_wins_over_it() -> None:
    """CONTRACT D15: ActiveMQ's one delivery and six more, which block their consumer."""
    addresses = Addresses([{"match": "jobs", "policy": "activemq", "redelivery_delay_s": 0.1}])
    found = addresses.settings("jobs")
    assert (found.maximum_deliveries, found.redelivery_delay_s, found.redelivery_blocking) == (7, 0.1, "consumer")


def test_replaced_tables_hold_at_once() -> None:
    addresses = Addresses([{"match": "a", "max_messages": 1}])
    assert addresses.settings("a").max_messages == 1
    addresses.replace(Addresses([{"match": "a", "max_messages": 2}]))
    assert addresses.settings("a").max_messages == 2


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"max_messages": 1}, "number 1 needs match"),
        ({"match": 5}, "needs match"),
        ({"match": "a", "max_mesages": 1}, r"'a': there is no setting 'max_mesages'. Did you mean max_messages\?"),
        ({"match": "a", "zzz": 1}, "'a': there is no setting 'zzz'. It has maximum_deliveries, "),
        ({"match": "a", "max_messages": -1}, "'a': max_messages: expected a whole number >= 0"),
        ({"match": "a", "redelivery_delay_s": "2x"}, "'a': redelivery_delay_s is '2x': give a number of seconds, or"),
        (
            {"match": "a", "redelivery_delay_s": []},
            "'a': redelivery_delay_s: expected a number, got a list",
        ),
        ({"match": "a", "when_full": "wait"}, "when_full is 'wait'; there is 'page', 'block', 'fail', 'drop-oldest'"),
        ({"match": "a", "policy": "rabbit"}, "policy is 'rabbit'; there is 'activemq'"),
        ({"match": "orders*"}, r"'orders\*' mixes a wildcard and text"),
    ],
)
def test_a_table_that_cannot_be_used_is_named(table: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Addresses([table])


def test_tables_come_out_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "legato.toml"
    file.write_text('[[address]]\nmatch = "orders.#"\nmax_bytes = 1000\nwhen_full = "fail"\n')
    config = load(file, store=tmp_path, environment={})
    assert Addresses(config.address).settings("orders.new").when_full == "fail"
    file.write_text("[address]\nmax_bytes = 1000\n")
    with pytest.raises(ConfigError, match="address"):
        load(file, store=tmp_path, environment={})
