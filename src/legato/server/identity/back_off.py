"""Back-off for failed logins: how long an answer is put off, and who is not listened to for a while.

Failures count for a user at an address of origin, and for the address. Where there were too many, no password is looked
at, right or wrong, and known and unknown users are answered alike.
"""

from __future__ import annotations

import ipaddress

import msgspec

ENTRIES_MAX = 20_000
ADDRESS_FACTOR = 10
"""So many times as many failures as a user at an address may have, an address may have in all."""
_IPV6_PREFIX = 64
"""Whoever has one address of IPv6 has as many as these leave."""


class _Failures(msgspec.Struct):
    count: int
    until_s: float


class BackOff:
    """Counts failed logins; times are seconds of a clock that never goes back.

    Args:
        delay_s: for so long the answer to each failed login is put off.
        most: after so many within `for_s` a user at an address is not listened to any more,
        for_s: for so many seconds.
    """

    def __init__(self, delay_s: float, most: int, for_s: float) -> None:
        self.delay_s = delay_s
        self._most = most
        self._for_s = for_s
        self._failures: dict[tuple[str, str], _Failures] = {}
        self._welcome: dict[tuple[str, str], float] = {}
        """Users who logged in from an address: what others fail from there does not count against them."""

    def is_blocked(self, address: str, user: str, now_s: float) -> bool:
        """Whether a login is not even looked at."""
        origin = origin_of(address)
        if self._count((origin, user), now_s) >= self._most:
            return True
        welcome = self._welcome.get((origin, user), 0.0) > now_s
        return not welcome and self._count((origin, ""), now_s) >= self._most * ADDRESS_FACTOR

    def fail(self, address: str, user: str, now_s: float) -> float:
        """A login failed; returns for how many seconds its answer is put off."""
        origin = origin_of(address)
        for key in ((origin, user), (origin, "")):
            entry = self._failures.pop(key, None)
            if entry is None or entry.until_s <= now_s:
                entry = _Failures(0, now_s + self._for_s)
            entry.count += 1
            # The one that failed last is the last to be forgotten.
            self._failures[key] = entry
        while len(self._failures) > ENTRIES_MAX:
            del self._failures[next(iter(self._failures))]
        return self.delay_s

    def succeed(self, address: str, user: str, now_s: float) -> None:
        """A user logged in."""
        key = (origin_of(address), user)
        self._failures.pop(key, None)
        self._welcome.pop(key, None)
        self._welcome[key] = now_s + 60 * self._for_s
        while len(self._welcome) > ENTRIES_MAX:
            del self._welcome[next(iter(self._welcome))]

    def _count(self, key: tuple[str, str], now_s: float) -> int:
        entry = self._failures.get(key)
        if entry is None:
            return 0
        if entry.until_s <= now_s:
            del self._failures[key]
            return 0
        return entry.count


def origin_of(address: str) -> str:
    """Whose addresses count as one: an address of IPv4, or a network of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _IPV6_PREFIX), strict=False))
