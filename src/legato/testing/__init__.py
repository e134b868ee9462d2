"""For tests of your own: brokers as real processes, to be killed, a network to be cut, and flows in virtual time.

from legato.client import ConnectionFactory
from legato.testing import broker_pair

with broker_pair() as brokers, ConnectionFactory(brokers.url).create_connection() as connection:
    ...
    brokers.fail_over()
    ...
"""

from legato.testing.brokers import BrokerPair, broker_pair
from legato.testing.flows import FlowHarness
from legato.testing.network import Network

__all__ = ["BrokerPair", "FlowHarness", "Network", "broker_pair"]
