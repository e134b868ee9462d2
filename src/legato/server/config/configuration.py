"""Settings of a server: TOML file, environment and flags, validated once.

Later wins: defaults, then the file, then `LEGATO_<SECTION>_<KEY>` (`LEGATO_STORE_MAP_BYTES=...`), then flags.
"""

import importlib.util
import ipaddress
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from legato import limits
from legato.errors import ConfigError
from legato.ha.watch import ACTIVATION_INTERVAL_S_DEFAULT, HEARTBEAT_INTERVAL_S_DEFAULT
from legato.hosts import PORT_MAX, port_of, wrong_host
from legato.server.config.addresses import Addresses
from legato.server.config.bounds import GeneralUserBounds, OriginBounds, SomeUserBounds, TotalBounds
from legato.server.config.discovery import split_address
from legato.server.config.machine_memory import memory_of_machine, share_of_memory
from legato.server.config.origins import Origins
from legato.server.config.secret_files import refuse_readable
from legato.server.config.strictness import TOO_LONG_NUMBER, check_names, refuse_unusable, replace_units, sentence_of

Positive = Annotated[int, msgspec.Meta(gt=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=limits.SECONDS_MAX)]
SecondsOrNone = Annotated[float, msgspec.Meta(ge=0, le=limits.SECONDS_MAX)]
"""0: none, or never, as the setting says."""

HEARTBEAT_S_MIN, ACTIVATION_S_MIN = 0.01, 0.1

Mechanism = Literal["EXTERNAL", "SCRAM-SHA-512", "SCRAM-SHA-256", "XOAUTH2", "PLAIN"]
"""SASL mechanisms besides ANONYMOUS, which `auth.anonymous` switches."""

ENVIRONMENT_PREFIX = "LEGATO_"
_TABLES = ("address", "role")
_SECRETS_OF_THE_LOG = {
    "tls_key": "private key",
    "credentials_file": "private key",
    "password_file": "password",
    "token_file": "token",
}
"""Settings of `[replication]` that name a file with one, and what is in it."""
_LISTS = ("addresses", "mechanisms", "queues")
_NOWHERE = Origins()
SECTIONS = (
    "server",
    "store",
    "auth",
    "tls",
    "ledger",
    "ha",
    "replication",
    "audit",
    "bulk",
    "http",
    "limits",
    "groups",
)


class ServerSection(msgspec.Struct, forbid_unknown_fields=True):
    """`[server]`"""

    listen: str = "localhost:5672"
    container_id: str = ""
    """The broker's AMQP name; made from the host's name and the process if empty."""
    idle_timeout_ms: Annotated[int, msgspec.Meta(gt=0, lt=1 << 32)] = limits.IDLE_TIMEOUT_MS
    max_message_bytes: Positive = limits.MAX_MESSAGE_BYTES_DEFAULT
    max_frame_bytes: Annotated[int, msgspec.Meta(ge=limits.FRAME_BYTES_LEAST, le=limits.FRAME_BYTES_MOST)] = (
        limits.MAX_FRAME_BYTES
    )
    """The largest AMQP frame that peers are allowed to send."""
    handshake_timeout_s: Seconds = limits.HANDSHAKE_TIMEOUT_S
    returns_per_s: Positive = 500
    """Maximum reconnections per second after a crash: clients are asked to spread their return (CONTRACT B23)."""
    reconnect_timeout_s: SecondsOrNone = limits.RECONNECT_TIMEOUT_S
    """Seconds for which the unacknowledged messages, temporary queues and subscriptions of a client that lost its
    connection are reserved for its return; 0: none."""
    log_level: str = "INFO"
    insecure: bool = False
    """Whether the broker may serve strangers: `legato serve --insecure`."""
    log_format: Literal["text", "json"] = "text"
    check_invariants: bool = False
    """Whether to look once a second if memory and store agree, and to stop if they do not: for tests and trials."""


class StoreSection(msgspec.Struct, forbid_unknown_fields=True):
    """`[store]`"""

    directory: str = ""
    map_bytes: Positive = limits.STORE_MAP_BYTES_DEFAULT
    log_facts: bool = True
    """Whether facts are logged for the ledger; off only to measure what that costs."""
    log_bytes: Positive = limits.LOG_BYTES_DEFAULT
    """Bound on the log of facts that no ledger has taken over yet."""
    checkpoint_ms: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = limits.CHECKPOINT_MS_DEFAULT
    """A commit is in the store's file after so long, and until then in its journal; 0: no journal is written."""
    journal_bytes: Annotated[int, msgspec.Meta(ge=1 << 20, le=1 << 30)] = limits.JOURNAL_BYTES_DEFAULT
    """The journal holds no more than this that is not in the store's file: a takeover has to apply it."""
    free_disk_reserve_bytes: Annotated[int, msgspec.Meta(ge=0)] = limits.FREE_DISK_RESERVE_BYTES


class FailedLogins(msgspec.Struct, forbid_unknown_fields=True):
    """`failed_logins` of `[auth]`: see `identity.back_off`."""

    delay_s: Annotated[float, msgspec.Meta(ge=0, le=30)] = 1.0
    most: Positive = 10
    for_s: Seconds = 60.0


class JwtSection(msgspec.Struct, forbid_unknown_fields=True):
    """`[auth.jwt]`: whose tokens are taken; none if there is no issuer."""

    issuer: str = ""
    audience: str = ""
    jwks: str = ""
    """Where its keys are: an address or a file; as its `openid-configuration` says if empty."""
    user_claim: str = "sub"
    roles_claim: str = "roles"
    algorithms: list[str] = msgspec.field(default_factory=lambda: ["RS256", "PS256", "ES256", "ES384", "EdDSA"])
    leeway_s: Annotated[float, msgspec.Meta(ge=0, le=600)] = 10.0
    tls_ca: str = ""
    """Authorities for the addresses above, if they are not among the system's."""


class ExternalRule(msgspec.Struct, forbid_unknown_fields=True):
    """One way from a certificate to a user."""

    take: str
    """`san:email`, `san:dns`, `san:uri`, or `subject:CN` and the like."""
    match: str = "(?s:.*)"
    """A regular expression for the whole of it."""
    user: str = "{0}"
    """The name: `{0}` is what was taken, `{1}` the first group of `match`."""


class AuthSection(msgspec.Struct, forbid_unknown_fields=True):
    """`[auth]`"""

    anonymous: bool | None = None
    """Whether peers may leave out who they are; if None, only while there are no users and the listener is loopback."""
    users: dict[str, str] = {}
    """Names and passwords, for trials: a users file has no passwords in it."""
    users_file: str = ""
    """See `legato user`; `users` in the store's directory, if there is one, if empty."""
    external_user: str | list[ExternalRule] = "subject:CN"
    """Which part of a certificate is the user's name; rules are tried in turn."""
    jwt: JwtSection = msgspec.field(default_factory=JwtSection)
    mechanisms: list[Mechanism] = []
    """The SASL mechanisms that may be offered; all if empty."""
    failed_logins: FailedLogins = msgspec.field(default_factory=FailedLogins)


class TlsSection(msgspec.Struct, forbid_unknown_fields=True):
    """`[tls]`; without a certificate the listener speaks plain TCP."""

    certificate: str = ""
    key: str = ""
    minimum_version: Literal["1.2", "1.3"] = "1.2"
    client_ca: str = ""
    """Authorities whose certificates clients may log in with."""
    client_certificates: Literal["none", "optional", "required"] = "optional"
    """Whether clients show one, where `client_ca` is given."""
    client_crl: str = ""
    """A list of certificates that were revoked."""


class LedgerSection(msgspec.Struct, forbid_unknown_fields=True):
    """`[ledger]`"""

    enabled: bool = True
    directory: str = ""
    """Where segments go; `ledger` inside the store's directory if empty."""
    detail: Literal["durable", "all"] = "durable"
    """Which facts are logged: what is durable, or also each delivery, presentation and release."""


class HighAvailabilitySection(msgspec.Struct, forbid_unknown_fields=True):
    """`[ha]`: primary and backups of one store say the same."""

    heartbeat_interval_s: Seconds = HEARTBEAT_INTERVAL_S_DEFAULT
    """How often the primary tells its backups that it is well."""
    activation_interval_s: Seconds = ACTIVATION_INTERVAL_S_DEFAULT
    """A backup that has heard nothing for so long since the last heartbeat does not rely on the primary any more."""
    self_fencing: bool = False
    """Whether a primary that could not look after its lock for the activation interval steps down when it can again."""
    watchdog_s: SecondsOrNone | None = None
    """A primary whose loop has not turned for so long ends itself; the activation interval if None; 0: never."""
    failover_on_server_shutdown: bool = True
    """Whether a backup takes over from a primary that was told to stop."""
    addresses: list[str] = []
    """Where clients find primary and backups: offered to each that connects."""


class ReplicationSection(msgspec.Struct, forbid_unknown_fields=True):
    """`[replication]`: brokers on several machines, each with a store of its own, kept the same by a replicated log."""

    servers: str = ""
    """The log's servers, `nats://HOST:PORT` with commas between them; without any there is one store and its lock."""
    group: str = "legato"
    """Brokers of one group keep the same messages; each group has a log of its own."""
    advertise: str = ""
    """`HOST:PORT` at which the other brokers of the group know and reach this one; `server.listen` if empty."""
    lease_s: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 0.5
    """For so long after its last record a primary answers; a backup waits a little longer before it takes over."""
    log_bytes: Positive = 1 << 30
    """Bound on the log: a broker that was away for longer than it reaches back needs a copy of another's store."""
    seed_from: str = ""
    """The URL of the group's brokers, with a user who may administer them, or a directory with backups of theirs
    (`legato store backup`): a broker to which the log does not reach back takes a copy there by itself."""
    beside: str = ""
    """The name of the log's server on this broker's machine: it is not to lead the log while this broker is the
    primary, so that the loss of this machine is not the loss of both."""
    replicas: Literal[3, 5] = 3
    """On how many of the servers the log is kept."""
    user: str = ""
    """The user at the log's servers, with `password_file`."""
    password_file: str = ""
    token_file: str = ""
    """A file with a token, instead of a user."""
    credentials_file: str = ""
    """A file with a JWT and its key, instead of a user."""
    tls_ca: str = ""
    """Authorities that sign the certificates of the log's servers, if they are not among the system's."""
    tls_certificate: str = ""
    """This broker's certificate, if the log's servers want one, with `tls_key`."""
    tls_key: str = ""


class AuditSection(msgspec.Struct, forbid_unknown_fields=True):
    """`[audit]`"""

    file: str = ""
    """Where lines of JSON say who did what; none if empty."""
    in_ledger: bool = True
    """Whether management and denials become facts, too, so that Spark can tell who did what."""


BULK_MEMORY_BYTES_LEAST = 4 << 30


class BulkSection(msgspec.Struct, forbid_unknown_fields=True):
    """`[bulk]`: the endpoint by which Spark reads and writes, Arrow Flight."""

    listen: str = ""
    """`HOST:PORT`; without a host the broker's, if empty at any port that is free."""
    stage_bytes_max: Positive = 4 << 30
    """Of the rows that a task writes at once."""
    memory_bytes_max: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Of its process, which ends, and is started anew, when it needs more; half of the machine's if None, but at least
    `BULK_MEMORY_BYTES_LEAST`, which Arrow's allocator takes a part of in advance; 0: any."""


class HttpSection(msgspec.Struct, forbid_unknown_fields=True):
    """`[http]`: `/metrics`, `/livez` and `/readyz`, for whoever can reach the port."""

    listen: str = ""
    """`HOST:PORT`; without a host only this machine can reach it; empty: no endpoint."""
    queues: list[str] = msgspec.field(default_factory=lambda: ["#"])
    """Patterns of queues and subscriptions that have metrics of their own; totals cover all of them anyway."""
    queues_max: Annotated[int, msgspec.Meta(ge=0)] = 100
    """At most so many have, the oldest first: each costs time at every scrape."""
    console: bool = False
    """Whether a process beside this one serves the console."""
    console_listen: str = "localhost:0"
    """`HOST:PORT` of the console; without a host only this machine can reach it; port 0 is any that is free."""


class LimitsSection(msgspec.Struct, forbid_unknown_fields=True):
    """`[limits]`: what peers may take, and the names that they may give."""

    name_bytes: Positive = 255
    """Of addresses, subscriptions, containers, producers and sinks, in UTF-8."""
    names_printable: bool = True
    """Whether names may have printable characters only."""
    memory: str | int = "40%"
    """What connections may hold in memory together: bytes, or a share of the machine's or the control group's; 0: no
    limit."""
    memory_relief_s: Seconds = 10.0
    """Above that for so long, whoever holds most is disconnected."""
    slow_consumer_s: SecondsOrNone = 60.0
    """A consumer that has not settled its oldest delivery for so long, while messages wait, is slow; 0: none is."""
    total: TotalBounds = TotalBounds()
    """Of all peers together."""
    origin: OriginBounds = OriginBounds()
    """Of one address; those of a network `/64` of IPv6 are one."""
    user: GeneralUserBounds = GeneralUserBounds()
    """Of one user who has logged in by a name."""
    users: dict[str, SomeUserBounds] = {}
    """Of users that differ, by name."""
    roles: dict[str, SomeUserBounds] = {}
    """Of roles whose members differ, by name."""


class GroupsSection(msgspec.Struct, forbid_unknown_fields=True):
    """`[groups]`: one group of several, each of which serves a share of the addresses."""

    name: str = ""
    """The group of this broker and of its backups; none if empty."""
    map: str = ""
    """A file with the map of groups, the same for all brokers."""
    map_in_log: bool = False
    """The map is kept by the servers of the replicated log, for all groups whose logs are there, and changed by `legato
    group put`."""


class Config(msgspec.Struct, forbid_unknown_fields=True, dict=True):
    """All settings of one server process."""

    server: ServerSection = msgspec.field(default_factory=ServerSection)
    store: StoreSection = msgspec.field(default_factory=StoreSection)
    auth: AuthSection = msgspec.field(default_factory=AuthSection)
    tls: TlsSection = msgspec.field(default_factory=TlsSection)
    ledger: LedgerSection = msgspec.field(default_factory=LedgerSection)
    ha: HighAvailabilitySection = msgspec.field(default_factory=HighAvailabilitySection)
    replication: ReplicationSection = msgspec.field(default_factory=ReplicationSection)
    audit: AuditSection = msgspec.field(default_factory=AuditSection)
    bulk: BulkSection = msgspec.field(default_factory=BulkSection)
    http: HttpSection = msgspec.field(default_factory=HttpSection)
    limits: LimitsSection = msgspec.field(default_factory=LimitsSection)
    groups: GroupsSection = msgspec.field(default_factory=GroupsSection)
    address: list[dict[str, Any]] = []
    """`[[address]]` tables, as they are written; `Addresses` checks them."""
    role: list[dict[str, Any]] = []
    """`[[role]]` tables, as they are written; `access.roles` checks them."""

    @property
    def origins(self) -> Origins:
        """Where the settings were written."""
        found: Origins = self.__dict__.get("origins", _NOWHERE)
        return found

    @contextmanager
    def locating_errors(self) -> Iterator[None]:
        """Errors about the settings say where these were written."""
        try:
            yield
        except ConfigError as error:
            told = self.origins.located(str(error))
            if told == str(error):
                raise
            raise type(error)(told) from None

    @property
    def group_map_file(self) -> Path | None:
        """The file with the map of groups, or with a copy of the one in the log; None if there is no map."""
        if self.groups.map_in_log:
            return self.store_directory / "groups.json"
        return Path(self.groups.map) if self.groups.map else None

    @property
    def store_directory(self) -> Path:
        return Path(self.store.directory)

    @property
    def ledger_directory(self) -> Path:
        return Path(self.ledger.directory) if self.ledger.directory else self.store_directory / "ledger"

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Host and port to listen on; IPv6 hosts in brackets."""
        host, port = _host_and_port("server.listen", self.server.listen, "localhost:5672", host_needed=True)
        if port == 0:
            raise ConfigError(f"server.listen is {self.server.listen!r}: clients have to know the port. Name one.")
        return host, port

    @property
    def advertised(self) -> str:
        """`HOST:PORT` by which other brokers, and people, know this one."""
        return (self.replication.advertise if self.replication.servers else "") or self.server.listen

    @property
    def bulk_address(self) -> tuple[str, int]:
        """Host and port of the bulk endpoint; port 0 for any that is free."""
        if not self.bulk.listen:
            return self.host_and_port[0], 0
        host, port = _host_and_port("bulk.listen", self.bulk.listen, "localhost:5673")
        return host or self.host_and_port[0], port

    @property
    def bulk_memory_bytes_max(self) -> int:
        """See `BulkSection`."""
        if self.bulk.memory_bytes_max is not None:
            return self.bulk.memory_bytes_max
        return max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2, BULK_MEMORY_BYTES_LEAST)

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Host and port of the HTTP endpoint; None if there is none."""
        if not self.http.listen:
            return None
        host, port = _host_and_port("http.listen", self.http.listen, "localhost:9464")
        return host or "localhost", port

    @property
    def console_address(self) -> tuple[str, int]:
        """Host and port of the console; port 0 for any that is free."""
        host, port = _host_and_port("http.console_listen", self.http.console_listen, "localhost:8080")
        return host or "localhost", port


def _host_and_port(setting: str, value: str, example: str, *, host_needed: bool = False) -> tuple[str, int]:
    host, _, digits = value.rpartition(":")
    port = port_of(digits)
    if port is None or (host_needed and not host):
        raise ConfigError(f"{setting} is {value!r:.255}: give HOST:PORT, such as {example}.")
    if port > PORT_MAX:
        raise ConfigError(f"{setting} is {value!r:.255}: the largest port is {PORT_MAX}.")
    if wrong := wrong_host(host):
        raise ConfigError(f"{setting} is {value!r:.255}: {wrong}.")
    return host.strip("[]"), port


def load(
    file: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    store: Path | None = None,
    listen: str | None = None,
    advertise: str | None = None,
    ledger: bool | None = None,
    container_id: str | None = None,
    users: Sequence[str] | None = None,
    insecure: bool | None = None,
    http: str | None = None,
    replicate: str | None = None,
    group: str | None = None,
) -> Config:
    """Gather the settings of one server.

    Args:
        file: a TOML file with sections as above.
        environment: variables to read, the process's own if None.
        store, listen, advertise, ledger, container_id, users, insecure, http, replicate, group: flags; `users` as
            `name:password`.

    Raises:
        ConfigError: a setting is unknown or cannot be used; the message names it.
    """
    raw, origins = _read(file) if file else ({}, Origins())
    _overlay_environment(raw, os.environ if environment is None else environment, origins)
    for table in _TABLES:
        if isinstance(raw.get(table), dict):
            raise ConfigError(f"{origins.of(table)}: write [[{table}]] in place of [{table}]: there may be several.")
    check_names(raw, Config, origins)
    replace_units(raw, Config, origins)
    for option, place, value in (
        ("--store", "store.directory", None if store is None else str(store)),
        ("--listen", "server.listen", listen),
        ("--advertise", "replication.advertise", advertise),
        ("--ledger", "ledger.enabled", ledger),
        ("--container-id", "server.container_id", container_id),
        ("--insecure", "server.insecure", insecure),
        ("--http", "http.listen", http),
        ("--replicate", "replication.servers", replicate),
        ("--group", "replication.group", group),
    ):
        if value is not None:
            section, _, key = place.partition(".")
            _section(raw, section, origins)[key] = value
            origins.options[place] = option
    for user in users or ():
        name, colon, password = user.partition(":")
        if not colon or not name:
            raise ConfigError("--user takes NAME:PASSWORD.")
        _section(raw, "auth", origins).setdefault("users", {})[name] = password
    refuse_unusable(raw, origins)
    try:
        config = msgspec.convert(raw, Config, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(sentence_of(error, origins, Config)) from None
    config.__dict__["origins"] = origins
    with config.locating_errors():
        _check(config)
        if config.tls.key:
            refuse_readable(Path(config.tls.key), "The private key (tls.key)")
        for name, what in _SECRETS_OF_THE_LOG.items():
            if secret := getattr(config.replication, name):
                refuse_readable(Path(secret), f"The {what} (replication.{name})")
    if file is not None and config.auth.users:
        refuse_readable(file, "There are passwords in auth.users, and the configuration")
    config.__dict__["given"] = msgspec.to_builtins(config)
    return config


def _section(raw: dict[str, Any], name: str, origins: Origins) -> dict[str, Any]:
    section = raw.setdefault(name, {})
    if not isinstance(section, dict):
        raise ConfigError(f"{origins.of(name)}: {name!r} must be a section, [{name}].")
    return section


def _read(file: Path) -> tuple[dict[str, Any], Origins]:
    try:
        text = file.read_text(encoding="utf-8")
        return tomllib.loads(text), Origins(file, text)
    except OSError as error:
        raise ConfigError(f"Cannot read the configuration {file}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}.") from None
    except ValueError:  # Of `int`: all else `tomllib` says as its own error.
        raise ConfigError(f"{file} cannot be read: {TOO_LONG_NUMBER}.") from None
    except RecursionError:
        raise ConfigError(f"{file} cannot be read: its lists or tables are nested too deep.") from None


def _overlay_environment(raw: dict[str, Any], environment: Mapping[str, str], origins: Origins) -> None:
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        section, _, key = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("_")
        if section in SECTIONS and key:
            _section(raw, section, origins)[key] = value.split(",") if key in _LISTS else value
            origins.variables[f"{section}.{key}"] = variable


def _check(config: Config) -> None:
    if not config.store.directory:
        raise ConfigError("No store directory: give --store DIR, or [store] directory in the configuration.")
    if bool(config.tls.certificate) != bool(config.tls.key):
        raise ConfigError("TLS needs both tls.certificate and tls.key.")
    if config.tls.client_ca and not config.tls.certificate:
        raise ConfigError("tls.client_ca needs TLS: tls.certificate and tls.key.")
    if config.tls.client_crl and not config.tls.client_ca:
        raise ConfigError("tls.client_crl needs tls.client_ca.")
    if config.groups.map and config.groups.map_in_log:
        raise ConfigError(
            "The map of groups is in a file, groups.map, or at the log's servers, groups.map_in_log: not both."
        )
    if bool(config.groups.name) != bool(config.groups.map or config.groups.map_in_log):
        raise ConfigError("A broker of a group needs both groups.name and groups.map (or groups.map_in_log).")
    if config.groups.map_in_log and not config.replication.servers:
        raise ConfigError("groups.map_in_log needs a replicated log: replication.servers.")
    if config.groups.name and config.replication.servers and config.replication.group != config.groups.name:
        raise ConfigError(
            f"replication.group is {config.replication.group!r} and groups.name is {config.groups.name!r}: the brokers "
            "of a group share one log, so give both the same name."
        )
    _check_seed_source(config.replication.seed_from)
    memory_mark(config.limits)
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    if config.server.log_level not in levels:
        raise ConfigError(f"server.log_level is {config.server.log_level!r}: give one of {', '.join(levels)}.")
    if config.replication.servers:
        # Heartbeats tell a log that stands still from a primary that is gone: within a lease there is to be one.
        config.ha.heartbeat_interval_s = min(config.ha.heartbeat_interval_s, config.replication.lease_s / 2)
        if not config.store.log_facts:
            raise ConfigError("store.log_facts cannot be off with a replicated log: replicas count by its positions.")
    check_intervals(config.ha.heartbeat_interval_s, config.ha.activation_interval_s)
    _ = config.host_and_port, config.http_address, config.bulk_address, config.console_address
    _check_advertised(config)
    if 0 < config.bulk_memory_bytes_max < BULK_MEMORY_BYTES_LEAST:
        raise ConfigError(f"bulk.memory_bytes_max is {BULK_MEMORY_BYTES_LEAST} or more, or 0 for no bound.")
    for address in config.ha.addresses:
        split_address(address)
    Addresses(config.address)


def _check_advertised(config: Config) -> None:
    """See that the other brokers of a group can know this one by its address, and reach it there."""
    advertised = config.replication.advertise
    if advertised:
        host, port = _host_and_port("replication.advertise", advertised, "one.example:5672", host_needed=True)
        if port == 0 or _is_wildcard(host):
            raise ConfigError(
                f"replication.advertise is {advertised!r}, where nobody can reach this broker: give HOST:PORT, such as "
                "one.example:5672."
            )
    elif config.replication.servers and _is_wildcard(config.host_and_port[0]):
        raise ConfigError(
            f"server.listen is {config.server.listen!r}, all addresses of this machine, and with a replicated log the "
            "other brokers know this one by its address: say it in replication.advertise (--advertise), HOST:PORT, "
            "such as one.example:5672."
        )


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == "0"


def _check_seed_source(source: str) -> None:
    # With most brokers there is none, and the client is not looked for.
    if not source:
        return
    from legato.client.failover.uri import is_uri, parse_uri

    if not is_uri(source):
        return
    try:
        parse_uri(source)
    except ConfigError as error:
        raise ConfigError(f"replication.seed_from: {error}") from None
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError("With a URL replication.seed_from needs pyarrow: pip install 'legato[ledger]'.")


def memory_mark(section: LimitsSection) -> int:
    """The bytes that connections may hold together; 0: no limit.

    Raises:
        ConfigError: the setting is neither bytes nor a percentage.
    """
    try:
        return share_of_memory(section.memory, memory_of_machine())
    except ValueError:
        raise ConfigError(
            f"limits.memory is {section.memory!r}: give bytes, as a number or such as '4 GiB', or a percentage of the "
            "memory, such as '40%'."
        ) from None


def check_intervals(heartbeat_s: float, activation_s: float, lease_s: float | None = None) -> None:
    """See that the two intervals between primary and backups fit (CONTRACT B20).

    Args:
        lease_s: of a replicated log; None if there is none.

    Raises:
        ConfigError: they do not.
    """
    if not (0 < heartbeat_s <= limits.SECONDS_MAX and 0 < activation_s <= limits.SECONDS_MAX):
        raise ConfigError(
            "ha.heartbeat_interval_s and ha.activation_interval_s are seconds, more than 0, and at most "
            f"{limits.SECONDS_MAX}."
        )
    if heartbeat_s < HEARTBEAT_S_MIN or activation_s < ACTIVATION_S_MIN:
        raise ConfigError(
            f"ha.heartbeat_interval_s is at least {HEARTBEAT_S_MIN:g} and ha.activation_interval_s at least "
            f"{ACTIVATION_S_MIN:g}: with less a primary that is well would be given up, or do nothing else."
        )
    if activation_s < 2 * heartbeat_s:
        raise ConfigError(
            f"ha.activation_interval_s is {activation_s:g}: it must be at least twice "
            f"ha.heartbeat_interval_s, which is {heartbeat_s:g}."
        )
    if lease_s is not None and heartbeat_s > lease_s / 2:
        raise ConfigError(
            f"ha.heartbeat_interval_s is {heartbeat_s:g}: with a replicated log it is at most half of "
            f"replication.lease_s, {lease_s / 2:g} s, so that heartbeats tell a log that stands still from a primary "
            "that is gone."
        )
