"""For tests of your own: a primary and a backup as real processes, to be killed, and a network to be cut.

from legato.client import ConnectionFactory
from legato.testing import broker_pair

with broker_pair() as brokers, ConnectionFactory(brokers.url).create_connection() as connection:
    ...
    brokers.fail_over()
    ...
"""

from legato.testing.brokers import BrokerPair, broker_pair
from legato.testing.network import Network

__all__ = ["BrokerPair", "Network", "broker_pair"]
