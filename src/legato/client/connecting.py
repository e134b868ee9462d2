"""Which broker a connection tries next, as whom, and when it gives up."""

from __future__ import annotations

import msgspec

from legato.amqp.connection import Settings
from legato.amqp.types import UInt
from legato.client.conditions import UNBLOCKED
from legato.client.failover import Schedule, Try
from legato.client.uri import Host, Uri
from legato.errors import InvalidClientIDError, JMSError, JMSSecurityError

_POLICY = "sole-connection-enforcement-policy"
_CLOSE_EXISTING = UInt(1)


class Connecting:
    """The tries of a connection, its first ones and those after each loss.

    Attributes:
        settings: how the connection presents itself.
        connected_once: whether a broker has ever let us in.
    """

    def __init__(self, uri: Uri, settings: Settings) -> None:
        self.settings = settings
        self.connected_once = False
        self._uri = uri
        self._problems: dict[Host, str] = {}
        self._schedule = Schedule(uri.hosts, uri.options, rounds_max=uri.options.connect_attempts)

    def begin_again(self, lost: Host) -> bool:
        """The connection to a host was lost: the next tries are for its return; False if there are to be none."""
        options = self._uri.options
        if options.reconnect_attempts == 0:
            return False
        first = self._uri.hosts.index(lost) + 1
        self._schedule = Schedule(self._uri.hosts, options, rounds_max=options.reconnect_attempts, first=first)
        self._problems.clear()
        return True

    def next(self, chance: float) -> Try:
        """The next try.

        Args:
            chance: from 0 to 1, draws the jitter.

        Raises:
            JMSError: there is none left.
        """
        attempt = self._schedule.next(chance)
        if attempt is None:
            tried = "; ".join(f"{host}: {problem}" for host, problem in self._problems.items())
            raise JMSError(
                f"No broker can be reached ({tried}). Check that one runs, and the hosts of the connection URI.",
                code=UNBLOCKED if self.connected_once else None,
            )
        return attempt

    def failed(self, host: Host, error: Exception) -> None:
        """A try failed.

        Raises:
            JMSError: it is of no use to try again.
        """
        if isinstance(error, JMSSecurityError):
            raise error
        # After a loss the old connection may still look alive to the broker (AMQP.md A1.7).
        if isinstance(error, InvalidClientIDError) and not self.connected_once:
            raise error
        self._problems[host] = getattr(error, "strerror", None) or str(error)

    def opening_settings(self) -> Settings:
        """How to present ourselves in the next try."""
        if not self.connected_once:
            return self.settings
        # To the broker our old connection may still look alive: it is to give way.
        return msgspec.structs.replace(self.settings, properties=self.settings.properties | {_POLICY: _CLOSE_EXISTING})
