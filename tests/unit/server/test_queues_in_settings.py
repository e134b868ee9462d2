"""The queues that settings name: dead letters and expired messages go there, so that they can be queues."""

from __future__ import annotations

import pytest

from legato.errors import ConfigError
from legato.server.config.addresses import Addresses


@pytest.mark.parametrize("key", ["dead_letter_queue", "expiry_queue"])
@pytest.mark.parametrize(
    "name",
    [
        "DLQ.{name}",
        "DLQ.{",
        "DLQ.{0}",
        "DLQ.{}",
        "{address.upper}",
        "{address!r}",
        "{address:>9}",
        "$schedule",
        "topic://dead",
        "queue://dead",
        "subscription:///dead",
        "assignment://a/q",
        "temp-queue://dead",
    ],
)
def test_what_no_queue_can_be_called_is_refused(key: str, name: str) -> None:
    """Else the broker's clock stands still with the first dead letter, for good: `$schedule` keeps it."""
    with pytest.raises(ConfigError, match=key):
        Addresses([{"match": "#", key: name}])


@pytest.mark.parametrize("name", ["", "dead", "DLQ.{address}", "{address}.dead", "a.{address}.b"])
def test_queues_are_named(name: str) -> None:
    assert Addresses([{"match": "#", "dead_letter_queue": name}]).settings("q").dead_letter_queue == name
