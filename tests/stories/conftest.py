"""Brokers to be killed, and connections of both clients, for what the documents tell."""

import pytest

from legato.testing import BrokerPair
from tests.support.clients import brokers, connect, factory, queue_name, shared_pair

__all__ = ["brokers", "connect", "factory", "pair", "queue_name", "shared_pair"]


@pytest.fixture
def pair(shared_pair: BrokerPair) -> BrokerPair:
    """After a failover it is a pair again."""
    return shared_pair
