"""Usability of a configuration: all that is found out before anything of it takes effect."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from legato.errors import ConfigError
from legato.server.access.roles import check_roles, read_roles
from legato.server.config.configuration import Config
from legato.server.config.group_maps import known_group_map, read_group_map, refuse_older
from legato.server.config.restart import reloaded
from legato.server.identity.audit_trail import check_audit_file
from legato.server.identity.certificate_expiry import expiry_warnings
from legato.server.identity.certificates import check_rules, tls_context
from legato.server.identity.exposure import check_exposure, find_lockouts, find_views
from legato.server.identity.tokens import Tokens
from legato.server.identity.users import Users
from legato.server.storage.ledger_process import LedgerProcess

log = logging.getLogger("legato.config")

_EXPOSED = ("server", "bulk", "http", "tls")
"""Sections that say to whom a broker is open, besides `[auth]`."""


def see_usable(config: Config, users: Users, former: Config | None = None) -> list[str]:
    """See that a broker can serve with these settings, and may.

    Args:
        former: what held until now.

    Returns:
        What the log is to say at each start.

    Raises:
        ConfigError: it cannot, or may not; the message says why.
    """
    with config.locating_errors():
        return _see_usable(config, users, former)


class Reading(NamedTuple):
    """Another reading of the configuration."""

    read: Config
    config: Config
    """The settings that hold from then on; see `take`."""
    users: Users
    tls: ssl.SSLContext | None
    """None if that stays as it is."""


def read_again(config: Config, read_config: Callable[[], Config], users: Users) -> Reading:
    """Read the configuration again; nothing of it has taken effect.

    Args:
        config: the settings that held until now.
        users: who they were until now.

    Raises:
        ConfigError: it cannot be used.
    """
    try:
        read = read_config()
        found, users = renewed(config, read, users)
        return Reading(read, found, users, tls_context(found.tls) if found.tls is read.tls else None)
    except ConfigError:
        raise
    except Exception as error:
        # Files may have anything in them. Whoever asked is to have an answer, and a backup is there to take over.
        log.exception("! the configuration cannot be read")
        raise ConfigError("The configuration cannot be read; the broker's log says why.") from error


def renewed(config: Config, read: Config, users: Users) -> tuple[Config, Users]:
    """The settings and the users that hold from another reading of the configuration on; see `take`.

    Args:
        config: the settings that held until now.
        read: what was read.
        users: who they were until now.

    Raises:
        ConfigError: they cannot be used.
    """
    if config.origins.is_in_file and not read.origins.is_in_file:
        # An editor empties a file before it writes it, and a pipe gives what is in it once.
        raise ConfigError(f"{config.origins.file} is empty: put it back, or start the broker anew without it.")
    users = users.renewed(reloaded(config, read))
    see_usable(read, users, config)
    found = reloaded(config, read)  # With the map of groups, which has been read now.
    if read.groups.name != config.groups.name:
        raise ConfigError(
            f"groups.name was {config.groups.name!r} and is {read.groups.name!r}: "
            "a broker changes its group only when it starts."
        )
    if (group_map := known_group_map(read)) is not None:
        refuse_older(known_group_map(config), group_map)
    # Where it listens, say, is as it was: what would be safe there need not be here.
    if any(getattr(found, section) != getattr(read, section) for section in _EXPOSED):
        try:
            check_exposure(found, users)
        except ConfigError as error:
            raise ConfigError(f"Other settings hold until this broker is started again, and so: {error}") from None
    return found, users


def _see_usable(config: Config, users: Users, former: Config | None) -> list[str]:
    if former is not None and former.role and not config.role:
        # An editor empties a file before it writes it: that must not let everybody do everything.
        raise ConfigError(
            "The configuration has no [[role]] any more, and so whoever is let in could do everything: "
            "put the roles back, or start the broker anew without them."
        )
    wants_ledger = config.ledger.enabled and config.origins.is_given("ledger.enabled")
    if former is None and wants_ledger and not LedgerProcess.available():
        raise ConfigError(
            "ledger.enabled needs pyarrow, which is not installed: pip install 'legato[ledger]', or leave it out."
        )
    tls_context(config.tls)
    read_group_map(config)
    if config.audit.file:
        check_audit_file(Path(config.audit.file))
    check_rules(config.auth.external_user)
    if config.auth.jwt.issuer:
        Tokens(config.auth.jwt)
    exposed = [f"insecure, as was asked for: {opening}" for opening in check_exposure(config, users)]
    exposed += find_views(config) + expiry_warnings(config.tls.certificate)
    return exposed + find_lockouts(config, users) + check_roles(read_roles(config.role), users)
