"""The brokers under drill: a pair that the drill starts with the user's settings, or a running one."""

import asyncio
import dataclasses
import functools
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from legato.client.failover.uri import Uri, parse_uri, tls_context
from legato.drill.load import PICKY_FLOW
from legato.drill.pair import Pair
from legato.drill.relay import Dial
from legato.errors import ConfigError

CHECK_PERIOD_S = 1.5
"""Shorter than the longest freeze: some of them look like a dead broker, and some do not."""
RECONNECT_TIMEOUT_S = 2.0
"""How long a broker of the drill's keeps what belongs to a client that was killed, and does not come back."""
GOING_ON = ("failover_on_server_shutdown", "failover_on_initial_connection")
"""What some contracts do not do unless they are asked to."""
CLIENTS, ADMINISTRATORS = "drill", "drill-administrator"
"""Users of a drill with users."""
USERS_SETTINGS = """
[[role]]
name = "drill-clients"
members = ["{clients}"]
allow = [
  {{ on = "drill.#", may = ["send", "receive", "browse", "create", "bulk"] }},
  {{ on = "DLQ.drill.#", may = ["send", "receive", "browse"] }},
  {{ on = "temp-queue://#", may = ["send", "receive", "create"] }},
  {{ on = "temp-topic://#", may = ["send", "receive", "create"] }},
]
management = "operate"

[[role]]
name = "drill-administrators"
members = ["{administrators}"]
allow = [{{ on = "#", may = ["send", "receive", "browse", "create", "delete"] }}]
management = "administer"
"""
PICKY_SETTINGS = """
[[address]]
match = "drill.*.{flow}"
maximum_deliveries = 5
redelivery_delay_s = 0.1
redelivery_multiplier = 2.0
"""

JAVA_IDLE_TIMEOUT_MS = 3_000
JAVA_OPTIONS = (
    "failover.maxReconnectAttempts=-1&failover.initialReconnectDelay=0&failover.reconnectDelay=20"
    "&failover.maxReconnectDelay=500&failover.amqpOpenServerListAction=IGNORE"
)


@dataclass(frozen=True)
class Target:
    """Brokers under drill: their URL, login, and the pair if it is our own; `notes` are for the report.

    `administration` is the login of who administers them, if that is another one.
    """

    hosts: list[tuple[str, int]]
    scheme: str
    login: str
    query: str
    pair: Pair | None
    dial: Dial | None = None
    notes: list[str] = field(default_factory=list)
    administration: str = ""

    def url(self, ports: list[int]) -> str:
        """The URL of the brokers behind relays on these ports of this machine."""
        return self.url_of([f"127.0.0.1:{port}" for port in ports])

    def administrators_url(self, ports: list[int]) -> str:
        """The same for who administers them."""
        places = [f"127.0.0.1:{port}" for port in ports]
        return dataclasses.replace(self, login=self.administration or self.login).url_of(places)

    def url_of(self, places: list[str]) -> str:
        """The URL of the brokers behind relays at these places."""
        query = self.query
        if "client_failure_check_period_s" not in query:
            query += f"{'&' if query else ''}client_failure_check_period_s={CHECK_PERIOD_S:g}"
        # A broker that told where it is would be reached without the relays.
        query += "&discover=false"
        return f"{self.scheme}://{self.login}{','.join(places)}?{query}"

    def java_url(self, ports: list[int]) -> str:
        """The same for Qpid JMS."""
        scheme = "amqp" if self.scheme == "amqp" else "amqps"
        options = [f"amqp.idleTimeout={JAVA_IDLE_TIMEOUT_MS}"]
        if scheme == "amqps":
            options += ["transport.trustAll=true", "transport.verifyHost=false"]
        hosts = ",".join(f"{scheme}://127.0.0.1:{port}?{'&'.join(options)}" for port in ports)
        user, _, password = self.login.removesuffix("@").partition(":")
        login = f"jms.username={user}&jms.password={password}&" if user else ""
        return f"failover:({hosts})?{login}{JAVA_OPTIONS}"


def named(url: str, contract: str = "legato") -> Target:
    """Brokers that somebody else runs.

    With TLS it is the drill that speaks TLS to them, with the `tls_` options of the URL; its clients on this machine
    speak to the drill.

    Raises:
        ConfigError: the URL is none, or its files cannot be used.
    """
    uri: Uri = parse_uri(url)
    place, _, query = url.partition("://")[2].partition("?")
    login, at, _ = place.rpartition("@")
    options = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if not name.startswith("tls_")]
    dial = None
    if uri.tls:
        dial = functools.partial(asyncio.open_connection, ssl=tls_context(uri.options))
    hosts = [(host.name, host.port) for host in uri.hosts]
    return Target(hosts, "amqp", login + at, _query(options, contract), None, dial)


def own(
    directory: Path,
    config: Path | None,
    *,
    ledger: bool,
    contract: str = "legato",
    brokers: int = 2,
    users: bool = False,
) -> Target:
    """Brokers over a scratch store in `directory`, with the settings of a file.

    Args:
        ledger: whether it writes ledger segments, into `directory`, for Spark.
        contract: the failover contract of the Python clients.
        brokers: how many.
        users: whether clients, and who administers the brokers, are users with roles of the drill's own.

    Raises:
        ConfigError: the settings cannot be used.
    """
    from legato.server.config.configuration import ServerSection, load

    directory.mkdir(parents=True, exist_ok=True)
    try:
        text = config.read_text(encoding="utf-8") if config else ""
    except OSError as error:
        raise ConfigError(f"Cannot read the configuration {config}: {error.strerror}.") from None
    settings = load(config, store=directory / "store")
    file = directory / "legato.toml"
    # The settings may have passwords in them.
    file.touch(mode=0o600)
    roles = USERS_SETTINGS.format(clients=CLIENTS, administrators=ADMINISTRATORS) if users else ""
    file.write_text(text + PICKY_SETTINGS.format(flow=PICKY_FLOW) + roles, encoding="utf-8")
    load(file, store=directory / "store")
    environment = {"LEGATO_LEDGER_DIRECTORY": str(directory / "store" / "ledger")}
    if users and (settings.auth.users or settings.auth.users_file):
        raise ConfigError("--users gives the brokers users of the drill's own: leave those of the configuration out.")
    if "reconnect_timeout_s" in ServerSection.__struct_fields__:
        environment["LEGATO_SERVER_RECONNECT_TIMEOUT_S"] = str(RECONNECT_TIMEOUT_S)
    options = ["--ledger" if ledger else "--no-ledger", "--config", str(file)]
    login, administration = "", ""
    if users:
        file = directory / "users"
        login, administration = (f"{user}:{_add(file, user)}@" for user in (CLIENTS, ADMINISTRATORS))
        environment["LEGATO_AUTH_USERS_FILE"] = str(file.resolve())
        environment["LEGATO_AUDIT_FILE"] = str((directory / "audit.jsonl").resolve())
    pair = Pair(directory, options, environment, brokers)
    if settings.auth.users and not settings.auth.anonymous:
        user, password = next(iter(settings.auth.users.items()))
        login = f"{user}:{password}@"
    tls = bool(settings.tls.certificate)
    query = _query([("tls_verify", "false")] if tls else [], contract)
    hosts = [(broker.host, broker.port) for broker in pair.brokers]
    return Target(hosts, "amqps" if tls else "amqp", login, query, pair, administration=administration)


def _add(file: Path, user: str) -> str:
    """Add a user with a password that is returned."""
    from legato.server.identity.users_file import User, changing, make_keys

    password = secrets.token_hex()
    with changing(file) as content:
        content.users[user] = User(user, (), make_keys(password))
    return password


def _query(options: list[tuple[str, str]], contract: str) -> str:
    """The options of a URL: clients look for brokers behind the drill's relays only, and go on by all means."""
    options = [*options, ("discover", "false")]
    if contract != "legato":
        options += [("failover_contract", contract), *((name, "true") for name in GOING_ON)]
    return urlencode(options)
