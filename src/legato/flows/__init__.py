"""Flows: services written as stages that read from top to bottom, and that may die anywhere.

```python
from legato.flows import Context, Flows

flows = Flows("amqp://one:5672,two:5672", database="sqlite:///orders.db")

@flows.single("Prices.of")
def price(context: Context, item: str) -> float:
    return len(item) * 1.5

if __name__ == "__main__":
    flows.run()
```
"""

from legato.errors import (
    FlowBackendError,
    FlowEndedError,
    FlowError,
    FlowFailedError,
    FlowInDoubtError,
    FlowMessageSendError,
    FlowTimeoutError,
    IllegalCallFlowError,
    RefuseMessageError,
    StateVersionError,
)
from legato.flows.model.context import Context
from legato.flows.model.definitions import Endpoint, Policy
from legato.flows.model.initiation import Initiation
from legato.flows.model.joins import Answers, Request
from legato.flows.model.levels import Transaction
from legato.flows.service import Flows
from legato.flows.starting.futures import FlowFuture

RefuseMessage = RefuseMessageError

__all__ = [
    "Answers",
    "Context",
    "Endpoint",
    "FlowBackendError",
    "FlowEndedError",
    "FlowError",
    "FlowFailedError",
    "FlowFuture",
    "FlowInDoubtError",
    "FlowMessageSendError",
    "FlowTimeoutError",
    "Flows",
    "IllegalCallFlowError",
    "Initiation",
    "Policy",
    "RefuseMessage",
    "RefuseMessageError",
    "Request",
    "StateVersionError",
    "Transaction",
]
