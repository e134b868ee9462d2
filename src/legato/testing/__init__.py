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

from importlib.util import find_spec

if missing := [name for name in ("lmdb", "uvloop") if find_spec(name) is None]:
    # Without a name: that is the sign of an error that is for the user (`legato.cli.failures`).
    raise ImportError(f"legato.testing needs a broker, and so {', '.join(missing)}: pip install 'legato[broker]'.")

from legato.testing.brokers import BrokerPair, broker_pair
from legato.testing.flows import FlowHarness
from legato.testing.local import LocalBroker, broker
from legato.testing.log_network import LogNetwork
from legato.testing.log_servers import log_servers
from legato.testing.network import Network

__all__ = ["BrokerPair", "FlowHarness", "LocalBroker", "LogNetwork", "Network", "broker", "broker_pair", "log_servers"]
