"""Kombu's transport: which connections there are, and how kombu waits for messages."""

from __future__ import annotations

import itertools
import sys
from ssl import CERT_NONE
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from kombu.transport import base, virtual

from legato.errors import ConfigError
from legato.kombu import channel as channels
from legato.kombu.bindings import TYPES
from legato.kombu.connection import BrokerConnection
from legato.kombu.errors import BrokerLostError, ChannelRefusedError

SCHEMES = {"legato": "amqp", "legatos": "amqps"}
HOLD_ETA = "hold_eta"
CONNECTION_OPTIONS = "connection_options"
TLS_OPTIONS = {"ca_certs": "tls_ca_file", "certfile": "tls_cert_file", "keyfile": "tls_key_file"}
CERT_REQS = "cert_reqs"


class Transport(base.Transport):  # type: ignore[misc]
    """A transport for `legato://user:password@one:5672,two:5672?option=value`.

    Transport options (Celery: `broker_transport_options`):

    - `hold_eta`: whether the broker keeps Celery's tasks back until their ETA (the default), or the worker does.
    - `connection_options`: options of the connection, a dict, as `legato.client.ConnectionFactory` takes them.
    """

    Channel = channels.Channel
    can_parse_url = True
    default_port = 5672
    # Not "amqp", which to Celery is RabbitMQ: that has exchanges of its own delay the tasks of quorum queues.
    driver_type = "legato"
    driver_name = "legato"
    connection_errors = (BrokerLostError, OSError)
    channel_errors = (ChannelRefusedError,)
    recoverable_connection_errors = (BrokerLostError, OSError)
    recoverable_channel_errors = (ChannelRefusedError,)
    implements = base.Transport.implements.extend(asynchronous=True, exchange_type=frozenset(TYPES), heartbeats=False)

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        _keep_login_apart(client)
        _let_workers_meet()
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
        options = _tls_options(client.ssl) | ((client.transport_options or {}).get(CONNECTION_OPTIONS) or {})
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

    def get_manager(self, *_: Any, **__: Any) -> virtual.Management:
        """What knows all bindings: `celery list bindings` asks it."""
        return virtual.Management(self)

    def qos_semantics_matches_spec(self, connection: BrokerConnection) -> bool:
        """A prefetch count is the channel's, as AMQP 0.9.1 says."""
        del connection
        return True

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """The URL for logs."""
        bare, user, password = _without_login(_with_scheme(uri, self.client.port))
        if user is None:
            user, password = self.client.userid, self.client.password
        if not user:
            return bare
        login = quote(user, safe="")
        if password:
            login += ":" + (quote(password, safe="") if include_password else mask)
        return _with_login(bare, login)

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """What is not said."""
        return {"port": self.default_port, "hostname": "legato://localhost"}


def client_uri(client: Any) -> str:
    """The URI for `legato.client` of one of kombu's connections; with its `ssl` it speaks TLS, whatever the URL says.

    Raises:
        ConfigError: it cannot be used.
    """
    url = _with_scheme(client.hostname, client.port)
    if client.userid and _without_login(url)[1] is None:
        password = "" if client.password is None else f":{quote(client.password, safe='')}"
        url = _with_login(url, quote(client.userid, safe="") + password)
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        raise ConfigError(
            f"A URL of Legato's begins with {' or '.join(f'{name}://' for name in SCHEMES)}, not {scheme!r}."
        )
    path = urlsplit(url).path.strip("/")
    if path:
        raise ConfigError(f"Legato has no virtual hosts: leave {path!r} out of the URL.")
    return f"{SCHEMES['legatos' if client.ssl else scheme]}://{rest}"


def _tls_options(ssl: Any) -> dict[str, Any]:
    """Options of the connection for kombu's `ssl` (Celery: `broker_use_ssl`), which has them by Python's names.

    Raises:
        ConfigError: it has others.
    """
    if not isinstance(ssl, dict):
        return {}
    unknown = sorted(map(str, ssl.keys() - TLS_OPTIONS.keys() - {CERT_REQS}))
    if unknown:
        known = ", ".join((*TLS_OPTIONS, CERT_REQS))
        raise ConfigError(f"Of broker_use_ssl (kombu: ssl) Legato knows {known}; not {', '.join(unknown)}.")
    options = {TLS_OPTIONS[name]: value for name, value in ssl.items() if name in TLS_OPTIONS and value is not None}
    return options | ({"tls_verify": False} if ssl.get(CERT_REQS) == CERT_NONE else {})


def _let_workers_meet() -> None:
    """Have Celery's workers look for each other at their start, and listen to each other.

    They do so over transports that they know by their type.
    """
    for name, step in (("mingle", "Mingle"), ("gossip", "Gossip")):
        module = sys.modules.get(f"celery.worker.consumer.{name}")
        if module is not None:
            getattr(module, step).compatible_transports.add(Transport.driver_type)


def _with_scheme(host: str | None, port: int | None) -> str:
    """A URL, of what may be only a host."""
    host = host or "localhost"
    return host if "://" in host else f"legato://{host}:{port or Transport.default_port}"


def _keep_login_apart(client: Any) -> None:
    """Move a login from the URL of one of kombu's connections to where kombu keeps those of other transports.

    What is kept of a connection is no secret but for its password: `celery inspect stats` tells it to whoever asks.
    """
    bare, user, password = _without_login(client.hostname or "")
    if user is not None:
        client.hostname, client.userid, client.password = bare, user, password


def _without_login(url: str) -> tuple[str, str | None, str | None]:
    """A URL without its login, and user and password of that login, None where it has none."""
    scheme, separator, rest = url.partition("://")
    place, question, query = rest.partition("?")
    login, at, hosts = place.rpartition("@")
    if not separator or not at:
        return url, None, None
    user, colon, password = login.partition(":")
    return f"{scheme}://{hosts}{question}{query}", unquote(user), unquote(password) if colon else None


def _with_login(url: str, login: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{login}@{rest}"
