"""Membership of a broker in a group: which addresses it serves, and who serves the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from legato.amqp import names
from legato.amqp.codec.types import UInt
from legato.core.settings import DEFAULT_SETTINGS
from legato.groups.dead_letters import origin_of
from legato.groups.group_map import Directory, Group, GroupMap, host_and_port, successor
from legato.ids import group_digest, txn_epoch, txn_group
from legato.server.config.discovery import FAILOVER_SERVER_LIST, server_list
from legato.server.config.group_maps import check_member
from legato.server.links.refused import Refused


class Elsewhere(Refused):
    """Refusal of an address that another group serves; `info` says where, as AMQP 2.8.17 has it."""

    def __init__(self, description: str, info: dict[str, Any]) -> None:
        super().__init__(names.LINK_REDIRECT, description)
        self.info = info


class Membership:
    """The group that a broker belongs to, by the map of groups.

    Args:
        name: of the group; without one the broker serves all addresses.
        group_map: which groups there are.
        secure: whether brokers speak TLS: all groups' do, or none's.
        dead_letter_queues: what settings say of the names of dead-letter queues, which are where their queues are.

    Attributes:
        trouble: why the broker does not go by the map that there is now; empty if it does.

    Raises:
        ConfigError: there is no such group in the map.
    """

    def __init__(
        self,
        name: str,
        group_map: GroupMap | None,
        *,
        secure: bool,
        dead_letter_queues: Callable[[], Iterable[str]] = lambda: (),
    ) -> None:
        self.name = name
        self.trouble = ""
        self._secure = secure
        self._dead_letter_queues = dead_letter_queues
        self._directory: Directory | None = None
        self._turns: dict[str, int] = {}
        """By group, how many were sent there: each is told its brokers in another order."""
        if group_map is not None:
            check_member(name, group_map)
            self._directory = Directory(group_map)

    @property
    def map(self) -> GroupMap | None:
        """The map that it goes by; None if it is in no group."""
        return None if self._directory is None else self._directory.map

    def replace(self, group_map: GroupMap) -> bool:
        """From now on another map holds; whether it is another one.

        Raises:
            ConfigError: it is an older one, or does not have this group.
        """
        former = self.map
        check_member(self.name, group_map)
        if former is not None:
            group_map = successor(former, group_map)
        self._directory = Directory(group_map)
        return former != group_map

    def demand(self, address: str) -> None:
        """See that this group serves an address, given by its plain name.

        Raises:
            Elsewhere: another one does.
        """
        group = self.owner_of(address)
        if group is not None and group.name != self.name:
            raise self._elsewhere(address, group)

    def demand_temporary(self, address: str) -> None:
        """See that a temporary destination that is not here is not another group's: its name says whose it is.

        Raises:
            Elsewhere: it is.
        """
        name, slash, _ = address.partition("://")[2].partition("/")
        group = self._directory.map.find(name) if self._directory is not None and slash else None
        if group is not None and group.name != self.name:
            raise self._elsewhere(address, group)

    def temporary_prefix(self, prefix: str) -> str:
        """What new names of temporary destinations begin with, so that any group can tell whose they are."""
        return prefix if self._directory is None else f"{prefix}{self.name}/"

    def whereabouts(self, addresses: Iterable[str], done: Callable[[dict[str, Any]], None]) -> Iterator[None]:
        """Find out whose addresses are, one in each step.

        Args:
            done: is told the names of this group and of all, both empty if there are none, and by address whose those
                of others are.
        """
        group_map = self.map
        elsewhere: dict[str, str] = {}
        for address in addresses:
            owner = self.owner_of(address)
            if owner is not None and owner.name != self.name:
                elsewhere[address] = owner.name
            yield
        groups = [] if group_map is None else [each.name for each in group_map.group]
        done({"name": self.name, "groups": groups, "elsewhere": elsewhere})

    def _elsewhere(self, address: str, group: Group) -> Elsewhere:
        return Elsewhere(
            f"{address!r} is an address of the group {group.name!r}, which other brokers serve: "
            f"{', '.join(group.brokers)}.",
            self._where(group) | {"address": address},
        )

    def owner_of(self, address: str) -> Group | None:
        """The group that serves an address; None if this broker does, whatever the map says."""
        if self._directory is None or address.startswith("$"):
            return None
        origin = self._origin_of(address)
        return None if origin is None else self._directory.group_of(origin)

    def _origin_of(self, address: str) -> str | None:
        return origin_of(address, {DEFAULT_SETTINGS.dead_letter_queue, *self._dead_letter_queues()})

    def redirection(self, hostname: str | None) -> tuple[str, dict[str, Any]] | None:
        """Why and where to send who opens a connection under that name; None if it is served here."""
        if self._directory is None or not hostname:
            return None
        asked = self._directory.map.find(hostname.lower())
        if asked is None or asked.name == self.name:
            return None
        return f"The group {asked.name!r} is served by {', '.join(asked.brokers)}.", self._where(asked)

    def whose(self, txn_id: bytes) -> tuple[tuple[str, str], ...]:
        """The group that made the id of a transaction, and its brokers; nothing if that is this one, or not known."""
        digest = txn_group(txn_id) if self._directory is not None and txn_epoch(txn_id) is not None else b""
        if self._directory is None or not digest or digest == group_digest(self.name):
            return ()
        for group in self._directory.map.group:
            if group_digest(group.name) == digest:
                return ("hostname", group.name), (names.BROKERS, ",".join(self._in_turn(group)))
        return ()

    def _in_turn(self, group: Group) -> list[str]:
        """The brokers of a group, another one first each time."""
        turn = self._turns[group.name] = self._turns.get(group.name, -1) + 1
        first = turn % len(group.brokers)
        return [*group.brokers[first:], *group.brokers[:first]]

    def _where(self, group: Group) -> dict[str, Any]:
        """`hostname`, `network-host` and `port`, in which each broker has its turn, and the list of all of them."""
        brokers = self._in_turn(group)
        host, port = host_and_port(brokers[0])
        return {
            "hostname": group.name,
            "network-host": host,
            "port": UInt(port),
            "scheme": "amqps" if self._secure else "amqp",
            FAILOVER_SERVER_LIST: server_list(brokers, secure=self._secure),
        }

    def describe(self, stranded: Mapping[str, str], *, all_looked_at: bool) -> dict[str, Any] | None:
        """The group for a status; None if there is none.

        Args:
            stranded: queues that are here and another group's by the map, with the name of that group.
            all_looked_at: whether there are no others that may be.
        """
        if self._directory is None:
            return None
        group_map = self._directory.map
        return {
            "name": self.name,
            "revision": group_map.revision,
            "groups": len(group_map.group),
            "stranded": dict(stranded),
            "all_looked_at": all_looked_at,
            "trouble": self.trouble,
        }
