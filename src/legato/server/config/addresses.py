"""Address settings by pattern: tables with wildcards, of which the more specific wins."""

from __future__ import annotations

from collections.abc import Sequence
from string import Formatter
from typing import Any

import msgspec

from legato.address_patterns import matches, mixed_word, specificity
from legato.core.address_prefixes import UNFIT_PREFIXES
from legato.core.settings import DEFAULT_SETTINGS, AddressSettings
from legato.errors import ConfigError
from legato.server.config.strictness import problem_of
from legato.server.config.units import with_unit

SETTINGS_CACHED_MAX = 10_000
"""Addresses whose settings are remembered; names of temporary destinations come and go without end."""

POLICIES: dict[str, dict[str, Any]] = {
    # Redelivery as ActiveMQ's client does it: 1 delivery and 6 more, a second apart, nothing past them (CONTRACT D15).
    "activemq": {"maximum_deliveries": 7, "redelivery_delay_s": 1.0, "redelivery_blocking": "consumer"},
}
"""Ready-made settings that a table can name with `policy`; what the table itself says wins over them."""

_NO_TABLE_KEYS = ("match", "policy")
_NAMES = ("dead_letter_queue", "expiry_queue")


class Addresses:
    """The settings of every address; `replace` changes them while the broker runs.

    1. A pattern's words are separated by dots; `*` is any one word, `#` any number of words, none included.
    2. All tables that match an address hold for it; of two that set the same field the more specific one wins.
    3. A pattern is more specific than another if, at the first word where they differ, a plain word stands against a
       wildcard, or `*` against `#`; of equal ones the later table wins.

    Args:
        tables: the `[[address]]` tables of a configuration.

    Raises:
        ConfigError: a table cannot be used; the message names the table and the setting.
    """

    def __init__(self, tables: Sequence[dict[str, Any]] = ()) -> None:
        self._tables = _checked(tables)
        self._cache: dict[str, AddressSettings] = {}

    def settings(self, address: str) -> AddressSettings:
        """Settings of an address, given by its plain name."""
        found = self._cache.get(address)
        if found is None:
            if len(self._cache) >= SETTINGS_CACHED_MAX:
                self._cache.clear()
            found = self._cache[address] = self._look_up(address)
        return found

    def dead_letter_queues(self) -> set[str]:
        """The names of dead-letter queues that tables give, as patterns with `{address}`."""
        return {table["dead_letter_queue"] for _, table in self._tables if table.get("dead_letter_queue")}

    def transaction_timeout_s(self) -> float:
        """The shortest `transaction_timeout_s` that tables give; 0 if none does."""
        given = [table["transaction_timeout_s"] for _, table in self._tables if table.get("transaction_timeout_s")]
        return min(given, default=0.0)

    def replace(self, other: Addresses) -> None:
        """From now on the tables of `other` hold."""
        self._tables = other._tables
        self._cache.clear()

    def _look_up(self, address: str) -> AddressSettings:
        words = address.split(".")
        fields: dict[str, Any] = {}
        for pattern, table in self._tables:
            if matches(pattern, words):
                fields |= table
        return msgspec.structs.replace(DEFAULT_SETTINGS, **fields) if fields else DEFAULT_SETTINGS


def _checked(tables: Sequence[dict[str, Any]]) -> list[tuple[list[str], dict[str, Any]]]:
    """The tables as patterns and fields, the least specific first."""
    if not isinstance(tables, (list, tuple)):
        raise ConfigError("addresses are tables of their own: [[address]] with match = 'orders.#'.")
    checked = []
    for number, table in enumerate(tables, 1):
        if not isinstance(table, dict):
            raise ConfigError("addresses are tables of their own: [[address]] with match = 'orders.#'.")
        match = table.get("match")
        if not isinstance(match, str) or not match:
            raise ConfigError(f"the [[address]] number {number} needs match = 'a.pattern'.")
        pattern = match.split(".")
        wrong = mixed_word(pattern)
        if wrong is not None:
            raise ConfigError(
                f"the [[address]] {match!r}: {wrong!r} mixes a wildcard and text; "
                "'*' stands for one whole word, '#' for any number of them."
            )
        checked.append((pattern, _fields(match, table)))
    return sorted(checked, key=lambda entry: specificity(entry[0]))


def _fields(match: str, table: dict[str, Any]) -> dict[str, Any]:
    policy = table.get("policy")
    if policy is not None and (not isinstance(policy, str) or policy not in POLICIES):
        raise ConfigError(
            f"the [[address]] {match!r}: policy is {policy!r}; there is {', '.join(map(repr, POLICIES))}."
        )
    own = {key: value for key, value in table.items() if key not in _NO_TABLE_KEYS}
    given = POLICIES[policy] | own if policy else own
    settings: dict[str, Any] = {}
    for key, value in given.items():
        try:
            value = with_unit(key, value)
        except ValueError as error:
            raise ConfigError(f"the [[address]] {match!r}: {key} is {value!r:.255}: {error}.") from None
        try:
            settings[key] = getattr(msgspec.convert({key: value}, AddressSettings, strict=False), key)
        except msgspec.ValidationError as error:
            problem = problem_of(error, key, value, AddressSettings)
            raise ConfigError(f"the [[address]] {match!r}: {problem}") from None
        if key in _NAMES and (problem := _unfitness(settings[key])):
            raise ConfigError(f"the [[address]] {match!r}: {key} is {value!r}: {problem}.")
    return settings


def _unfitness(pattern: str) -> str:
    """Why a name of a queue cannot be made by that pattern, or is the broker's own; empty if it can be used."""
    try:
        parts = list(Formatter().parse(pattern))
    except ValueError:
        parts = [("", "", "", None)]
    if any(
        field is not None and (field, spec, conversion) != ("address", "", None) for _, field, spec, conversion in parts
    ):
        return "the only thing in braces is {address}"
    if pattern.startswith(UNFIT_PREFIXES):
        return "no queue has a name that begins so"
    return ""
