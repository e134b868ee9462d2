"""Connection attempts: the next broker, the login, and when to give up."""

from __future__ import annotations

import socket

import msgspec

from legato.amqp import names
from legato.amqp.codec.types import UInt
from legato.amqp.engine.settings import Settings
from legato.client.failover.disconnect_reason import Detection, Loss
from legato.client.failover.discovery import offered_hosts
from legato.client.failover.peer_problems import WrongProtocolError
from legato.client.failover.schedule import SILENT_HOST_TIMEOUT_S, Schedule, Try
from legato.client.failover.uri import Host, Uri
from legato.client.failover.wire import NoSecretError, RedirectedError, Wire
from legato.client.mapping.conditions import UNBLOCKED
from legato.errors import InvalidClientIDError, JMSError, JMSSecurityError, ResourceAllocationError

_POLICY = "sole-connection-enforcement-policy"
_CLOSE_EXISTING = UInt(1)
_UNKNOWN_NAME = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


class ConnectionAttempts:
    """The attempts of a connection: the first ones, and those after each loss.

    Attributes:
        settings: how the connection presents itself.
        connected_once: whether a broker has ever let us in.
        group: the group of brokers that it belongs to; empty if it said none.
        sent_to: the group that another broker sent us to, whose hosts it named; empty if they are the user's.
    """

    def __init__(self, uri: Uri, settings: Settings) -> None:
        self.settings = settings
        self.connected_once = False
        self.group = ""
        self.sent_to = ""
        self._attempts = 0
        self._restoring = False
        """Whether a broker let us in again, and not all has been restored there."""
        self._rounds_in_vain = 0
        """How often in a row the connection was lost before that."""
        self._uri = uri
        self._discovered: tuple[Host, ...] = ()
        self._detour: list[Host] = []
        """Where a host that was tried sends us: what is left of that to be tried."""
        self._problems: dict[Host, str] = {}
        self._hopeless: set[Host] = set()
        """Hosts that waiting will not help: nobody knows the name, or another protocol is spoken there."""
        options = uri.options
        self._first_hosts = uri.hosts if options.fails_over_at_first else uri.hosts[:1]
        attempts = options.connect_attempts
        if attempts is None:
            self._schedule = Schedule(self._first_hosts, options, rounds_max=-1, waited_s_max=options.connect_wait_s)
        else:
            self._schedule = Schedule(self._first_hosts, options, rounds_max=attempts)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Hosts of the URI, then those that brokers announced (CONTRACT E5)."""
        return tuple(dict.fromkeys((*self._uri.hosts, *self._discovered)))

    def sent_again(self, hosts: tuple[Host, ...]) -> None:
        """A broker has named the hosts of the group again, which may have moved."""
        if set(hosts) == set(self._uri.hosts):
            return
        self._uri = msgspec.structs.replace(self._uri, hosts=hosts)
        self._schedule = Schedule(self.hosts, self._uri.options, rounds_max=self._uri.options.reconnect_attempts)

    def begin_again(self, loss: Loss) -> bool:
        """The connection was lost: the next tries are for its return; False if there are to be none (CONTRACT E6, E7).

        A host that may still be there is tried before the others, because what hangs on the connection is there too
        (E1); one that said farewell is tried last. If the connection was lost before all was restored, the pauses grow
        as if the try had failed.
        """
        options = self._uri.options
        self._detour = []
        self._problems.clear()
        if self._restoring:
            self._rounds_in_vain += 1
            self._problems[loss.host] = str(loss.cause)
        else:
            self._rounds_in_vain = 0
        if options.reconnect_attempts == 0:
            return False
        if loss.detection is Detection.SHUTDOWN and not options.fails_over_on_shutdown:
            return False
        # Where a redirect led is in no list.
        hosts = self.hosts if loss.host in self.hosts else (loss.host, *self.hosts)
        first = hosts.index(loss.host)
        self._schedule = Schedule(
            hosts,
            options,
            rounds_max=options.reconnect_attempts,
            first=first + 1 if loss.detection in (Detection.SHUTDOWN, Detection.SWITCHOVER) else first,
            window_s=loss.return_window_s,
            first_timeout_s_max=SILENT_HOST_TIMEOUT_S if loss.detection is Detection.SILENT else float("inf"),
            rounds_before=self._rounds_in_vain,
        )
        self._restoring = False
        return True

    @property
    def resignation(self) -> str:
        """Why nothing is tried after a loss: a sentence that names the option."""
        if self._uri.options.reconnect_attempts == 0:
            return "It is not tried again, as the option reconnect_attempts is 0."
        return "It is not tried again, as failover_on_server_shutdown is off and the broker was told to stop."

    def next(self, chance: float, waited_s: float = 0.0) -> Try:
        """The next try.

        Args:
            chance: from 0 to 1, draws what is left to chance.
            waited_s: seconds since the first try after which nothing came about yet.

        Raises:
            JMSError: there is none left.
        """
        self._attempts += 1
        if self._detour:
            return Try(0.0, self._detour[0])
        attempt = self._schedule.next(chance, waited_s)
        if attempt is None:
            waited = f" in {waited_s:.0f} s" if waited_s >= 1 else ""
            if self.connected_once:
                waited = f" since the connection was lost {waited_s:.1f} s ago, in {self._attempts - 1} tries"
            where = f"{self.sent_to} in the map of groups" if self.sent_to else "the connection URI"
            raise JMSError(
                f"No broker{self._of_group} can be reached{waited} ({self.problems}). Check that one runs, and the "
                f"hosts of {where}.",
                code=UNBLOCKED if self.connected_once else None,
            )
        return attempt

    @property
    def _of_group(self) -> str:
        return f" of the group {self.sent_to!r}" if self.sent_to else ""

    @property
    def problems(self) -> str:
        """Which hosts were tried, and why each is not the one."""
        return "; ".join(f"{host}: {problem}" for host, problem in self._problems.items())

    def failed(self, host: Host, error: Exception) -> None:
        """A try failed.

        Raises:
            JMSError: it is of no use to try again.
        """
        # Whoever gives tokens may be away for a moment, a file with a password may be replaced just now.
        passes = isinstance(error, NoSecretError) and self.connected_once
        if isinstance(error, JMSSecurityError) and not passes:
            raise error
        # After a loss the old connection may still look alive to the broker (amqp.md A1.7).
        # And a limit that is reached on the way back may be that connection's.
        if isinstance(error, InvalidClientIDError | ResourceAllocationError) and not self.connected_once:
            raise error
        self._problems[host] = getattr(error, "strerror", None) or str(error)
        unknown = isinstance(error, socket.gaierror) and error.errno in _UNKNOWN_NAME
        if unknown or isinstance(error, WrongProtocolError):
            self._hopeless.add(host)
        else:
            self._hopeless.discard(host)
        patient = self.connected_once or self._uri.options.connect_attempts is not None
        if not patient and self._hopeless.issuperset(self._first_hosts):
            what = f"the hosts of {self.sent_to} in the map of groups" if self.sent_to else "the connection URI"
            raise JMSError(f"No broker{self._of_group} can be reached ({self.problems}). Correct {what}.", linked=error)
        # Who is sent on twice is sent in circles.
        on_detour = bool(self._detour)
        self._detour = self._detour[1:]
        if isinstance(error, RedirectedError) and not on_detour and self._uri.options.discover:
            self._detour = [*error.hosts]

    def connected(self, wire: Wire, *, after_loss: bool) -> None:
        """A broker let us in, perhaps after the connection was lost: then all is to be restored there."""
        self._restoring = after_loss
        if not self.connected_once:
            self.connected_once = True
            self._attempts = 0
        self._detour = []
        group = wire.properties.get(names.GROUP)
        self.group = str(group) if isinstance(group, str) else ""
        if self.group and self._uri.options.vhost is None:
            # A broker of another group sends us back to it after a loss, where our links can go on.
            self.settings = msgspec.structs.replace(self.settings, hostname=self.group)
        if self._uri.options.discover and (offered := offered_hosts(wire.properties, tls=self._uri.tls)):
            self._discovered = offered

    def take_attempts(self) -> int:
        """All is restored: how many tries there were since the last time."""
        self._restoring = False
        attempts, self._attempts = self._attempts, 0
        return attempts

    def opening_settings(self) -> Settings:
        """How to present ourselves in the next try."""
        if not self.connected_once:
            return self.settings
        # To the broker our old connection may still look alive: it is to give way.
        return msgspec.structs.replace(self.settings, properties=self.settings.properties | {_POLICY: _CLOSE_EXISTING})
