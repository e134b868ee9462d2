"""Exposure: whether anonymous peers are let in, and with which settings a broker would be open to strangers."""

from __future__ import annotations

import socket

from legato.errors import ConfigError
from legato.server.config.configuration import Config
from legato.server.identity.certificates import takes_certificates
from legato.server.identity.origin import is_loopback
from legato.server.identity.users import Users


def listens_beyond_loopback(config: Config) -> bool:
    """Whether other machines can reach the listener, or the bulk endpoint."""
    return _is_beyond_loopback(config.host_and_port[0]) or _is_beyond_loopback(config.bulk_address[0])


def _is_beyond_loopback(host: str) -> bool:
    if is_loopback(host):
        return False
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return True
    return not all(is_loopback(str(address[0])) for *_, address in found)


def has_logins(config: Config, users: Users) -> bool:
    """Whether there is a way to log in."""
    return bool(users) or users.file is not None or takes_certificates(config) or bool(config.auth.jwt.issuer)


def admits_anonymous(config: Config, users: Users) -> bool:
    """Whether peers may leave out who they are."""
    if config.auth.anonymous is not None:
        return config.auth.anonymous
    return not has_logins(config, users) and (config.server.insecure or not listens_beyond_loopback(config))


def check_exposure(config: Config, users: Users) -> list[str]:
    """See that a broker with these settings is not open to strangers, unless it was said that it may be.

    Returns:
        What it is open to, in sentences for the log.

    Raises:
        ConfigError: it would be open, or nobody could log in; the message has the remedy.
    """
    logins = has_logins(config, users)
    if config.auth.anonymous is False and not logins:
        raise ConfigError(
            "Nobody could connect: auth.anonymous is off and auth.users is empty, and there is no users file: "
            "make one with legato user add NAME --store DIR."
        )
    found = []
    beyond = listens_beyond_loopback(config)
    where = f"server.listen is {config.server.listen}, which other machines can reach"
    if beyond and not _is_beyond_loopback(config.host_and_port[0]):
        where = f"bulk.listen is {config.bulk.listen}, which other machines can reach"
    if beyond and not logins:
        found.append(f"{where}, and there are no users: make one with legato user add NAME --store DIR")
    if beyond and not config.tls.certificate:
        found.append(f"{where}, and there is no TLS: set tls.certificate and tls.key")
    if config.http.console and _is_beyond_loopback(config.console_address[0]) and not config.tls.certificate:
        found.append(
            f"http.console_listen is {config.http.console_listen}, which other machines can reach, and there is no "
            "TLS: set tls.certificate and tls.key"
        )
    if config.auth.anonymous and (logins or beyond):
        found.append(
            "auth.anonymous is true, and so whoever connects needs no password"
            + (": leave it out, as there are users" if logins else "")
        )
    if found and not config.server.insecure:
        raise ConfigError(
            f"The broker would be open to strangers: {'; '.join(found)}. "
            "Or say that this is meant: legato serve --insecure."
        )
    return found


def find_lockouts(config: Config, users: Users) -> list[str]:
    """What keeps everybody out, in sentences for the log: it may be meant, as between two users."""
    others = takes_certificates(config) or config.auth.jwt.issuer or config.auth.anonymous
    return [] if users or users.file is None or others else [f"nobody can log in: {users.file} has no users"]


def find_views(config: Config) -> list[str]:
    """What whoever reaches a port may look at without a login, in sentences for the log."""
    if config.http_address is None or not _is_beyond_loopback(config.http_address[0]):
        return []
    return [
        f"http.listen is {config.http.listen}: whoever reaches it sees names and figures of queues, without a login"
    ]
