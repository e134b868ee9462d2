"""Settings that a broker takes over only when it starts: which of them another reading of the configuration changed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from legato.quoting import sentence
from legato.server.config.configuration import Config

log = logging.getLogger("legato.config")

_READ_AGAIN = ("address", "auth", "limits", "role")
"""Tables and sections that hold from a reload on."""
_CERTIFICATES = ("certificate", "key", "client_ca", "client_crl", "client_certificates", "minimum_version")
"""Of `[tls]`, which hold from a reload on where there was TLS before, and is."""


def renew(config: Config, now: Config) -> None:
    """Let hold from now on what a reload takes over of `now`."""
    for name in _READ_AGAIN:
        setattr(config, name, getattr(now, name))
    if config.tls.certificate and now.tls.certificate:
        config.tls = now.tls


def tell_restart(started: dict[str, Any], now: Config) -> list[str]:
    """The settings, as `section.key`, that differ and hold only when the broker starts again; the log is told, too.

    Args:
        started: what the broker began with, of `given`.
        now: what was read again.
    """
    read = given(now)
    with_tls = bool(started["tls"]["certificate"]) and bool(now.tls.certificate)
    places = [
        place
        for place in _differing(started, read)
        if not (with_tls and place.startswith("tls.") and place.removeprefix("tls.") in _CERTIFICATES)
    ]
    if places:
        log.warning("! changed, and in effect when this broker is started again: %s", sentence(", ".join(places)))
    return places


def given(config: Config) -> dict[str, Any]:
    """The settings as they were read: a broker changes those that it is told later in place."""
    found: dict[str, Any] = config.__dict__.setdefault("given", msgspec.to_builtins(config))
    return found


def _differing(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for section, settings in after.items():
        if section not in _READ_AGAIN:
            for key, value in settings.items():
                if before[section][key] != value:
                    yield f"{section}.{key}"
