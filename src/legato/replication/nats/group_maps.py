"""The map of groups in a bucket of JetStream's key-value store, beside the logs of all groups."""

from dataclasses import dataclass

from legato.errors import ConfigError
from legato.groups.group_map import GroupMap, LaterFormatError, decode, successor
from legato.replication.nats.bucket import Bucket, Value, ValueChangedError, insist
from legato.replication.nats.connection import Connection
from legato.replication.nats.settings import NatsSettings

BUCKET = "LEGATO-groups"
"""No group has a bucket of that name: theirs have an underscore."""
KEY = "map"


@dataclass(frozen=True, slots=True)
class KeptMap:
    """The map that is kept.

    Args:
        sequence: of its message.
        map: what is in it.
    """

    sequence: int
    map: GroupMap


class NatsGroupMaps:
    """The map of groups on the servers of the logs. Calls block, and raise `LogUnavailableError`.

    Args:
        settings: which servers, and which login; the group does not matter.
    """

    def __init__(self, settings: NatsSettings) -> None:
        self._connection = Connection(settings)
        self._bucket = Bucket(self._connection, BUCKET, "The map of Legato's groups", settings.replicas)

    def wait_for_servers(self, timeout_s: float) -> None:
        """Wait until a server is connected.

        Raises:
            LogAccessError: the servers refuse the credentials.
        """
        self._connection.wait_for_first(timeout_s)

    def revision(self, timeout_s: float) -> tuple[int, str]:
        """Something that is another one after each change; (0, "") if there is nothing."""
        return insist(self._connection, self._bucket.revision, timeout_s)

    def read(self, timeout_s: float) -> KeptMap | None:
        """The map; None if there is none.

        Raises:
            ConfigError: what is there is no map that can be used.
        """
        value = self._value(timeout_s)
        return None if value is None or value.removed else KeptMap(value.sequence, decode(value.data))

    def put(self, group_map: GroupMap, timeout_s: float) -> GroupMap | None:
        """Keep a map in the place of the one that is there, if it is a later one; return that one.

        What is there and is no map, as after somebody wrote it with tools of NATS, is replaced.

        Raises:
            ConfigError: it is an older one, or another one under the same revision, or another map came meanwhile.
        """
        value = self._value(timeout_s)
        former = None if value is None else _map_of(value)
        if former is not None and successor(former, group_map) == former:
            return former
        after = 0 if value is None else value.sequence
        try:
            insist(
                self._connection,
                lambda attempt_s: self._bucket.put(KEY, group_map.encode(), attempt_s, after),
                timeout_s,
            )
        except ValueChangedError:
            kept = self.read(timeout_s)
            if kept is not None and kept.map == group_map and kept.sequence > after:
                return former  # by an attempt whose answer was lost
            raise ConfigError(
                "Somebody else has changed the map of groups meanwhile: look at it (legato group get), and put the "
                "next revision."
            ) from None
        return former

    def close(self) -> None:
        """Leave the servers."""
        self._connection.close()

    def _value(self, timeout_s: float) -> Value | None:
        return insist(self._connection, lambda attempt_s: self._bucket.last(KEY, attempt_s), timeout_s)


def _map_of(value: Value) -> GroupMap | None:
    """The map in a value; None if it is none.

    Raises:
        LaterFormatError: a later version of Legato wrote it.
    """
    try:
        return None if value.removed else decode(value.data)
    except LaterFormatError:
        raise
    except ConfigError:
        return None
