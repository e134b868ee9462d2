"""Doing what the plan says: one method for each fault, all of them undone before the next."""

import resource
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from legato.client.management import request
from legato.demo.brokers import BrokerProcess, Role
from legato.demo.processes import DemoError
from legato.drill.ballast import Ballast
from legato.drill.crew import Crew
from legato.drill.faults import Fault
from legato.drill.pair import Pair
from legato.drill.plan import Strike
from legato.drill.relay import Network
from legato.errors import JMSError
from legato.points import Point

POINT_WAIT_S = 3.0
"""A point that nobody comes to within so long is passed over: the fault strikes anyway."""
SWITCHOVER_WAIT_S = 30.0
START_WAIT_S = 60.0
ASIDE_WAIT_S = 60.0
BLINK_S = 0.1


class Injector:
    """Lets faults happen to clients, to a network and, if they are the drill's own, to a pair of brokers.

    Args:
        url: of the brokers, for those who administer them.
        pause: does what else there is to do, for some seconds or until a condition holds.
        ballast: fills a store up.
    """

    def __init__(
        self,
        network: Network,
        pair: Pair | None,
        crew: Crew,
        ballast: Ballast,
        url: str,
        pause: Callable[[float, Callable[[], bool]], None],
    ) -> None:
        self._network = network
        self._pair = pair
        self._crew = crew
        self._ballast = ballast
        self._url = url
        self._pause = pause
        self.points_reached = 0
        self.clients_killed = 0
        self.victim = ""
        """Whom the last fault struck, where one of several was chosen."""
        self._holder: int | None = None
        self._faults: dict[Fault, Callable[[Strike], None]] = {
            Fault.KILL: self._kill,
            Fault.KILL_BOTH: self._kill_both,
            Fault.SWITCHOVER: self._switch_over,
            Fault.STOP: self._stop,
            Fault.KILL_CLIENT: self._kill_client,
            Fault.STOP_CLIENT: self._stop_client,
            Fault.CUT: self._cut,
            Fault.FREEZE: self._freeze,
            Fault.PARTITION: self._partition,
            Fault.FULL_DISK: self._fill,
            Fault.SLOW_DISK: self._slow,
            Fault.CLOCK_JUMP: self._jump,
        }

    def strike(self, strike: Strike) -> None:
        """Let one fault happen; afterwards it is over, and the pair is whole again."""
        self.victim = ""
        try:
            if strike.point is not None:
                self._go_to(strike.point)
            self._faults[strike.fault](strike)
        finally:
            self._release()
            self._holder = None
        if self._pair is not None:
            self._pair.settle()

    def _go_to(self, point: Point) -> None:
        """Wait until somebody is held at `point`; where that takes a failover there must be one."""
        rig = self._own_pair.rig
        rig.arm(point)
        if point is Point.DURING_TAKEOVER:
            self._primary.kill()
        elif point is Point.DURING_CLAIM:
            self._network.cut()
            self._sleep(BLINK_S)
            self._network.heal()
        self._pause(POINT_WAIT_S, lambda: rig.holder is not None)
        self._holder = rig.holder
        self.points_reached += self._holder is not None

    # -- brokers

    @property
    def _victim(self) -> BrokerProcess:
        """The primary; at a takeover, where nobody has said yet that he is, whoever lives."""
        pair = self._own_pair
        return pair.primary or next(broker for broker in pair.brokers if broker.role is not Role.DEAD)

    def _kill(self, strike: Strike) -> None:
        self._victim.kill()

    def _kill_both(self, strike: Strike) -> None:
        for broker in self._own_pair.brokers:
            broker.kill()

    def _switch_over(self, strike: Strike) -> None:
        self._release()
        pair = self._own_pair
        pair.settle()
        before = self._primary.epoch
        try:
            self._aside(lambda: request(self._url, "switchover", "broker"), "the answer to a switchover")
        except JMSError as error:
            # It may have gone before it could answer; then the epoch says so.
            pair.notes.append(f"legato switchover was answered with: {error}")
        self._pause(SWITCHOVER_WAIT_S, lambda: pair.primary is not None and pair.primary.epoch > before)
        if self._primary.epoch == before:
            raise DemoError(f"{self._primary.name} is still the primary {SWITCHOVER_WAIT_S:g} s after a switchover.")

    def _stop(self, strike: Strike) -> None:
        victim = self._victim
        victim.send_signal(signal.SIGSTOP)
        try:
            self._sleep(strike.lasts_s)
        finally:
            victim.send_signal(signal.SIGCONT)

    # -- clients

    def _kill_client(self, strike: Strike) -> None:
        """Who is held at a point dies there; otherwise anybody does."""
        victim = self._crew.chosen(strike.chance, self._holder)
        self.victim = victim.name
        self._crew.kill(victim)
        self.clients_killed += 1
        self._release()
        self._sleep(strike.lasts_s / 2)
        self._crew.start_again(victim)
        self._pause(START_WAIT_S, victim.has_begun)

    def _stop_client(self, strike: Strike) -> None:
        victim = self._crew.chosen(strike.chance, self._holder)
        self.victim = victim.name
        self._crew.stop(victim)
        try:
            self._release()
            self._sleep(strike.lasts_s)
        finally:
            self._crew.go_on(victim)

    # -- the network

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

    def _partition(self, strike: Strike) -> None:
        """Where there are no network namespaces, only clients are cut off, and brokers hear each other."""
        pair, victim = self._own_pair, self._victim
        place = pair.brokers.index(victim)
        if pair.island is not None:
            pair.island.cut_off(place)
        else:
            self._network.freeze(place)
        try:
            self._release()
            self._sleep(strike.lasts_s)
        finally:
            if pair.island is not None:
                pair.island.heal(place)
            else:
                self._network.heal()

    # -- the machine

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
            self._aside(self._ballast.load, "a full disk")
            self._sleep(strike.lasts_s)
        finally:
            _limit_files(primary, None)
        self._aside(self._ballast.unload, "room on the disk again")

    # -- what they share

    def _aside(self, work: Callable[[], object], what: str) -> None:
        """Do something that waits for a broker, in a thread of its own.

        Raises:
            JMSError: it failed.
            DemoError: it does not end.
        """
        done: Future[object] = Future()

        def perform() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=perform, name=what, daemon=True).start()
        self._pause(ASIDE_WAIT_S, done.done)
        if not done.done():
            raise DemoError(f"Waited {ASIDE_WAIT_S:g} s for {what}.")
        done.result()

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
