"""Fault injection: one method for each fault; each fault is undone before the next."""

import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from legato.client.management import request
from legato.drill.client_processes import ClientProcesses
from legato.drill.disk_filler import DiskFiller
from legato.drill.driver import Driver
from legato.drill.faults import Fault
from legato.drill.pair import Pair
from legato.drill.plan import Strike
from legato.drill.relay import Network
from legato.drill.store_reader import Reader, is_read_by
from legato.drill.target import CHECK_PERIOD_S
from legato.errors import JMSError
from legato.failpoints import AnyPoint, Point, Stuck
from legato.ha.lock import LOCK_NAME
from legato.processes.broker_process import BrokerProcess, Role
from legato.processes.child import ProcessError

POINT_WAIT_S = 3.0
"""A point that nobody comes to within so long is passed over: the fault strikes anyway."""
SWITCHOVER_WAIT_S = 90.0
STUCK_WAIT_S = 150.0
"""A watchdog counts the processor time of a busy loop, which takes several times as long on a busy machine."""
START_WAIT_S = 60.0
ASIDE_WAIT_S = 300.0
BLINK_S = 0.1
DRIVER_WAIT_S = 480.0
"""A driver that is started a minute late has done a batch by then: on a busy machine Spark takes minutes to start."""
READER_WAIT_S = 20.0
"""Ten looks of a broker's upkeep."""
SPARE_BYTES = 1 << 20
"""Left to messages that fill a disk up before the last block goes."""
HALF = 0.5


class Injector:
    """Injects faults into clients, the network and, if the drill started them, the brokers.

    Args:
        url: of the brokers, for those who administer them.
        pause: does what else there is to do, for some seconds or until a condition holds.
        ballast: fills a store up.
        driver: of the Spark job, if there is one.
    """

    def __init__(
        self,
        network: Network,
        pair: Pair | None,
        crew: ClientProcesses,
        ballast: DiskFiller,
        url: str,
        pause: Callable[[float, Callable[[], bool]], None],
        driver: Driver | None = None,
    ) -> None:
        self._network = network
        self._pair = pair
        self._crew = crew
        self._ballast = ballast
        self._url = url
        self._pause = pause
        self._driver = driver
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
            Fault.LOOP_STUCK: self._stick,
            Fault.KILL_CLIENT: self._kill_client,
            Fault.STOP_CLIENT: self._stop_client,
            Fault.CUT: self._cut,
            Fault.FREEZE: self._freeze,
            Fault.LATE: self._be_late,
            Fault.HALF_CLOSE: self._half_close,
            Fault.PARTITION: self._partition,
            Fault.FULL_DISK: self._fill,
            Fault.FULL_DISK_KILL: self._fill_and_kill,
            Fault.FULL_DISK_SWITCHOVER: self._fill_and_switch_over,
            Fault.SLOW_DISK: self._slow,
            Fault.CLOCK_JUMP: self._jump,
            Fault.KILL_READER: self._kill_reader,
            Fault.STOP_READER: self._stop_reader,
            Fault.DELETE_LOCK: self._delete_lock,
            Fault.KILL_DRIVER: self._kill_driver,
        }

    def strike(self, strike: Strike) -> None:
        """Let one fault happen; afterwards it is over, and the pair is whole again."""
        self.victim = ""
        try:
            if strike.fault is Fault.KILL_DRIVER:
                self._wait_for_driver()
            if strike.point is not None:
                self._go_to(strike.point)
            self._faults[strike.fault](strike)
        finally:
            self._release()
            self._holder = None
        if self._pair is not None:
            self._pair.settle()

    def _go_to(self, point: AnyPoint) -> None:
        """Wait until somebody is held at `point`; where that takes a failover there must be one."""
        drill_orders = self._own_pair.drill_orders
        drill_orders.arm(point)
        if point is Point.DURING_TAKEOVER:
            self._primary.kill()
        elif point is Point.DURING_CLAIM:
            self._network.cut()
            self._sleep(BLINK_S)
            self._network.heal()
        self._pause(POINT_WAIT_S, lambda: drill_orders.holder is not None)
        self._holder = drill_orders.holder
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
        self._own_pair.settle()
        self._hand_over()

    def _hand_over(self) -> None:
        pair = self._own_pair
        before = self._primary.epoch
        try:
            self._aside(lambda: request(self._url, "switchover", "broker"), "the answer to a switchover")
        except JMSError as error:
            # It may have gone before it could answer; then the epoch says so.
            pair.notes.append(f"legato switchover was answered with: {error}")
        self._wait_for_epoch_after(before, "a switchover")

    def _wait_for_epoch_after(self, epoch: int, what: str) -> None:
        pair = self._own_pair
        self._pause(SWITCHOVER_WAIT_S, lambda: pair.primary is not None and pair.primary.epoch > epoch)
        if pair.primary is None or pair.primary.epoch <= epoch:
            raise ProcessError(f"No broker serves in a later epoch {SWITCHOVER_WAIT_S:g} s after {what}.")

    def _stop(self, strike: Strike) -> None:
        victim = self._victim
        victim.send_signal(signal.SIGSTOP)
        try:
            self._sleep(strike.lasts_s)
        finally:
            victim.send_signal(signal.SIGCONT)

    def _stick(self, strike: Strike) -> None:
        """The loop of the primary waits, or is busy, for ever: its watchdog has to see it."""
        self._release()
        pair = self._own_pair
        pair.settle()
        victim = self._primary
        before = victim.epoch
        pair.ends.add(victim.name)
        pair.drill_orders.stick(Stuck.BUSY if strike.chance < 0.5 else Stuck.WAITING)
        try:
            # Its successor may be heard of before its own end is.
            self._pause(
                STUCK_WAIT_S,
                lambda: victim.role is Role.DEAD and pair.primary is not None and pair.primary.epoch > before,
            )
            primary = pair.primary
            if primary is None or primary.epoch == before:
                raise ProcessError(f"{victim.name}'s loop was stuck for {STUCK_WAIT_S:g} s, and nobody took over.")
        finally:
            pair.ends.discard(victim.name)

    # -- clients

    def _kill_client(self, strike: Strike) -> None:
        """Kill the client that is held at a failpoint, or else any."""
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

    # -- the Spark job

    def _wait_for_driver(self) -> None:
        """One that was killed before has to be back, and at work: batches must go on whatever else happened.

        Raises:
            ProcessError: it is not.
        """
        driver = self._own_driver
        self._pause(DRIVER_WAIT_S, driver.is_at_work)
        if not driver.is_at_work():
            words = driver.last_words() or "; ".join(driver.failures[-1:])
            raise ProcessError(f"The Spark job has not done a batch in {DRIVER_WAIT_S:g} s: {words}")

    def _kill_driver(self, strike: Strike) -> None:
        """It is over at once: other faults happen until the driver is back."""
        self._own_driver.kill(strike.amount)
        self._release()

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

    def _be_late(self, strike: Strike) -> None:
        """For longer than clients wait for a sign of their broker: they come back on other connections first."""
        self._network.hold()
        self._release()
        try:
            self._sleep(CHECK_PERIOD_S + strike.lasts_s)
        finally:
            self._network.deliver()

    def _half_close(self, strike: Strike) -> None:
        self._network.half_close(towards_brokers=strike.chance < HALF)
        self._release()
        self._sleep(strike.lasts_s)

    def _partition(self, strike: Strike) -> None:
        """Partition the network; without network namespaces only clients are cut off."""
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
        drill_orders = self._own_pair.drill_orders
        drill_orders.set_delay(strike.amount)
        self._release()
        self._sleep(strike.lasts_s)
        drill_orders.set_delay(0)

    def _jump(self, strike: Strike) -> None:
        drill_orders = self._own_pair.drill_orders
        drill_orders.set_clock(strike.amount)
        self._release()
        self._sleep(strike.lasts_s)
        drill_orders.set_clock(0)

    def _fill(self, strike: Strike) -> None:
        self._with_full_disk(lambda: self._sleep(strike.lasts_s))

    def _fill_and_kill(self, strike: Strike) -> None:
        """Fill the disk and kill the primary: its successor and the new backup begin on a full disk."""

        def kill() -> None:
            before = self._primary.epoch
            self._primary.kill()
            if self._own_pair.disk is not None:
                self._wait_for_epoch_after(before, "a kill on a full disk")
                self._own_pair.settle()
            self._sleep(strike.lasts_s)

        self._with_full_disk(kill)

    def _fill_and_switch_over(self, strike: Strike) -> None:
        def switch_over() -> None:
            self._hand_over()
            self._sleep(strike.lasts_s)

        self._with_full_disk(switch_over)

    def _with_full_disk(self, meanwhile: Callable[[], None]) -> None:
        """Messages come until the store is full, and stays so. Without a file system of the drill's own no file of any
        broker that runs may become larger than the store is."""
        self._release()
        pair = self._own_pair
        pair.settle()
        limited = [broker.pid for broker in pair.brokers]
        if pair.disk is not None:
            pair.disk.fill(SPARE_BYTES)
        else:
            for pid in limited:
                _limit_files(pid, (pair.store / "data.mdb").stat().st_size)
        try:
            self._aside(self._ballast.load, "a full disk")
            if pair.disk is not None and not pair.disk.fill():
                pair.notes.append("A disk that was to be full to the last block had some room.")
            meanwhile()
        finally:
            if pair.disk is not None:
                pair.disk.empty()
            else:
                for pid in limited:
                    _limit_files(pid, None)
        pair.settle()
        self._aside(self._ballast.unload, "room on the disk again")

    # -- who reads

    def _kill_reader(self, strike: Strike) -> None:
        """It is found in LMDB's table, where nobody clears it but a broker that looks."""
        pair, reader = self._own_pair, self._start_reader()
        try:
            self._release()
            self._sleep(strike.lasts_s)
        finally:
            reader.child.kill()
        self._pause(READER_WAIT_S, lambda: not is_read_by(pair.store, reader.child.pid))
        if is_read_by(pair.store, reader.child.pid):
            pair.surprises.append(
                f"{READER_WAIT_S:g} s after a reader was killed the store keeps what it read: its file grows."
            )

    def _stop_reader(self, strike: Strike) -> None:
        pair, reader = self._own_pair, self._start_reader()
        try:
            reader.child.send_signal(signal.SIGSTOP)
            self._release()
            self._sleep(strike.lasts_s)
            named: list[bool] = []
            self._aside(lambda: named.append(self._is_named(reader.child.pid)), "the status of a broker")
            if not any(named):
                pair.surprises.append(
                    f"legato status does not name a stopped reader of the store within {READER_WAIT_S:g} s."
                )
        finally:
            reader.child.kill()

    def _start_reader(self) -> Reader:
        pair = self._own_pair
        reader = Reader(pair.store, pair.logs)
        self._pause(START_WAIT_S, reader.began.is_set)
        if not reader.began.is_set():
            reader.child.kill()
            raise ProcessError(f"A reader of the store does not begin: {reader.child.last_words()}")
        return reader

    def _is_named(self, pid: int) -> bool:
        deadline = time.monotonic() + READER_WAIT_S
        while time.monotonic() < deadline:
            if pid in {reader["pid"] for reader in request(self._url, "read", "broker").get("long_readers", [])}:
                return True
            time.sleep(BLINK_S)
        return False

    # -- the lock

    def _delete_lock(self, strike: Strike) -> None:
        """Or its file is replaced by a copy. Nobody's process may end of that (`Pair.surprises`)."""
        pair = self._own_pair
        if pair.primary is None:
            self._release()
            pair.settle()
        before = self._primary.epoch
        lock = pair.store / LOCK_NAME
        if strike.chance < HALF:
            lock.unlink()
        else:
            copy = lock.with_suffix(".copy")
            shutil.copy(lock, copy)  # With its mode: a store refuses what others can read.
            copy.replace(lock)
        self._release()
        self._wait_for_epoch_after(before, "the lock's file was taken away")

    # -- what they share

    def _aside(self, work: Callable[[], object], what: str) -> None:
        """Do something that waits for a broker, in a thread of its own.

        Raises:
            JMSError: it failed.
            ProcessError: it does not end.
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
            raise ProcessError(f"Waited {ASIDE_WAIT_S:g} s for {what}.")
        done.result()

    def _release(self) -> None:
        """Release the process that is held at the failpoint; the fault goes on."""
        if self._pair is not None:
            self._pair.drill_orders.disarm()

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self._pause(seconds, lambda: time.monotonic() > deadline)

    @property
    def _own_driver(self) -> Driver:
        assert self._driver is not None, "parse_faults lets nobody else get here"
        return self._driver

    @property
    def _own_pair(self) -> Pair:
        assert self._pair is not None, "parse_faults lets nobody else get here"
        return self._pair

    @property
    def _primary(self) -> BrokerProcess:
        primary = self._own_pair.primary
        assert primary is not None, "settle() left one"
        return primary


def _limit_files(pid: int, size_bytes: int | None) -> None:
    """Let a process's files not grow beyond a size; None lifts the limit. It may be dead."""
    with suppress(ProcessLookupError):
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        soft = hard if size_bytes is None else size_bytes
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
