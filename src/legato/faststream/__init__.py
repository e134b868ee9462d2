"""A FastStream broker on Legato: decorated functions are consumers (`pip install 'legato[faststream]'`).

```python
from faststream import FastStream
from legato.faststream import LegatoBroker

broker = LegatoBroker("amqp://one:5672,two:5672")
app = FastStream(broker)


@broker.subscriber("orders")
@broker.publisher("invoices")
async def bill(order: Order) -> Invoice: ...
```

A message is acknowledged when its function returns; when it raises, it is delivered again after a pause.
"""

from importlib.util import find_spec

if find_spec("faststream") is None:
    # Without a name: that is the sign of an error that is for the user (`legato.cli.failures`).
    raise ImportError("legato.faststream needs faststream: pip install 'legato[faststream]'.")

from legato.faststream.annotations import LegatoMessage
from legato.faststream.broker import LegatoBroker
from legato.faststream.publisher import LegatoPublisher
from legato.faststream.response import LegatoResponse
from legato.faststream.router import LegatoRouter
from legato.faststream.subscriber import LegatoSubscriber
from legato.faststream.testing import TestLegatoBroker

__all__ = [
    "LegatoBroker",
    "LegatoMessage",
    "LegatoPublisher",
    "LegatoResponse",
    "LegatoRouter",
    "LegatoSubscriber",
    "TestLegatoBroker",
]
