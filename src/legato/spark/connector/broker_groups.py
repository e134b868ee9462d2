"""Groups of brokers over which a query's addresses are spread: each address is asked for at the group that has it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from legato.client.failover.uri import parse_uri
from legato.client.management import url_of_group
from legato.spark.connector.requests import Requests

_ADDRESSES_MAX = 1000
"""Of one request."""


class BrokerGroups:
    """Requests to the groups of brokers that a query needs.

    Who names a group in the URL (`vhost`) has that group alone, as everywhere.

    Args:
        url: of any broker.
        make: makes the requests to the brokers of a URL.
    """

    def __init__(self, url: str, make: Callable[[str], Requests]) -> None:
        self._url = url
        self._make = make
        self._is_bound = bool(parse_uri(url).options.vhost)
        self._by_group: dict[str, Requests] = {}
        self._elsewhere: dict[str, str] = {}
        self._located: set[str] = set()
        self._own = ""
        self._names: list[str] = []
        """Of the group of the URL and of all, once they were asked for."""

    def locate(self, addresses: Iterable[str]) -> None:
        """Ask whose these addresses are, of which that is not known."""
        unknown = [address for address in dict.fromkeys(addresses) if address not in self._located]
        if not unknown or not self._are_there:
            return
        for first in range(0, len(unknown), _ADDRESSES_MAX):
            some = unknown[first : first + _ADDRESSES_MAX]
            self._elsewhere |= self._ask(some)["elsewhere"]
            self._located.update(some)

    def group_of(self, address: str) -> str:
        """The group that has an address that was located; empty if there are none, or the URL names one.

        It is what processes of a query tell each other: a URL may lead each of them to another group.
        """
        return self._elsewhere.get(address, self._own)

    @property
    def home(self) -> str:
        """The group to which the URL leads; empty as `group_of`."""
        return self._requests("").group if self._are_there else ""

    def of(self, address: str) -> Requests:
        """Requests to the group that has an address that was located."""
        return self._requests(self.group_of(address))

    def matching(self, pattern: str, *, topics: bool) -> tuple[str, ...]:
        """The names of the queues or topics of all groups that match a pattern."""
        groups = self._ask(())["groups"] if self._are_there else [""]
        names = [name for group in groups for name in _matching(self._requests(group), pattern, topics=topics)]
        return tuple(dict.fromkeys(names))

    def others(self, address: str) -> list[Requests]:
        """Requests to all other groups than the one that has an address that was located."""
        if not self._are_there:
            return []
        if not self._names:
            self._ask(())
        own = self.group_of(address)
        return [self._requests(group) for group in self._names if group != own]

    def close(self) -> None:
        """Close the connections to all of them."""
        for requests in self._by_group.values():
            requests.close()

    @property
    def _are_there(self) -> bool:
        """Whether there are groups that the query may know of: without them nobody is asked."""
        return not self._is_bound and bool(self._requests("").group)

    def _ask(self, addresses: Iterable[str]) -> dict[str, Any]:
        told: dict[str, Any] = self._requests("").ask("read", "group", addresses=json.dumps(list(addresses)))
        self._own, self._names = told["name"], told["groups"]
        # The same connection, for as long as it stays there.
        self._by_group.setdefault(self._own, self._requests(""))
        return told

    def _requests(self, group: str) -> Requests:
        found = self._by_group.get(group)
        if found is None:
            found = self._by_group[group] = self._make(url_of_group(self._url, group))
        return found


def _matching(requests: Requests, pattern: str, *, topics: bool) -> list[str]:
    names: list[str] = []
    more = True
    while more:
        found = requests.ask("query", "topic" if topics else "queue", match=pattern, offset=len(names))
        names += [row["name"] for row in found["results"]]
        more = found["more"]
    return names
