"""The map of groups: which there are, where their brokers are, which addresses are pinned to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from legato.address_patterns import matches, mixed_word, specificity
from legato.errors import ConfigError
from legato.groups.rendezvous import Candidate, winner
from legato.hosts import wrong_host

FORMAT = 1
GROUPS_MAX = 4096
PINS_MAX = 10_000
BROKERS_MAX = 16
"""Of a group."""
ENCODED_BYTES_MAX = 900 << 10
"""Below the mebibyte that a key-value store such as NATS' takes as one value."""
REVISION_MAX = (1 << 53) - 1
ADDRESSES_CACHED_MAX = 10_000

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?")
_PORT_MAX = 65_535
_PIN_BYTES_MAX = 1024


class LaterFormatError(ConfigError):
    """A later version of Legato wrote the map."""


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A primary and its backups, which serve a share of the addresses from one store."""

    name: str
    """Also the hostname that a client opens a connection with to reach it."""
    brokers: tuple[str, ...]
    """`HOST:PORT` of each of its brokers, as clients reach them."""
    weight: float = 1.0
    """Its share of the addresses that are not pinned, over the sum of all weights."""


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Addresses that a group has whatever the hash says."""

    match: str
    """A pattern: `*` is any one word between dots, `#` any number of words."""
    group: str


class GroupMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All groups, at one revision. A later map has a higher revision."""

    revision: Annotated[int, msgspec.Meta(ge=1, le=REVISION_MAX)]
    group: tuple[Group, ...]
    pin: tuple[Pin, ...] = ()
    format: int = FORMAT

    def find(self, name: str) -> Group | None:
        """The group of a name, None if there is none."""
        return next((each for each in self.group if each.name == name), None)

    def encode(self) -> bytes:
        """The map as bytes, for a key-value store."""
        return msgspec.json.encode(self)


def decode(data: bytes) -> GroupMap:
    """A map of its bytes.

    Raises:
        ConfigError: they are too many, or no map that can be used.
    """
    if len(data) > ENCODED_BYTES_MAX:
        raise ConfigError(f"A map of groups has at most {ENCODED_BYTES_MAX:,} bytes, not {len(data):,}.")
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The map of groups cannot be read: {error}.") from None
    except RecursionError:
        raise ConfigError("The map of groups cannot be read: it is nested too deep.") from None
    return from_tables(raw)


def from_tables(raw: object) -> GroupMap:
    """A map of the tables of a TOML file: `revision`, `[[group]]` and `[[pin]]`.

    Raises:
        ConfigError: it cannot be used; the message says which part, and what is accepted.
    """
    if isinstance(raw, Mapping) and raw.get("format", FORMAT) != FORMAT:
        raise LaterFormatError(
            f"The map of groups has format {raw['format']!r}; this version of Legato reads format {FORMAT}. "
            "Update Legato on this machine first."
        )
    try:
        found = msgspec.convert(raw, GroupMap, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"The map of groups: {error}.") from None
    _check(found)
    return found


def _check(found: GroupMap) -> None:
    if not 1 <= len(found.group) <= GROUPS_MAX:
        raise ConfigError(f"A map of groups has from 1 to {GROUPS_MAX:,} groups, [[group]], not {len(found.group):,}.")
    if len(found.pin) > PINS_MAX:
        raise ConfigError(f"A map of groups has at most {PINS_MAX:,} pins, [[pin]], not {len(found.pin):,}.")
    names: set[str] = set()
    owners: dict[str, str] = {}
    for group in found.group:
        _check_group(group)
        if group.name in names:
            raise ConfigError(f"The map of groups has two groups {group.name!r}.")
        names.add(group.name)
        for broker in group.brokers:
            other = owners.setdefault(broker.lower(), group.name)
            if other != group.name:
                raise ConfigError(f"The broker {broker} is in two groups, {other!r} and {group.name!r}.")
    matched: set[str] = set()
    for pin in found.pin:
        _check_pin(pin, names)
        if pin.match in matched:
            raise ConfigError(f"The map of groups pins {pin.match!r} twice.")
        matched.add(pin.match)
    if (size := len(found.encode())) > ENCODED_BYTES_MAX:
        raise ConfigError(f"A map of groups has at most {ENCODED_BYTES_MAX:,} bytes, not {size:,}: use fewer pins.")


def _check_group(group: Group) -> None:
    if not _NAME.fullmatch(group.name) or group.name == "localhost":
        raise ConfigError(
            f"{group.name[:80]!r} cannot be the name of a group: give up to 48 lower-case letters, digits and hyphens; "
            "not localhost, which is what clients of any broker ask for."
        )
    if not 1 <= len(group.brokers) <= BROKERS_MAX:
        raise ConfigError(f"The group {group.name!r} has {len(group.brokers)} brokers: give 1 to {BROKERS_MAX}.")
    for broker in group.brokers:
        host_and_port(broker)
    # Neither infinity nor what is no number.
    if not 0.001 <= group.weight <= 1000:
        raise ConfigError(f"The weight of the group {group.name!r} is {group.weight:g}: give 0.001 to 1000.")


def _check_pin(pin: Pin, names: set[str]) -> None:
    if pin.group not in names:
        raise ConfigError(f"{pin.match[:80]!r} is pinned to {pin.group[:80]!r}, and there is no such group.")
    if not pin.match or len(pin.match.encode("utf-8", "surrogatepass")) > _PIN_BYTES_MAX:
        raise ConfigError(f"A pin needs match = 'a.pattern' of at most {_PIN_BYTES_MAX:,} bytes.")
    if wrong := mixed_word(pin.match.split(".")):
        raise ConfigError(
            f"The pin {pin.match!r}: {wrong!r} mixes a wildcard and text; "
            "'*' stands for one whole word, '#' for any number of them."
        )


def host_and_port(broker: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; IPv6 hosts in brackets.

    Raises:
        ConfigError: it is not of that form.
    """
    host, colon, port = broker.rpartition(":")
    if not colon or not host or len(host) > 255 or not (port.isascii() and port.isdecimal() and len(port) <= 5):
        raise ConfigError(f"The broker {broker[:80]!r} of a group is not HOST:PORT, such as one.example:5672.")
    if not 0 < int(port) <= _PORT_MAX:
        raise ConfigError(f"The broker {broker!r} of a group has no port from 1 to {_PORT_MAX}.")
    if wrong := wrong_host(host):
        raise ConfigError(f"The broker {broker[:80]!r} of a group: {wrong}.")
    return host.strip("[]"), int(port)


class Directory:
    """Finds the group of an address by a map.

    1. The most specific pin that matches decides; of equal ones the later in the map.
    2. Where none matches, the groups are candidates in rendezvous hashing, with their weights.
    """

    def __init__(self, group_map: GroupMap) -> None:
        self.map = group_map
        self._groups = {group.name: group for group in group_map.group}
        self._candidates = [Candidate(group.name, group.weight) for group in group_map.group]
        # Those without wildcards are looked up: of them there are most.
        self._exact = {pin.match: pin.group for pin in group_map.pin if not _is_pattern(pin.match)}
        patterns = ((pin.match.split("."), pin.group) for pin in group_map.pin if _is_pattern(pin.match))
        self._patterns = sorted(patterns, key=lambda each: specificity(each[0]))
        self._cache: dict[str, Group] = {}

    def group_of(self, address: str) -> Group:
        """The group that serves an address, given by its plain name."""
        found = self._cache.get(address)
        if found is None:
            if len(self._cache) >= ADDRESSES_CACHED_MAX:
                self._cache.clear()
            found = self._cache[address] = self._groups[self._name_of(address)]
        return found

    def _name_of(self, address: str) -> str:
        pinned = self.pinned_to(address)
        return winner(address, self._candidates).name if pinned is None else pinned

    def pinned_to(self, address: str) -> str | None:
        """The name of the group to which the address is pinned, None if the hash decides."""
        exact = self._exact.get(address)
        if exact is not None:
            return exact
        words = address.split(".")
        return next((group for pattern, group in reversed(self._patterns) if matches(pattern, words)), None)


def _is_pattern(match: str) -> bool:
    return not {"*", "#"}.isdisjoint(match.split("."))


def successor(current: GroupMap, new: GroupMap) -> GroupMap:
    """The map to go by after `new` was found: it has a higher revision, or is the one that is there.

    Raises:
        ConfigError: it is an older one, or another one under the same revision.
    """
    if new.revision < current.revision:
        raise ConfigError(
            f"The map of groups has revision {new.revision}, and there is a later one, {current.revision}: make the "
            f"change in that one, and give it revision {current.revision + 1}."
        )
    if new.revision == current.revision and new != current:
        raise ConfigError(
            f"The map of groups has changed, and its revision is still {new.revision}: give it the next one, so that "
            "brokers know which of two maps is the later."
        )
    return new


def describe(group_map: GroupMap) -> dict[str, Any]:
    """The map for a program: what `encode` writes, as objects."""
    built: dict[str, Any] = msgspec.to_builtins(group_map)
    return built
