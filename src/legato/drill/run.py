"""One drill: starts brokers, network and clients, injects the faults, and stops all of them in order."""

import importlib.util
import os
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random

from rich.console import Console

from legato.drill import management
from legato.drill.client_processes import JAVA_NAME, ClientProcesses, resident_bytes
from legato.drill.client_totals import PATIENCE_S
from legato.drill.disk_filler import DiskFiller
from legato.drill.driver import Driver
from legato.drill.faults import FULL_DISK_FAULTS, Fault
from legato.drill.injection import Injector
from legato.drill.load import STREAMED_FLOW, STREAMED_TO, Work, clients_of, java_clients_of, spark_clients_of
from legato.drill.options import DrillOptions
from legato.drill.pair import EpochSpan, Pair
from legato.drill.plan import Strike, plan
from legato.drill.relay import Network
from legato.drill.reports import ClientFailedOver
from legato.drill.result import Gap, RunResult, Struck
from legato.drill.spark_job import SparkOrders
from legato.drill.store_reader import file_use
from legato.drill.target import Target
from legato.errors import LegatoError, StoreError
from legato.processes.child import ProcessError
from legato.sizes import sizes_apart

LINE_INTERVAL_S = 2.0
SIZE_INTERVAL_S = 10.0
SAMPLE_INTERVAL_S = 0.2
POLL_S = 0.02
START_WAIT_S = 60.0
END_WAIT_S = PATIENCE_S + 120.0
DRAIN_WAIT_S = 600.0
"""Spark takes its time to start. As long as it does batches it may take longer."""
FREE_BYTES_MIN = 2 << 30
"""A drill ends before it fills a disk that others use too."""
STORE_FREE_BYTES_MIN = 128 << 20
IDLE_SHARE = 4
IDLE_BYTES = 256 << 20
"""The store's file may reach so many times as far as was ever in use of it, and so much farther: what somebody filled
up on purpose, and what comes at once while a reader holds what goes."""


class Run:
    """Performs one drill."""

    def __init__(self, options: DrillOptions, target: Target, seed: int, console: Console) -> None:
        self.options = options
        self.result = RunResult()
        self.records = options.out / "records"
        self.staged: list[str] = []
        """Queues whose messages begin flows that write into a database."""
        self._target = target
        self._plan = plan(options.faults, options.points, options.every_s, Random(seed))
        # Brokers that run already may hold what is left of another drill.
        self._prefix = f"drill.{seed}." if target.pair is not None else f"drill.{seed}-{os.getpid()}."
        self._console = console
        self._crew = ClientProcesses(
            options.out, target.pair.drill_variable if target.pair else None, self._failed_over
        )
        self._doors: list[str] = []
        """Where relays listen on the brokers' island, for Spark."""
        self._driver: Driver | None = None
        """Of the Spark job, if there is one."""
        self._next_line_at = 0.0
        self._next_size_at = 0.0
        self._began_at = 0.0
        self._live_bytes_max = 0
        self._has_grown = False

    def perform(self) -> RunResult:
        """Do all of it; whatever happens, no process is left behind.

        Raises:
            ProcessError: something happened that is no fault of the plan, and the drill cannot go on.
        """
        pair, crew = self._target.pair, self._crew
        try:
            with ExitStack() as stack:
                if pair is not None:
                    stack.callback(pair.end)
                    if Fault.PARTITION in self.options.faults:
                        pair.move_to_island()
                    if not set(FULL_DISK_FAULTS).isdisjoint(self.options.faults):
                        pair.move_to_disk()
                network = stack.enter_context(self._network())
                if pair is not None:
                    pair.announce(network.ports)
                    pair.start()
                    names = [broker.name for broker in pair.brokers]
                    self._event(f"{', '.join(names[:-1])} and {names[-1]} serve from {pair.store}")
                stack.callback(crew.end)
                if self.options.spark_load:
                    self._driver = self._make_driver(network)
                    stack.callback(self._driver.end)
                url = self._target.url(network.ports)
                administrators_url = self._target.administrators_url(network.ports)
                if pair is None:
                    stack.callback(self._clean_up, administrators_url)
                self._start_clients(url, self._target.java_url(network.ports))
                ballast = DiskFiller(url, self.records, f"{self._prefix}ballast")
                injector = Injector(network, pair, crew, ballast, administrators_url, self._pause, self._driver)
                self._strike_all(injector)
                self.result.full = ballast.refused
                self._stop_clients()
                if pair is not None:
                    pair.stop()
        finally:
            self._gather()
        return self.result

    def _network(self) -> Network:
        pair = self._target.pair
        if pair is None or pair.island is None:
            return Network(self._target.hosts, self._target.dial)
        doors = [pair.island.listen(place) for place in range(len(pair.brokers))] if self.options.spark_load else []
        self._doors = [f"{door.getsockname()[0]}:{door.getsockname()[1]}" for door in doors]
        return Network([(broker.host, broker.port) for broker in pair.brokers], pair.island.dial, doors)

    def _make_driver(self, network: Network) -> Driver:
        """What Spark reads and writes in bulk has ports of the brokers' own, so the job runs where these are."""
        pair, out = self._target.pair, self.options.out
        assert pair is not None, "DrillOptions lets nobody else get here"
        places = self._doors or [f"127.0.0.1:{port}" for port in network.ports]
        source, sink = f"{self._prefix}{STREAMED_FLOW}", f"{self._prefix}{STREAMED_TO}"
        orders = SparkOrders(self._target.url_of(places), source, sink, str((out / "checkpoint").resolve()))
        if pair.island is None:
            return Driver(orders, pair.logs, pair.drill_variable)
        return Driver(orders, pair.logs, pair.drill_variable, pair.island.visitor())

    def _gather(self) -> None:
        result, pair = self.result, self._target.pair
        result.seconds = time.monotonic() - self._began_at if self._began_at else 0.0
        result.complaints += self._crew.complaints
        result.notes += self._target.notes
        if self._driver is not None:
            self._gather_driver(self._driver)
        if pair is not None:
            result.takeovers = pair.takeovers
            result.complaints += pair.surprises
            result.notes += pair.notes
            for epoch in pair.epochs:
                ended_s = result.seconds if epoch.ended_s is None else epoch.ended_s - self._began_at
                result.epochs.append(EpochSpan(epoch.broker, epoch.epoch, epoch.began_s - self._began_at, ended_s))

    def _gather_driver(self, driver: Driver) -> None:
        result = self.result
        result.drivers_killed, result.batches = driver.kills, driver.batches
        result.notes.append(
            f"The Spark job did {driver.batches:,} batches in {driver.starts:,} lives; its driver was killed "
            f"{driver.kills:,} times, {driver.interrupted:,} of them in the midst of a batch."
        )
        if driver.failures:
            result.notes.append(
                f"Its driver ended by itself {len(driver.failures):,} times, and was started again: last with "
                f"{driver.failures[-1]}"
            )

    def _clean_up(self, url: str) -> None:
        """Somebody else's brokers are left as they were found."""
        try:
            self.result.dead = management.dead_letters(url, self._prefix)
            gone = management.delete_all(url, self._prefix)
        except LegatoError as error:
            self.result.notes.append(f"Queues and topics called {self._prefix}... are still there: {error}")
        else:
            self._event(f"{len(gone)} queues and topics of the drill's are deleted")

    # -- clients

    def _start_clients(self, url: str, java_url: str) -> None:
        """Consumers first: a subscription must exist before anything is published to it."""
        can_have_flows = importlib.util.find_spec("sqlalchemy") is not None
        if not can_have_flows:
            self.result.notes.append(
                "There were no flows: their database needs SQLAlchemy (pip install 'legato[flows]')."
            )
        clients = clients_of(self._prefix, flows=can_have_flows)
        self.staged = [client.flow for client in clients if client.work is Work.STAGES]
        works: list[str] = []
        if self.options.java is not None:
            more, works = java_clients_of(self._prefix)
            clients += more
            self._crew.start_java(self.options.java, java_url, works, self.options.rate_per_s)
        if self.options.spark_load:
            clients += spark_clients_of(self._prefix)
        processes = sorted({client.process for client in clients})
        for sending in (False, True):
            for name in processes:
                members = [client for client in clients if client.process == name and client.sends == sending]
                if members:
                    rate, lenient = self.options.rate_per_s, self.options.contract != "legato"
                    self._crew.start(name, url, members, rate, lenient=lenient)
            for member in list(self._crew.members.values()):
                self._wait_until(member.has_begun, f"the {member.name} to connect", START_WAIT_S)
        if self._driver is not None:
            self._driver.start()
        self._began_at = time.monotonic()
        self.result.clients = len(clients) + len(works)
        self._event(f"{self.result.clients} clients are at work in {len(self._crew.members)} processes")

    def _stop_clients(self) -> None:
        """Producers first, so that consumers know what there is to wait for; then who works on what these sent."""
        self._event("no more faults: producers finish, consumers drain")
        names = list(self._crew.members)
        for group in (
            [name for name in names if name.startswith("producers")],
            [name for name in names if name == JAVA_NAME],
            [name for name in names if name.startswith("administrators")],
            [name for name in names if name.startswith("flows")],
        ):
            self._stop_all(group)
        if self._driver is not None:
            self._drain(self._driver)
        self._stop_all([name for name in names if name.startswith(("consumers", "interrupted"))])

    def _stop_all(self, names: list[str]) -> None:
        for name in names:
            self._crew.ask_to_stop(name)
        for name in names:
            self._wait_for_end(name)

    def _drain(self, driver: Driver) -> None:
        """All that was sent to the Spark job is in the store: one more life is to publish what is left of it."""
        driver.drain()
        done = -1
        while not driver.has_ended() and done < driver.batches:
            done = driver.batches
            self._pause(DRAIN_WAIT_S, driver.has_ended)
        if not driver.has_ended():
            self.result.complaints.append(
                f"The Spark job, which was to publish what was left, did no batch in {DRAIN_WAIT_S:.0f} s: "
                f"{driver.last_words()}"
            )
        elif driver.exit_code:
            self.result.complaints.append(
                f"The Spark job, which was to publish what was left, ended with exit code {driver.exit_code}: "
                f"{driver.last_words()}"
            )
        driver.end()

    def _wait_for_end(self, name: str) -> None:
        """As long as messages still come, a slow machine has but more to do."""
        has_ended = self._crew.members[name].has_ended
        came = -1
        while not has_ended() and came < self._crew.totals.seen:
            came = self._crew.totals.seen
            self._pause(END_WAIT_S, has_ended)
        if not has_ended():
            raise self._waited(END_WAIT_S, f"the {name} to end, and nothing came")

    def _failed_over(self, report: ClientFailedOver) -> None:
        if self._began_at:
            ended_s = time.monotonic() - self._began_at
            self.result.gaps.append(Gap(report.client, ended_s, report.gap_ms, report.epoch))

    # -- faults

    def _strike_all(self, injector: Injector) -> None:
        options = self.options
        end_at = self._began_at + 60 * options.minutes if options.minutes is not None else None
        for strike in self._plan:
            if options.count is not None and len(self.result.strikes) >= options.count:
                break
            if end_at is not None and time.monotonic() + strike.calm_s > end_at:
                break
            self._calm(strike.calm_s)
            if self._crew.ended or self._no_room():
                break
            self._strike(injector, strike)
        if end_at is not None and not self._crew.ended and options.count is None:
            self._calm(max(0.0, end_at - time.monotonic()))
        missing = (options.count or 0) - len(self.result.strikes)
        if missing > 0 and end_at is None:
            self.result.complaints.append(
                f"The drill was to have {options.count:,} faults, and ended before the last {missing:,} of them."
            )
        self.result.points_reached = injector.points_reached
        self.result.clients_killed = injector.clients_killed

    def _no_room(self) -> bool:
        free = shutil.disk_usage(self.options.out).free
        if free < FREE_BYTES_MIN:
            self.result.complaints.append(f"The drill ended early: only {free >> 20:,} MiB are free on its disk.")
            return True
        disk = self._target.pair.disk if self._target.pair is not None else None
        if disk is not None and disk.free_bytes < STORE_FREE_BYTES_MIN:
            self.result.complaints.append(
                f"The drill ended early: only {disk.free_bytes >> 20:,} MiB are free on the store's disk, which is in "
                "memory; without full-disk faults it is not."
            )
            return True
        return False

    def _strike(self, injector: Injector, strike: Strike) -> None:
        began_at = time.monotonic()
        number, reached = len(self.result.strikes) + 1, injector.points_reached
        self._event(f"fault {number}: {strike}", "red")
        try:
            injector.strike(strike)
        except LegatoError as error:
            raise ProcessError(f"Fault {number}, {strike}: {error}") from error
        took_s = time.monotonic() - began_at
        self.result.strikes.append(
            Struck(
                f"{strike}: {injector.victim}" if injector.victim else str(strike),
                began_at - self._began_at,
                took_s,
                kind=str(strike.fault),
                point=str(strike.point or ""),
                reached=injector.points_reached > reached,
            )
        )
        of_whom = f" ({injector.victim})" if injector.victim else ""
        self._event(f"fault {number}{of_whom} is over after {took_s:.1f} s", "green")

    def _calm(self, seconds: float) -> None:
        end_at = time.monotonic() + seconds
        self._pause(seconds, lambda: time.monotonic() > end_at or bool(self._crew.ended))

    def _pause(self, timeout_s: float, until: Callable[[], bool]) -> None:
        """Take what everybody says until a condition holds, or for `timeout_s` seconds."""
        end_at = time.monotonic() + timeout_s
        while not until() and time.monotonic() < end_at:
            self._poll()

    def _wait_until(self, reached: Callable[[], bool], what: str, timeout_s: float) -> None:
        self._pause(timeout_s, reached)
        if not reached():
            raise self._waited(timeout_s, what)

    def _waited(self, timeout_s: float, what: str) -> ProcessError:
        return ProcessError(f"Waited {timeout_s:.0f} s for {what}; see the logs in {self.options.out / 'logs'}.")

    # -- what goes on

    def _poll(self) -> None:
        if self._target.pair is not None:
            self._target.pair.poll()
        self._crew.poll(POLL_S)
        if self._driver is not None:
            self._driver.poll()
        totals, result = self._crew.totals, self.result
        result.stored, result.seen, result.rolled_back = totals.stored, totals.seen, totals.rolled_back
        now = time.monotonic()
        if self._began_at and now >= self._next_size_at:
            self._next_size_at = now + SIZE_INTERVAL_S
            self._measure()
        self._show(now)

    def _measure(self) -> None:
        result, pair = self.result, self._target.pair
        result.disk_bytes_max = max(result.disk_bytes_max, directory_bytes(self.options.out))
        brokers = sum(resident_bytes(broker.pid) for broker in pair.brokers) if pair is not None else 0
        if self._driver is not None:
            brokers += sum(map(resident_bytes, self._driver.pids))
        if pair is not None:
            self._see_growth(pair)
        result.memory_bytes_max = max(result.memory_bytes_max, brokers + sum(self._crew.memory_bytes().values()))

    def _see_growth(self, pair: Pair) -> None:
        """The file must not become larger and larger where messages come and go."""
        try:
            use = file_use(pair.store)
        except StoreError as error:
            self.result.notes.append(f"The store's file could not be looked at: {error}")
            return
        self._live_bytes_max = max(self._live_bytes_max, use.live_bytes)
        bound = IDLE_SHARE * self._live_bytes_max + IDLE_BYTES
        if use.reach_bytes > bound and not self._has_grown:
            self._has_grown = True
            grown, used = sizes_apart(use.reach_bytes, self._live_bytes_max)
            self.result.complaints.append(
                f"The store's file has grown to {grown}, although no more than {used} of it were ever in use."
            )

    def _event(self, text: str, style: str = "") -> None:
        self._console.print(f"= {text}", style=style, highlight=False, soft_wrap=True)

    def _show(self, now: float) -> None:
        result = self.result
        if not self._began_at:
            return
        if not result.samples or now - self._began_at - result.samples[-1][0] > SAMPLE_INTERVAL_S:
            result.samples.append((now - self._began_at, result.stored, result.seen))
        if now < self._next_line_at:
            return
        self._next_line_at = now + LINE_INTERVAL_S
        self._console.print(
            f"{now - self._began_at:5.0f} s  stored {result.stored:,}  received {result.seen:,}  rolled back "
            f"{result.rolled_back:,}  faults {len(result.strikes)}  failovers {len(result.gaps):,}",
            highlight=False,
            soft_wrap=True,
        )


def directory_bytes(directory: Path) -> int:
    """The room that the files below a directory take up; files that come and go meanwhile count or not."""
    total = 0
    for place, _, files in os.walk(directory):
        for name in files:
            try:
                total += os.stat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue
    return total
