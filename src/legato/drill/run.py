"""One drill from start to end: brokers, network, clients, faults, and the end of all of them in order."""

import os
import queue
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from random import Random

import msgspec
from rich.console import Console

from legato.demo.processes import Child, DemoError
from legato.demo.reports import Failed, FailedOver
from legato.drill.ballast import Ballast
from legato.drill.clients import Orders
from legato.drill.injection import Injector
from legato.drill.load import Client, clients_of, java_clients_of
from legato.drill.options import DrillOptions
from legato.drill.plan import Strike, plan
from legato.drill.relay import Network
from legato.drill.reports import Ready, Totals, decode_report
from legato.drill.target import Target
from legato.errors import LegatoError

LINE_INTERVAL_S = 2.0
POLL_S = 0.02
START_WAIT_S = 60.0
END_WAIT_S = 180.0
PYTHON = (sys.executable, "-m")
JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class Struck:
    """A fault that happened: which, when in seconds since the load began, and for how long."""

    fault: str
    at_s: float
    took_s: float


@dataclass
class RunResult:
    """What a drill itself saw; records and ledger have the last word."""

    strikes: list[Struck] = field(default_factory=list)
    points_reached: int = 0
    takeovers: int = 0
    stored: int = 0
    seen: int = 0
    rolled_back: int = 0
    gaps_ms: dict[int, float] = field(default_factory=dict)
    """By epoch, the longest time that a client could do nothing."""
    failovers: int = 0
    full: int = 0
    """How often somebody was refused because the disk was full."""
    complaints: list[str] = field(default_factory=list)
    seconds: float = 0.0
    samples: list[tuple[float, int, int]] = field(default_factory=list)
    """Seconds since the load began, and the totals of `stored` and `seen` by then."""


class Run:
    """Performs one drill."""

    def __init__(self, options: DrillOptions, target: Target, seed: int, console: Console) -> None:
        self.options = options
        self.records = options.out / "records"
        self.result = RunResult()
        self._target = target
        self._plan = plan(options.faults, options.points, options.every_s, Random(seed))
        # Brokers that run already may hold what is left of another drill.
        self._prefix = f"drill.{seed}." if target.pair is not None else f"drill.{seed}-{os.getpid()}."
        self._console = console
        self._lines: queue.SimpleQueue[tuple[Child, bytes | None]] = queue.SimpleQueue()
        self._children: dict[str, Child] = {}
        self._ready: set[str] = set()
        self._ended: set[str] = set()
        self._totals: dict[str, Totals] = {}
        self._next_line_at = 0.0
        self._began_at = 0.0

    def perform(self) -> RunResult:
        """Do all of it; whatever happens, no process is left behind.

        Raises:
            DemoError: something happened that is no fault of the plan, and the drill cannot go on.
        """
        self.records.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            pair = self._target.pair
            network = stack.enter_context(Network(self._target.hosts))
            if pair is not None:
                stack.callback(pair.end)
                pair.announce(network.ports)
                pair.start()
                self._event(f"{pair.brokers[0].name} and {pair.brokers[1].name} serve from {pair.store}")
            stack.callback(self._kill_children)
            url = self._target.url(network.ports)
            self._start_clients(url, self._target.java_url(network.ports))
            ballast = Ballast(url, self.records, f"{self._prefix}ballast")
            self._strike_all(Injector(network, pair, ballast, self._pause))
            self.result.full = ballast.refused
            self._stop_clients()
            if pair is not None:
                pair.stop()
                self.result.takeovers = pair.takeovers
                self.result.complaints += pair.surprises
        self.result.seconds = time.monotonic() - self._began_at
        return self.result

    # -- clients

    def _start_clients(self, url: str, java_url: str) -> None:
        """Consumers first: a subscription must exist before anything is published to it."""
        clients = clients_of(self._prefix)
        works: list[str] = []
        if self.options.java is not None:
            more, works = java_clients_of(self._prefix)
            clients += more
        self._start("consumers", url, [client for client in clients if not client.sends])
        if self.options.java is not None:
            self._start_java(self.options.java, java_url, works)
        for name in list(self._children):
            self._wait_until(partial(self._ready.__contains__, name), f"the {name} clients to connect", START_WAIT_S)
        self._start("producers", url, [client for client in clients if client.sends])
        self._wait_until(partial(self._ready.__contains__, "producers"), "the producers to connect", START_WAIT_S)
        self._began_at = time.monotonic()
        self._event(f"{len(clients) + len(works)} clients are at work")

    def _start(self, name: str, url: str, clients: list[Client]) -> None:
        orders = Orders(url=url, records=str(self.records), clients=clients, rate_per_s=self.options.rate_per_s)
        self._start_child(name, ["legato.drill.clients", msgspec.json.encode(orders).decode()], PYTHON)

    def _start_java(self, classpath: str, url: str, works: list[str]) -> None:
        arguments = [url, str(self.records), str(self.options.rate_per_s), *works]
        self._start_child("java", arguments, [*JAVA, "-cp", classpath, "legato.interop.DrillClients"])

    def _start_child(self, name: str, arguments: Sequence[str], program: Sequence[str]) -> None:
        self._children[name] = Child(
            name,
            arguments,
            program=program,
            log_file=self.options.out / "logs" / f"{name}.log",
            on_line=lambda child, line: self._lines.put((child, line)),
            on_end=lambda child: self._lines.put((child, None)),
            environment=self._target.pair.rig_variable if self._target.pair else None,
        )

    def _stop_clients(self) -> None:
        """Producers first, so that consumers know what there is to wait for."""
        self._event("no more faults: producers finish, consumers drain")
        for name in ("producers", "java", "consumers"):
            if name in self._children:
                self._children[name].ask_to_stop()
                self._wait_until(partial(self._ended.__contains__, name), f"the {name} to end", END_WAIT_S)

    def _kill_children(self) -> None:
        for child in self._children.values():
            if child.exit_code is None:
                child.kill()

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
            if self._ended:
                break
            self._strike(injector, strike)
        if end_at is not None and not self._ended and options.count is None:
            self._calm(max(0.0, end_at - time.monotonic()))
        self.result.points_reached = injector.points_reached

    def _strike(self, injector: Injector, strike: Strike) -> None:
        began_at = time.monotonic()
        number = len(self.result.strikes) + 1
        self._event(f"fault {number}: {strike}", "red")
        try:
            injector.strike(strike)
        except LegatoError as error:
            raise DemoError(f"Fault {number}, {strike}: {error}") from error
        took_s = time.monotonic() - began_at
        self.result.strikes.append(Struck(str(strike), began_at - self._began_at, took_s))
        self._event(f"fault {number} is over after {took_s:.1f} s", "green")

    def _calm(self, seconds: float) -> None:
        end_at = time.monotonic() + seconds
        self._pause(seconds, lambda: time.monotonic() > end_at or bool(self._ended))

    def _pause(self, timeout_s: float, until: Callable[[], bool]) -> None:
        """Take what everybody says until a condition holds, or for `timeout_s` seconds."""
        end_at = time.monotonic() + timeout_s
        while not until() and time.monotonic() < end_at:
            self._poll()

    # -- reports

    def _wait_until(self, reached: Callable[[], bool], what: str, timeout_s: float) -> None:
        self._pause(timeout_s, reached)
        if not reached():
            raise DemoError(f"Waited {timeout_s:.0f} s for {what}; see the logs in {self.options.out / 'logs'}.")

    def _poll(self) -> None:
        if self._target.pair is not None:
            self._target.pair.poll()
        try:
            child, line = self._lines.get(timeout=POLL_S)
            while True:
                self._take(child, line)
                child, line = self._lines.get_nowait()
        except queue.Empty:
            pass
        self._show()

    def _take(self, child: Child, line: bytes | None) -> None:
        if line is None:
            self._ended.add(child.name)
            if child.exit_code != 0:
                self.result.complaints.append(
                    f"The {child.name} ended with exit code {child.exit_code}: {child.last_words()}"
                )
            return
        try:
            report = decode_report(line)
        except msgspec.DecodeError as error:
            raise DemoError(f"{child.name} wrote a line that is no report ({error}): {line[:200]!r}") from error
        match report:
            case Ready():
                self._ready.add(child.name)
            case Totals():
                self._totals[child.name] = report
                totals = self._totals.values()
                self.result.stored = sum(each.stored for each in totals)
                self.result.seen = sum(each.seen for each in totals)
                self.result.rolled_back = sum(each.rolled_back for each in totals)
                if self._began_at:
                    self.result.samples.append(
                        (time.monotonic() - self._began_at, self.result.stored, self.result.seen)
                    )
            case FailedOver(gap_ms=gap_ms, epoch=epoch):
                self.result.failovers += 1
                self.result.gaps_ms[epoch] = max(self.result.gaps_ms.get(epoch, 0.0), gap_ms)
            case Failed(reason=reason):
                self.result.complaints.append(f"The {child.name} gave up: {reason}")

    def _event(self, text: str, style: str = "") -> None:
        self._console.print(f"= {text}", style=style, highlight=False, soft_wrap=True)

    def _show(self) -> None:
        now = time.monotonic()
        if now < self._next_line_at or not self._began_at:
            return
        self._next_line_at = now + LINE_INTERVAL_S
        result = self.result
        self._console.print(
            f"{now - self._began_at:5.0f} s  stored {result.stored:,}  received {result.seen:,}  rolled back "
            f"{result.rolled_back:,}  faults {len(result.strikes)}  failovers {result.failovers:,}",
            highlight=False,
            soft_wrap=True,
        )
