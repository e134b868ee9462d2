"""Another reading of the configuration: which of its settings hold at once, and which ones when the broker starts."""

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
_READ_AGAIN_IF = ("groups", "tls")
"""Sections of which that is so if the broker need not become another for it."""
_BESIDE = ("group_map", "origins")
"""What a configuration has beside its settings, and goes with them."""


def reloaded(config: Config, read: Config) -> Config:
    """The settings that hold after a reload.

    Args:
        config: what held until now.
        read: what was read again.
    """
    found = msgspec.structs.replace(config, **{section: getattr(read, section) for section in _READ_AGAIN})
    beside = {name: read.__dict__[name] for name in _BESIDE if name in read.__dict__}
    if config.tls.certificate and read.tls.certificate:
        found.tls = read.tls
    if config.groups.map_in_log == read.groups.map_in_log and config.groups.name == read.groups.name:
        found.groups = read.groups
    else:
        beside.pop("group_map", None)
    found.__dict__.update(beside)
    return found


def take(config: Config, found: Config) -> list[str]:
    """Have the settings of `reloaded` in place, where many look at them.

    Returns:
        The sections that are others than before.
    """
    config.__dict__.update({name: found.__dict__[name] for name in _BESIDE if name in found.__dict__})
    changed = [
        section for section in (*_READ_AGAIN, *_READ_AGAIN_IF) if getattr(config, section) != getattr(found, section)
    ]
    for section in changed:
        setattr(config, section, getattr(found, section))
    return changed


def tell_restart(started: dict[str, Any], now: Config) -> list[str]:
    """The settings, as `section.key`, that differ and hold only when the broker starts again; the log is told, too.

    Args:
        started: what the broker began with, of `given`.
        now: what was read again.
    """
    with_tls = bool(started["tls"]["certificate"]) and bool(now.tls.certificate)
    of_file = not started["groups"]["map_in_log"] and not now.groups.map_in_log
    places = [
        place
        for place in _differing(started, given(now))
        if not (with_tls and place.startswith("tls.")) and not (of_file and place == "groups.map")
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
