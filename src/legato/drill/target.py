"""Which brokers are drilled: a pair that the drill starts with the user's settings, or one that runs already."""

from dataclasses import dataclass
from pathlib import Path

from legato.client.uri import Uri, parse_uri
from legato.drill.pair import Pair
from legato.errors import ConfigError

CHECK_PERIOD_S = 1.5
"""Shorter than the longest freeze: some of them look like a dead broker, and some do not."""

JAVA_IDLE_TIMEOUT_MS = 3_000
JAVA_OPTIONS = (
    "failover.maxReconnectAttempts=-1&failover.initialReconnectDelay=0&failover.reconnectDelay=20"
    "&failover.maxReconnectDelay=500&failover.amqpOpenServerListAction=IGNORE"
)


@dataclass(frozen=True)
class Target:
    """Where the brokers are, how to log in, and the pair if it is our own."""

    hosts: list[tuple[str, int]]
    scheme: str
    login: str
    query: str
    pair: Pair | None

    def url(self, ports: list[int]) -> str:
        """The URL of the brokers behind relays on these ports of this machine."""
        query = self.query
        if "client_failure_check_period_s" not in query:
            query += f"{'&' if query else ''}client_failure_check_period_s={CHECK_PERIOD_S:g}"
        # A broker that told where it is would be reached without the relays.
        query += "&discover=false"
        return f"{self.scheme}://{self.login}{','.join(f'127.0.0.1:{port}' for port in ports)}?{query}"

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


def named(url: str) -> Target:
    """Brokers that somebody else runs.

    Raises:
        ConfigError: the URL is none, or asks for TLS.
    """
    uri: Uri = parse_uri(url)
    if uri.tls:
        raise ConfigError("A drill puts itself between clients and brokers, which TLS forbids: give an amqp:// URL.")
    place, _, query = url.partition("://")[2].partition("?")
    login, at, _ = place.rpartition("@")
    return Target([(host.name, host.port) for host in uri.hosts], "amqp", login + at, query, None)


def own(directory: Path, config: Path | None, *, ledger: bool) -> Target:
    """A pair over a scratch store in `directory`, with the settings of a file.

    Args:
        ledger: whether it writes ledger segments, into `directory`, for Spark.

    Raises:
        ConfigError: the settings cannot be used.
    """
    from legato.server.config import load

    settings = load(config, store=directory / "store")
    options = ["--ledger" if ledger else "--no-ledger", *(["--config", str(config)] if config else [])]
    pair = Pair(directory, options, {"LEGATO_LEDGER_DIRECTORY": str(directory / "store" / "ledger")})
    login = ""
    if not settings.auth.anonymous:
        user, password = next(iter(settings.auth.users.items()))
        login = f"{user}:{password}@"
    tls = bool(settings.tls.certificate)
    hosts = [("127.0.0.1", broker.port) for broker in pair.brokers]
    return Target(hosts, "amqps" if tls else "amqp", login, "tls_verify=false" if tls else "", pair)
