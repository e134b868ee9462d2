"""A kombu transport: Celery, and whatever else uses kombu, on Legato (`pip install 'legato[celery]'`).

```python
import legato.kombu  # from here on kombu knows legato://
from celery import Celery

app = Celery("shop", broker="legato://one:5672,two:5672")
```

`legatos://` is TLS. Options of the connection follow the `?` as they do for `legato.client`.
"""

try:
    from kombu.transport import TRANSPORT_ALIASES
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("kombu"):
        raise
    # Without a name: that is the sign of an error that is for the user (`legato.cli.failures`).
    raise ImportError("legato.kombu needs kombu: pip install 'legato[celery]'.") from error

from legato.kombu.channel import Channel
from legato.kombu.errors import BrokerLostError, ChannelRefusedError
from legato.kombu.transport import Transport

TRANSPORT_ALIASES.setdefault("legato", "legato.kombu:Transport")
TRANSPORT_ALIASES.setdefault("legatos", "legato.kombu:Transport")

__all__ = ["BrokerLostError", "Channel", "ChannelRefusedError", "Transport"]
