"""Connection URIs: hosts, login, options."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, get_type_hints
from urllib.parse import parse_qsl, unquote

import msgspec

from legato.client.failover.contract import CONTRACTS, FailoverContract
from legato.errors import ConfigError
from legato.hosts import wrong_host
from legato.likeness import meant
from legato.quoting import is_unicode, quoted

PORT_DEFAULT = 5672
TLS_PORT_DEFAULT = 5671
CHECK_PERIOD_S_MIN = 0.5
"""A broker that has nothing to say sends a heartbeat in good time before the period ends, but looks at the clock only
every tenth of a second."""
CHECK_PERIOD_S_MAX = 86_400
FAILOVER_CONTRACTS = tuple(CONTRACTS)
"""The personalities that `failover_contract` chooses from."""


class Host(msgspec.Struct, frozen=True):
    """One broker's address."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


class Options(msgspec.Struct, frozen=True):
    """The options of a URI. Units and bounds are part of the names.

    An attempt is one round through all hosts. The first try after a loss is immediate, unless the broker asked for a
    pause because it has many clients (`failover.Schedule`); before the n-th further round the client waits
    `reconnect_delay_s * reconnect_backoff ** (n - 1)`, at most `reconnect_delay_max_s`, less a random part of up to
    `reconnect_jitter`.
    """

    client_failure_check_period_s: float = 30.0
    """A broker that is silent for so long counts as lost (CONTRACT E4); -1: never."""
    reconnect_attempts: int = -1
    """Rounds after a connection was lost; -1 for ever, 0 never: no failover (CONTRACT E6)."""
    reconnect_delay_s: float = 0.005
    reconnect_backoff: float = 1.25
    """A backup that takes over in t is found after at most 1.25 t; doubling would waste up to t."""
    reconnect_delay_max_s: float = 1.0
    reconnect_jitter: float = 0.25
    connect_wait_s: float = 60.0
    """For how long the first connection is tried: a client may start before its broker. A host name that nobody knows
    and a refused login end that at once."""
    connect_attempts: int | None = None
    """Rounds for the first connection, instead of `connect_wait_s`, and whatever the problem is; -1 for ever."""
    connect_timeout_s: float = 5.0
    """For TCP, TLS, SASL and AMQP's opening together, for each host."""
    failover_on_initial_connection: bool | None = None
    """Whether the first connection tries every host, or only the first of the URI (CONTRACT E8, E9); by default as the
    `failover_contract` says."""
    failover_on_server_shutdown: bool | None = None
    """Whether a broker that was told to stop counts as lost, or ends the connection (CONTRACT E7); by default as the
    `failover_contract` says."""
    exception_on_failover: bool | None = None
    """Whether the exception listener is told of every failover: a `JMSError` with code `FAILOVER` (CONTRACT B5, E18);
    by default as the `failover_contract` says."""
    discover: bool = True
    """Whether brokers that a broker tells of are tried after those of the URI (CONTRACT E5)."""
    close_timeout_s: float = 60.0
    """How long closing waits for what the broker has not confirmed; then that is given up."""
    prefetch: int = 1000
    """Messages a consumer keeps ready ahead of `receive()`; with 0 each one is asked for when it is wanted."""
    send_window: int = 4000
    """Messages a producer holds that are not yet on the wire, before `send()` waits."""
    client_id: str | None = None
    """The client's own name, under which its durable subscriptions are kept (Jakarta Messaging 6.1.2)."""
    send_user_id: bool = False
    """Whether messages say who sent them (JMSXUserID)."""
    vhost: str | None = None
    """The name of the broker that AMQP's open asks for; the host's name by default."""
    listener_error: str | None = None
    """What to do with a message whose listener raised, in AUTO and DUPS_OK: `redeliver` (Jakarta Messaging 8.7) or
    `acknowledge` (CONTRACT C6); by default as the `failover_contract` says."""
    listener_backoff_s: float = 0.1
    """How long a session's listeners rest before a message is given back whose listener raised for the second time, so
    that what it needs may be there again by then; doubled each further time, up to `BACKOFF_MAX_S`. 0: not at all."""
    failover_contract: str = "legato"
    allow_insecure_plain: bool = False
    """Whether the password may go over a network in the clear, to a broker of the URI that speaks only PLAIN."""
    password_file: str | None = None
    """A file whose first line is the password, read for each login: a command line is no place for one."""
    token_file: str | None = None
    """A file with a bearer token of OAuth 2.0, read for each login."""
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_verify: bool = True

    @property
    def contract(self) -> FailoverContract:
        """The contract named by `failover_contract`."""
        return CONTRACTS[self.failover_contract]

    @property
    def reports_failovers(self) -> bool:
        """Whether the exception listener is told of failovers."""
        return _either(self.exception_on_failover, self.contract.exception_on_failover)

    @property
    def redelivers_on_listener_error(self) -> bool:
        """Whether a message whose listener raised comes again."""
        if self.listener_error is None:
            return self.contract.redelivers_on_listener_error
        return self.listener_error == "redeliver"

    @property
    def fails_over_at_first(self) -> bool:
        """Whether the first connection tries every host."""
        return _either(self.failover_on_initial_connection, self.contract.failover_on_initial_connection)

    @property
    def fails_over_on_shutdown(self) -> bool:
        """Whether a broker that was told to stop counts as lost."""
        return _either(self.failover_on_server_shutdown, self.contract.failover_on_server_shutdown)

    @property
    def idle_timeout_ms(self) -> int:
        """`client_failure_check_period_s` as the engine takes it: 0 for never."""
        return max(round(self.client_failure_check_period_s * 1000), 0)


def _either(option: bool | None, default: bool) -> bool:
    return default if option is None else option


class Uri(msgspec.Struct, frozen=True):
    """A parsed URI."""

    hosts: tuple[Host, ...]
    user: str | None
    password: str | None
    tls: bool
    options: Options

    def __repr__(self) -> str:
        """Without the password too: debuggers show it."""
        return f"Uri({str(self)!r})"

    def __str__(self) -> str:
        """The URI without its password, fit for a log."""
        scheme = "amqps" if self.tls else "amqp"
        user = f"{self.user}@" if self.user else ""
        return f"{scheme}://{user}{','.join(map(str, self.hosts))}"


SHORT_WAIT_S = 1.3
TEXT_CHARACTERS_MAX = 8000
"""Of an option: it is in the one frame that opens a connection (AMQP 2.7.1)."""


def short_wait(uri: str) -> dict[str, Any]:
    """The options of a connection for which somebody waits, or which is tried again by others: it fails soon.

    What the URI says wins.
    """
    return {} if "connect_wait_s=" in uri else {"connect_wait_s": SHORT_WAIT_S}


def is_uri(text: str) -> bool:
    """Whether a text is meant as a URI, where it could be a path too."""
    return "://" in text


def parse_uri(text: str) -> Uri:
    """Parse `amqp[s]://[user:password@]host[:port][,host[:port]...][?option=value&...]`.

    Raises:
        ConfigError: it cannot be used; the message names the part and says what is accepted.
    """
    if not isinstance(text, str):
        raise ConfigError(f"A connection URI is a text, such as 'amqp://localhost:5672', not {type(text).__name__}.")
    text = text.strip()
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in ("amqp", "amqps"):
        raise ConfigError(
            "A connection URI begins with amqp:// or amqps://, such as amqp://localhost:5672; not "
            f"{_begin(text)!r}.{_meant(text)}"
        )
    tls = scheme == "amqps"
    place, _, query = rest.partition("?")
    login, at, hosts_text = place.rstrip("/").rpartition("@")
    user, colon, password = login.partition(":")
    hosts = tuple(_parse_host(part, tls) for part in hosts_text.split(",") if part.strip())
    if not hosts:
        port = TLS_PORT_DEFAULT if tls else PORT_DEFAULT
        raise ConfigError(
            f"The connection URI names no host; write {scheme}://host:{port} or {scheme}://one:{port},two:{port}."
        )
    return Uri(
        hosts=hosts,
        user=unquote(user) if at else None,
        password=unquote(password) if colon else None,
        tls=tls,
        options=parse_options(parse_qsl(query, keep_blank_values=True)),
    )


_BARE = re.compile(r"(?:(?P<login>[^@/?]*)@)?(?P<hosts>[\w.,:\[\]-]+)(?:/?\?.*)?")


def _meant(text: str) -> str:
    """What somebody may have meant who left the scheme out; nothing if that cannot be said. Never a password."""
    bare = _BARE.fullmatch(text)
    if bare is None:
        return ""
    login = "" if bare["login"] is None else "user:password@"
    scheme = "amqps" if bare["hosts"].endswith(f":{TLS_PORT_DEFAULT}") else "amqp"
    return f" Did you mean {scheme}://{login}{bare['hosts']}?"


def _begin(text: str) -> str:
    # What follows may hold a password.
    return text.partition("@")[0].partition(":")[0][:20]


def _parse_host(text: str, tls: bool) -> Host:
    text = text.strip()
    default = TLS_PORT_DEFAULT if tls else PORT_DEFAULT
    if text.startswith("["):
        name, _, after = text[1:].partition("]")
        port_text = after.removeprefix(":")
    else:
        name, _, port_text = text.partition(":")
    try:
        port = int(port_text) if port_text else default
    except ValueError:
        port = 0
    if "://" in text:
        scheme = "amqps" if tls else "amqp"
        raise ConfigError(f"The scheme is written once, in front of all hosts: {scheme}://one:{default},two:{default}.")
    if "/" in text:
        raise ConfigError(
            f"The host {text!r} has a path; Legato has no virtual hosts of that kind: leave it out, or name AMQP's "
            "with the option vhost."
        )
    if not name or not 0 < port < 65536:
        raise ConfigError(f"The host {text!r} is not of the form name:port with a port from 1 to 65535.")
    if wrong := wrong_host(name):
        raise ConfigError(f"The host {quoted(name)} cannot be looked up: {wrong}.")
    return Host(name, port)


def _boolean(text: str) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    return known[text.lower()]


_READERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    int: (int, "a whole number"),
    int | None: (int, "a whole number"),
    float: (float, "a number"),
    bool: (_boolean, "true or false"),
    bool | None: (_boolean, "true or false"),
    str: (str, "a text"),
    str | None: (str, "a text"),
}


_OF_A_LOGIN = ("user", "user_name", "username", "login", "password", "passwd", "pass", "credentials")


def parse_options(pairs: Iterable[tuple[str, Any]]) -> Options:
    """Options from their names and values, checked; a value is of the option's type or its spelling in a URI.

    Raises:
        ConfigError: a name is unknown or a value out of range.
    """
    types = _option_types()
    values: dict[str, Any] = {}
    for name, given in pairs:
        if name not in types:
            like = meant(name, types, count_max=1)
            hint = f"Did you mean {like[0]}?" if like else f"Known are {', '.join(sorted(types))}."
            if name.lower() in _OF_A_LOGIN:
                hint = (
                    "A login goes into the URL, as amqp://user:password@host, or to create_connection(user, password)."
                )
            raise ConfigError(f"The connection option {name!r} is unknown. {hint}")
        read, wanted = _READERS[types[name]]
        text = os.fspath(given) if isinstance(given, os.PathLike) else given
        try:
            values[name] = msgspec.convert(read(text) if isinstance(text, str) else text, types[name])
        except (ValueError, KeyError, msgspec.ValidationError):
            raise ConfigError(f"The connection option {name} wants {wanted}, not {given!r}.") from None
    options = Options(**values)
    _check(options)
    return options


@cache
def _option_types() -> dict[str, Any]:
    return get_type_hints(Options)


def _check(options: Options) -> None:
    ranges: list[tuple[str, float, float]] = [
        ("reconnect_attempts", -1, float("inf")),
        ("connect_wait_s", 0, 1_000_000),
        ("reconnect_delay_s", 0.001, 3600),
        ("reconnect_delay_max_s", options.reconnect_delay_s, 3600),
        ("reconnect_backoff", 1, 10),
        ("reconnect_jitter", 0, 1),
        ("connect_timeout_s", 0.001, 3600),
        ("close_timeout_s", 0, 1_000_000),
        ("prefetch", 0, 1_000_000),
        ("send_window", 1, 1_000_000),
        ("listener_backoff_s", 0, 3600),
    ]
    for name, value in msgspec.structs.asdict(options).items():
        if isinstance(value, str) and not is_unicode(value):
            raise ConfigError(f"The connection option {name} is no Unicode text: {value!r}.")
        if isinstance(value, str) and len(value) > TEXT_CHARACTERS_MAX:
            raise ConfigError(
                f"The connection option {name} has {len(value):,} characters, and more than any broker takes."
            )
    for name, low, high in ranges:
        if not low <= getattr(options, name) <= high:
            raise ConfigError(
                f"The connection option {name} must be from {low:g} to {high:g}, not {getattr(options, name):g}."
            )
    period_s = options.client_failure_check_period_s
    if period_s != -1 and not CHECK_PERIOD_S_MIN <= period_s <= CHECK_PERIOD_S_MAX:
        raise ConfigError(
            f"The connection option client_failure_check_period_s must be from {CHECK_PERIOD_S_MIN:g} to "
            f"{CHECK_PERIOD_S_MAX:g}, or -1 for never, not {period_s:g}."
        )
    attempts = options.connect_attempts
    if attempts is not None and (attempts == 0 or attempts < -1):
        raise ConfigError(f"The connection option connect_attempts must be -1 or at least 1, not {attempts}.")
    if options.listener_error not in (None, "acknowledge", "redeliver"):
        raise ConfigError(
            f"The connection option listener_error is acknowledge or redeliver, not {options.listener_error!r}."
        )
    if options.failover_contract not in FAILOVER_CONTRACTS:
        raise ConfigError(
            f"The connection option failover_contract is {' or '.join(FAILOVER_CONTRACTS)}, "
            f"not {options.failover_contract!r}."
        )


def _check_readable(option: str, file: str | None) -> None:
    if not file:
        return
    try:
        open(file, "rb").close()
    except OSError as error:
        raise ConfigError(f"The connection option {option}: cannot read {file}: {error.strerror}.") from error


def tls_context(options: Options) -> ssl.SSLContext:
    """The TLS settings that the `tls_` options describe.

    Raises:
        ConfigError: a file cannot be read or holds no certificate or key.
    """
    for name in ("tls_ca_file", "tls_cert_file", "tls_key_file"):
        _check_readable(name, getattr(options, name))
    try:
        context = ssl.create_default_context(cafile=options.tls_ca_file)
    except OSError as error:
        raise ConfigError(
            f"The connection option tls_ca_file: {options.tls_ca_file} is no PEM file ({error})."
        ) from error
    if not options.tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.tls_cert_file:
        try:
            context.load_cert_chain(options.tls_cert_file, options.tls_key_file)
        except OSError as error:
            files = " and ".join(filter(None, (options.tls_cert_file, options.tls_key_file)))
            raise ConfigError(
                f"The connection options tls_cert_file, tls_key_file: no certificate with its key in {files} ({error})."
            ) from error
    return context
