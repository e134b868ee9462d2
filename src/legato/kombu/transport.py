"""Kombu's transport: which connections there are, and how kombu waits for messages."""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import urlsplit

from kombu.transport import base

from legato.errors import ConfigError
from legato.kombu import channel as channels
from legato.kombu.bindings import TYPES
from legato.kombu.connection import BrokerConnection
from legato.kombu.errors import BrokerLostError, ChannelRefusedError

SCHEMES = {"legato": "amqp", "legatos": "amqps"}
HOLD_ETA = "hold_eta"
CONNECTION_OPTIONS = "connection_options"


class Transport(base.Transport):  # type: ignore[misc]
    """A transport for `legato://user:password@one:5672,two:5672?option=value`.

    Transport options (Celery: `broker_transport_options`):

    - `hold_eta`: whether the broker keeps Celery's tasks back until their ETA (the default), or the worker does.
    - `connection_options`: options of the connection, a dict, as `legato.client.ConnectionFactory` takes them.
    """

    Channel = channels.Channel
    can_parse_url = True
    default_port = 5672
    driver_type = "amqp"
    driver_name = "legato"
    connection_errors = (BrokerLostError, OSError)
    channel_errors = (ChannelRefusedError,)
    recoverable_connection_errors = (BrokerLostError, OSError)
    recoverable_channel_errors = (ChannelRefusedError,)
    implements = base.Transport.implements.extend(asynchronous=True, exchange_type=frozenset(TYPES), heartbeats=False)

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.channel_ids = itertools.count(1)
        self.hold_eta = bool((client.transport_options or {}).get(HOLD_ETA, True))

    def driver_version(self) -> str:
        """Legato's version."""
        from importlib.metadata import version

        return version("legato")

    def establish_connection(self) -> BrokerConnection:
        """Connect to the first broker that serves.

        Raises:
            BrokerLostError: none was reached.
            ConfigError: the URL or an option cannot be used.
        """
        client = self.client
        options = dict((client.transport_options or {}).get(CONNECTION_OPTIONS) or {})
        return BrokerConnection(client, client_uri(client), options)

    def close_connection(self, connection: BrokerConnection) -> None:
        """Close, with all channels."""
        connection.close()

    def create_channel(self, connection: BrokerConnection) -> channels.Channel:
        """A channel of its own."""
        channel = channels.Channel(connection, self)
        connection.channels.append(channel)
        return channel

    def close_channel(self, channel: channels.Channel) -> None:
        """Close one channel."""
        channel.close()

    def drain_events(self, connection: BrokerConnection, timeout: float | None = None, **_: Any) -> None:
        """Deliver one message; raises `socket.timeout` if none comes in time."""
        connection.drain(timeout)

    def verify_connection(self, connection: BrokerConnection) -> bool:
        """Whether it can be used, in this process."""
        return connection.usable

    def register_with_event_loop(self, connection: BrokerConnection, loop: Any) -> None:
        """Have kombu's event loop deliver messages."""
        connection.register(loop)

    def unregister_from_event_loop(self, connection: BrokerConnection, loop: Any) -> None:
        """Have it deliver no more."""
        del loop
        connection.unregister()

    def qos_semantics_matches_spec(self, connection: BrokerConnection) -> bool:
        """A prefetch count is the channel's, as AMQP 0.9.1 says."""
        del connection
        return True

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """The URL for logs."""
        if include_password or "@" not in uri:
            return uri
        scheme, _, rest = uri.partition("://")
        login, _, place = rest.rpartition("@")
        user, colon, _ = login.partition(":")
        return f"{scheme}://{user}{colon}{mask if colon else ''}@{place}"

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """What is not said."""
        return {"port": self.default_port, "hostname": "legato://localhost"}


def client_uri(client: Any) -> str:
    """The URI for `legato.client` of one of kombu's connections.

    Raises:
        ConfigError: it cannot be used.
    """
    url = client.hostname or "localhost"
    if "://" not in url:
        login = f"{client.userid}:{client.password}@" if client.userid else ""
        url = f"legato://{login}{url}:{client.port or Transport.default_port}"
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        raise ConfigError(
            f"A URL of Legato's begins with {' or '.join(f'{name}://' for name in SCHEMES)}, not {scheme!r}."
        )
    path = urlsplit(url).path.strip("/")
    if path:
        raise ConfigError(f"Legato has no virtual hosts: leave {path!r} out of the URL.")
    return f"{SCHEMES[scheme]}://{rest}"
