"""The register of replicas as a bucket of JetStream's key-value store: a key for each broker."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from legato.replication.nats.bucket import Bucket, insist
from legato.replication.nats.connection import Connection
from legato.replication.nats.settings import NatsSettings
from legato.replication.register import Entry, Registered

BEGIN_KEY = "=begin"
"""Of an administrator's word that the group is new; no key of a broker is like that."""
ENTRIES_MAX = 100
"""A group has a handful of brokers; what more there may be was not put there by them."""


def open_register(settings: NatsSettings, timeout_s: float) -> "NatsRegister":
    """The register of a group, to be closed.

    Args:
        settings: which servers, which group, which credentials.
        timeout_s: wait so long for servers.

    Raises:
        LogAccessError: the servers refuse the credentials.
        LogUnavailableError: they do not answer.
    """
    connection = Connection(settings)
    try:
        connection.wait_for_first(timeout_s)
    except BaseException:
        connection.close()
        raise
    return NatsRegister(connection, settings)


class NatsRegister:
    """A register on NATS.

    Args:
        connection: to the servers of the log.
        settings: of the group.
    """

    def __init__(self, connection: Connection, settings: NatsSettings) -> None:
        self._connection = connection
        description = f"The register of the replicas of the Legato group {settings.group}"
        self._bucket = Bucket(connection, settings.stream, description, settings.replicas)

    def say(self, entry: Entry, timeout_s: float) -> None:
        """As `Register.say`."""
        insist(self._connection, lambda attempt_s: self._say(entry, attempt_s), timeout_s)

    def entries(self, timeout_s: float) -> Sequence[Registered]:
        """As `Register.entries`."""
        return insist(self._connection, self._entries, timeout_s)

    def allow_beginning(self, timeout_s: float) -> None:
        """As `Register.allow_beginning`."""
        insist(self._connection, lambda attempt_s: self._bucket.put(BEGIN_KEY, b"{}", attempt_s), timeout_s)

    def may_begin(self, timeout_s: float) -> bool:
        """As `Register.may_begin`."""
        said = insist(self._connection, lambda wait_s: self._bucket.last(BEGIN_KEY, wait_s), timeout_s)
        return said is not None and not said.removed

    def forget(self, listen: str, timeout_s: float) -> bool:
        """As `Register.forget`."""
        return insist(self._connection, lambda attempt_s: self._bucket.remove(_key(listen), attempt_s), timeout_s)

    def close(self) -> None:
        """Leave the servers, and with them a log on the same connection."""
        self._connection.close()

    async def _say(self, entry: Entry, timeout_s: float) -> None:
        key = _key(entry.listen)
        if not entry.commits:
            former = await self._last(key, timeout_s)
            if former is not None and former.entry.commits:
                return
        await self._bucket.put(key, msgspec.json.encode(entry), timeout_s)

    async def _entries(self, timeout_s: float) -> Sequence[Registered]:
        keys, now = await self._bucket.keys(timeout_s)
        brokers = [key for key in keys if key != BEGIN_KEY][:ENTRIES_MAX]
        found = [await self._last(key, timeout_s, now) for key in brokers]
        return [each for each in found if each is not None]

    async def _last(self, key: str, timeout_s: float, now: datetime | None = None) -> Registered | None:
        """The entry of a key; None if there is none that a broker wrote."""
        value = await self._bucket.last(key, timeout_s)
        if value is None:
            return None
        try:
            entry = msgspec.json.decode(value.data, type=Entry)
        except (ValueError, RecursionError):
            return None
        if now is None or value.said is None:
            return Registered(entry, 0.0)
        return Registered(entry, max((now - value.said).total_seconds(), 0.0))


def _key(listen: str) -> str:
    """The key of a broker: keys have letters, digits and few other characters."""
    return "".join(
        letter if letter.isascii() and letter.isalnum() else "".join(f"={byte:02X}" for byte in letter.encode())
        for letter in listen
    )
