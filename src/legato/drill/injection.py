"""Doing what the plan says: one method for each fault, all of them undone before the next."""

import resource
import signal
import time
from collections.abc import Callable

from legato.demo.brokers import BrokerProcess, Role
from legato.drill.ballast import Ballast
from legato.drill.faults import Fault
from legato.drill.pair import Pair
from legato.drill.plan import Strike
from legato.drill.relay import Network
from legato.points import Point

POINT_WAIT_S = 5.0
"""A point that nobody comes to within so long is passed over: the fault strikes anyway."""


class Injector:
    """Lets faults happen to a network and, if they are the drill's own, to a pair of brokers.

    Args:
        pause: does what else there is to do, for some seconds or until a condition holds.
        ballast: fills a store up.
    """

    def __init__(
        self,
        network: Network,
        pair: Pair | None,
        ballast: Ballast,
        pause: Callable[[float, Callable[[], bool]], None],
    ) -> None:
        self._network = network
        self._pair = pair
        self._ballast = ballast
        self._pause = pause
        self.points_reached = 0

    def strike(self, strike: Strike) -> None:
        """Let one fault happen; afterwards it is over, and the pair is whole again."""
        faults: dict[Fault, Callable[[Strike], None]] = {
            Fault.KILL: self._kill,
            Fault.STOP: self._stop,
            Fault.CUT: self._cut,
            Fault.FREEZE: self._freeze,
            Fault.FULL_DISK: self._fill,
            Fault.SLOW_DISK: self._slow,
            Fault.CLOCK_JUMP: self._jump,
        }
        try:
            if strike.point is not None:
                self._go_to(strike.point)
            faults[strike.fault](strike)
        finally:
            if self._pair is not None:
                self._pair.rig.disarm()
        if self._pair is not None:
            self._pair.settle()

    def _go_to(self, point: Point) -> None:
        """Wait until somebody is held at `point`; for a takeover's there must be one."""
        pair = self._own_pair
        pair.rig.arm(point)
        if point is Point.DURING_TAKEOVER:
            self._primary.kill()
        self._pause(POINT_WAIT_S, lambda: pair.rig.reached)
        self.points_reached += pair.rig.reached

    def _kill(self, strike: Strike) -> None:
        """At a takeover, nobody has said yet that he is the primary: then it is whoever lives."""
        pair = self._own_pair
        victim = pair.primary or next(broker for broker in pair.brokers if broker.role is not Role.DEAD)
        victim.kill()

    def _stop(self, strike: Strike) -> None:
        pair = self._own_pair
        victim = pair.primary or next(broker for broker in pair.brokers if broker.role is not Role.DEAD)
        victim.send_signal(signal.SIGSTOP)
        try:
            self._sleep(strike.lasts_s)
        finally:
            victim.send_signal(signal.SIGCONT)

    def _cut(self, strike: Strike) -> None:
        self._network.cut()
        self._release()
        self._sleep(strike.lasts_s)
        self._network.heal()

    def _freeze(self, strike: Strike) -> None:
        self._network.freeze()
        self._release()
        self._sleep(strike.lasts_s)
        self._network.heal()

    def _slow(self, strike: Strike) -> None:
        rig = self._own_pair.rig
        rig.set_delay(strike.amount)
        self._release()
        self._sleep(strike.lasts_s)
        rig.set_delay(0)

    def _jump(self, strike: Strike) -> None:
        rig = self._own_pair.rig
        rig.set_clock(strike.amount)
        self._release()
        self._sleep(strike.lasts_s)
        rig.set_clock(0)

    def _fill(self, strike: Strike) -> None:
        """No file of the primary may become larger than its store is, and messages come until it is full."""
        self._release()
        self._own_pair.settle()
        primary, store = self._primary, self._own_pair.store
        _limit_files(primary, (store / "data.mdb").stat().st_size)
        try:
            self._ballast.load()
            self._sleep(strike.lasts_s)
        finally:
            _limit_files(primary, None)
        self._ballast.unload()

    def _release(self) -> None:
        """Whoever is held at the point goes on, under the fault that began meanwhile."""
        if self._pair is not None:
            self._pair.rig.disarm()

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self._pause(seconds, lambda: time.monotonic() > deadline)

    @property
    def _own_pair(self) -> Pair:
        assert self._pair is not None, "parse_faults lets nobody else get here"
        return self._pair

    @property
    def _primary(self) -> BrokerProcess:
        primary = self._own_pair.primary
        assert primary is not None, "settle() left one"
        return primary


def _limit_files(broker: BrokerProcess, size_bytes: int | None) -> None:
    """Let a broker's files not grow beyond a size; None lifts the limit."""
    hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)[1]
    soft = hard if size_bytes is None else size_bytes
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (soft, hard))
