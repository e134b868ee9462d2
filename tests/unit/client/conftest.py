"""Brokers in memory for tests of links."""

from collections.abc import Iterator

import pytest

from tests.unit.client.scripted import Broker


@pytest.fixture
def brokers() -> Iterator[list[Broker]]:
    """One after the other, as a client finds them."""
    made = [Broker() for _ in range(3)]
    yield made
    for broker in made:
        assert not broker.unrouted
        broker.pair.free()
