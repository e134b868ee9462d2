"""Settings of a log on NATS: which servers, with which credentials. Nothing here shows a password."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from legato.errors import ConfigError, LogAccessError
from legato.hosts import wrong_host
from legato.replication.group_names import check_group

PORT = 4222
STREAM_PREFIX = "LEGATO_"
_SCHEMES = {"nats", "tls"}
_USER, _PASSWORD, _TOKEN, _CREDENTIALS = "user", "password", "token", "credentials_file"


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """Where a group's log is, and how to log in.

    Args:
        servers: `nats://host:port` or `tls://host:port`, or `host:port`, of each server; several may be given as one
            text with commas.
        group: the group whose log it is; the stream is named for it.
        user: the user's name, with `password`.
        password: the user's password.
        token: a token, instead of a user.
        credentials_file: a file with a JWT and its key, instead. It is read anew at each connection, so that it can be
            replaced before it expires.
        ca_file: certificates of authorities that sign those of the servers; the system's if it is None.
        certificate_file: this broker's certificate, if the servers want one.
        key_file: the key of it.
        replicas: on how many servers the log is kept: 3 or 5.
        password_file: a file with the password, instead; read anew at each connection, as those below are.
        token_file: a file with a token, instead of a user.
    """

    servers: str
    group: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    credentials_file: Path | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    replicas: int = 3
    password_file: Path | None = None
    token_file: Path | None = None

    def __post_init__(self) -> None:
        """See that all of it can be used.

        Raises:
            ConfigError: something cannot; the message names it.
        """
        check_group(self.group)
        if self.replicas not in (3, 5):
            raise ConfigError(
                f"a log is kept by 3 or 5 servers, not by {self.replicas}: only a majority outvotes a loss"
            )
        if (self.password is not None or self.password_file is not None) and self.user is None:
            raise ConfigError("a password for the log's servers needs a user")
        if sum(each is not None for each in (self.user, self.token, self.token_file, self.credentials_file)) > 1:
            raise ConfigError("for the log's servers give a user, or a token, or a file with credentials: one of them")
        for name, file in (
            ("credentials", self.credentials_file),
            ("the password", self.password_file),
            ("the token", self.token_file),
            ("authorities", self.ca_file),
            ("the certificate", self.certificate_file),
            ("the key", self.key_file),
        ):
            if file is not None and not file.is_file():
                raise ConfigError(f"the file with {name} for the log's servers does not exist: {file}")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ConfigError("a certificate for the log's servers needs its key, and a key its certificate")
        self.addresses()

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return STREAM_PREFIX + self.group

    @property
    def subject(self) -> str:
        """The subject on which records are published."""
        return f"legato.log.{self.group}"

    def secrets(self) -> tuple[str | None, str | None]:
        """The password and the token, as they are in their files now.

        Raises:
            LogAccessError: a file cannot be read.
        """
        return _now(self.password, self.password_file), _now(self.token, self.token_file)

    def addresses(self) -> list[str]:
        """The URLs of the servers.

        Raises:
            ConfigError: there is none, or one cannot be read.
        """
        found = [_address(each.strip()) for each in self.servers.split(",") if each.strip()]
        if not found:
            raise ConfigError("no server of the log is given: nats://host:port of each, with commas between them")
        return found

    def tls(self) -> ssl.SSLContext | None:
        """The context for TLS; None if neither a URL nor a file asks for it.

        Raises:
            ConfigError: a certificate or a key cannot be used.
        """
        files = (self.ca_file, self.certificate_file)
        if not any(files) and not any(url.startswith("tls:") for url in self.addresses()):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(f"the certificates for the log's servers cannot be used: {error}") from error
        return context


def _now(given: str | None, file: Path | None) -> str | None:
    if file is None:
        return given
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no text in UTF-8"
        raise LogAccessError(f"the login at the log's servers cannot be read from {file}: {why}") from None


def _address(text: str) -> str:
    url = text if "://" in text else f"nats://{text}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or PORT
    except ValueError:
        parts, host, port = None, None, 0
    if parts is None or not host or parts.scheme not in _SCHEMES or parts.path not in ("", "/") or parts.query:
        raise ConfigError(
            f"{_without_login(text)!r} is no address of a server of the log: nats://host:port and tls://host:port are"
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"the address {_without_login(text)!r} of the log's server has a login in it, which logs and lists of "
            "processes would show: give it as a user and a password, or as a file with credentials"
        )
    if wrong := wrong_host(host):
        raise ConfigError(f"the address {_without_login(text)!r} of the log's server cannot be used: {wrong}")
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _without_login(text: str) -> str:
    scheme, separator, rest = text.rpartition("://")
    return scheme + separator + rest.rpartition("@")[2]
