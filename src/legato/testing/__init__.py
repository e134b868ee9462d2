"""Testing tools: a broker in the test's process, flows in virtual time, brokers to kill, a network to cut.

```python
from legato.client import ConnectionFactory
from legato.testing import broker, broker_pair

with broker() as running, ConnectionFactory(running.url).create_connection() as connection:
    ...
    running.advance(60)
    running.assert_no_dead_letters()

with broker_pair() as brokers, ConnectionFactory(brokers.url).create_connection() as connection:
    ...
    brokers.fail_over()
    ...
```
"""

from legato.testing.brokers import BrokerPair, broker_pair
from legato.testing.flows import FlowHarness
from legato.testing.local import LocalBroker, broker
from legato.testing.network import Network

__all__ = ["BrokerPair", "FlowHarness", "LocalBroker", "Network", "broker", "broker_pair"]
