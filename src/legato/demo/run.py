"""One run from start to end: processes, kills, drain, stop. Spark's audit comes later."""

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec
from rich.console import Console

from legato.demo.carriers import create_totals, database_url
from legato.demo.deployments import another_primary, deployment_of, log_file_of
from legato.demo.display import Display, make_display
from legato.demo.kills import Kill, plan_kills
from legato.demo.options import DemoOptions
from legato.demo.progress import RunState, TakeoverSeen
from legato.demo.reports import Collected, FailedOver, Processed, Sent, decode_report
from legato.demo.roles import Orders
from legato.processes.broker_process import BrokerProcess, Role
from legato.processes.child import Child, ProcessError
from legato.processes.reports import Failed

STALL_S = 60.0
"""A run that makes no progress for so long is given up: Spark then says what is missing."""
POLL_S = 0.02
START_WAIT_S = 30.0


@dataclass(frozen=True)
class RunResult:
    """Result of a run by its processes' reports; the audit has the last word."""

    sent: int
    collected: int
    takeovers: list[TakeoverSeen]
    kills: int
    seconds: float
    """From the first send to the last record in a file."""
    seed: int


class Run:
    """The processes of a run and what is known of them. What they say arrives in one queue."""

    def __init__(self, options: DemoOptions, seed: int, console: Console) -> None:
        self.options = options
        self.seed = seed
        self.state = RunState(options.flights)
        self.deployment = deployment_of(options)
        self.brokers = self.deployment.brokers
        self._random = Random(seed)
        self._kills = plan_kills(options.kills, self._random)
        self._lines: queue.SimpleQueue[tuple[Child, bytes | None]] = queue.SimpleQueue()
        self._roles: dict[str, Child] = {}
        self._finished: set[str] = set()
        self._display: Display = make_display(console, self.state, self.brokers)
        self._progress_at = 0.0
        self._started_at = 0.0

    def perform(self) -> RunResult:
        """Do all of it; whatever happens, no process is left behind.

        Raises:
            ProcessError: a process failed in a way that is not part of the plan.
        """
        try:
            with self._display:
                if started := self.deployment.start():
                    self._display.event(started)
                self._start_brokers()
                self._start_roles()
                self._watch()
                self._stop_roles()
            seconds = time.monotonic() - self._started_at
            self._stop_brokers()
        finally:
            self._end_everything()
        return RunResult(
            sent=self.state.sent,
            collected=self.state.collected,
            takeovers=sorted(self.state.takeovers.values(), key=lambda takeover: takeover.epoch),
            kills=self.state.kills,
            seconds=seconds,
            seed=self.seed,
        )

    # Starting

    def _start_brokers(self) -> None:
        primary, *backups = self.brokers
        self._start_broker(primary)
        self._wait_until(lambda: primary.role is Role.PRIMARY, f"{primary.name} to become the primary")
        self._display.event(f"{primary.name} (process {primary.pid}) is the primary, epoch {primary.epoch}")
        for backup in backups:
            self._start_backup(backup)
            self._display.event(f"{backup.name} (process {backup.pid}) is a backup")

    def _start_backup(self, broker: BrokerProcess) -> None:
        self._start_broker(broker)
        self._wait_until(lambda: broker.role is Role.BACKUP, f"{broker.name} to become a backup")

    def _start_broker(self, broker: BrokerProcess) -> None:
        broker.start(self._on_line, self._on_end)

    def _start_roles(self) -> None:
        self._started_at = self._progress_at = time.monotonic()
        options = self.options
        create_totals(options.out)
        self._start_role("collector", "collector", 0, 1)
        for number in range(options.workers):
            self._start_role(f"worker-{number + 1}", "workers", number, options.workers)
        for number in range(options.producers):
            self._start_role(f"producer-{number + 1}", "producers", number, options.producers)

    def _start_role(self, name: str, module: str, number: int, members: int) -> None:
        orders = Orders(
            url=self.deployment.url,
            number=number,
            members=members,
            flights=self.options.flights,
            sessions=self.options.sessions_per_worker,
            flights_per_commit=self.options.flights_per_commit,
            directory=str(records_directory(self.options.out)),
            database=database_url(self.options.out),
        )
        self._roles[name] = Child(
            name,
            [f"legato.demo.{module}", msgspec.json.encode(orders).decode()],
            log_file=log_file_of(self.options, name),
            on_line=self._on_line,
            on_end=self._on_end,
        )

    # Watching

    def _watch(self) -> None:
        """Until all is collected and all kills are done, or nothing moves any more."""
        kills = list(self._kills)
        while kills or self.state.collected < self.options.flights:
            self._poll()
            if kills and self.state.progress >= kills[0].at:
                self._lose_primary(kills.pop(0))
            if time.monotonic() - self._progress_at > STALL_S:
                self._display.event(f"nothing moved for {STALL_S:.0f} s: giving up", "bold red")
                return

    def _lose_primary(self, kill: Kill) -> None:
        """Lose the primary; when another one serves, bring the lost one back and wait until it is a backup."""
        self._poll_for(kill.delay_s)
        deployment = self.deployment
        primary = next(broker for broker in self.brokers if broker.role is Role.PRIMARY)
        what = deployment.lose(primary)
        self.state.kills += 1
        self._display.event(f"{what} at {self.state.processed:,} flights", "red")
        self._wait_until(
            lambda: another_primary(self.brokers, primary) is not None, f"a backup of {primary.name} to take over"
        )
        if (successor := another_primary(self.brokers, primary)) is not None:
            self._display.event(f"{successor.name} took over, epoch {successor.epoch}", "green")
        deployment.restore(primary)
        self._wait_until(
            lambda: deployment.is_restored(primary), f"the log server of {primary.name} to join the others"
        )
        self._start_backup(primary)
        self._display.event(f"{primary.name} is back, as a backup", "cyan")
        self._progress_at = time.monotonic()

    def _wait_until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_WAIT_S
        while not reached():
            self._poll()
            if time.monotonic() > deadline:
                raise ProcessError(
                    f"Waited {START_WAIT_S:.0f} s for {what}; see the logs in {self.options.out / 'logs'}."
                )

    def _poll_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._poll()

    def _poll(self) -> None:
        """Take what the processes said, for a moment at most."""
        try:
            child, line = self._lines.get(timeout=POLL_S)
            while True:
                self._take(child, line)
                child, line = self._lines.get_nowait()
        except queue.Empty:
            pass
        self.state.sample(time.monotonic())
        self._display.refresh()

    def _take(self, child: Child, line: bytes | None) -> None:
        broker = next((broker for broker in self.brokers if broker.is_child(child)), None)
        if broker is not None:
            broker.ended() if line is None else broker.read(line)
        elif child.name in self._roles:
            self._role_ended(child) if line is None else self._take_report(child.name, line)

    def _take_report(self, name: str, line: bytes) -> None:
        try:
            report = decode_report(line)
        except msgspec.DecodeError as error:
            raise ProcessError(f"{name} wrote a line that is no report ({error}): {line[:200]!r}") from error
        match report:
            case Failed(reason=reason):
                raise ProcessError(f"{name}: {reason}")
            case FailedOver(gap_ms=gap_ms, epoch=epoch):
                self._display.event(f"{name} failed over to epoch {epoch} in {gap_ms:,.0f} ms", "green")
            case Sent() | Processed() | Collected():
                before = (self.state.sent, self.state.processed, self.state.collected)
                self.state.take(name, report)
                if before != (self.state.sent, self.state.processed, self.state.collected):
                    self._progress_at = time.monotonic()
                return
        self.state.take(name, report)

    def _role_ended(self, child: Child) -> None:
        if child.exit_code != 0:
            raise ProcessError(
                f"{child.name} ended with exit code {child.exit_code}: {child.last_words()} "
                f"Its log is {child.log_file}."
            )
        self._finished.add(child.name)

    def _on_line(self, child: Child, line: bytes) -> None:
        self._lines.put((child, line))

    def _on_end(self, child: Child) -> None:
        self._lines.put((child, None))

    # Stopping

    def _stop_roles(self) -> None:
        """Producers ended by themselves; workers first, so that the collector sees all that they sent."""
        for kind in ("producer", "worker", "collector"):
            self._stop_roles_of(kind)

    def _stop_roles_of(self, kind: str) -> None:
        names = {name for name in self._roles if name.startswith(kind)}
        for name in names:
            self._roles[name].ask_to_stop()
        self._wait_until(lambda: names <= self._finished, f"{', '.join(sorted(names))} to end")

    def _stop_brokers(self) -> None:
        """SIGTERM, the backup first: it must not take over from a primary that leaves."""
        for broker in sorted(self.brokers, key=lambda broker: broker.role is Role.PRIMARY):
            if not broker.stop():
                raise ProcessError(f"{broker.name} did not end cleanly on SIGTERM.")

    def _end_everything(self) -> None:
        for child in self._roles.values():
            if child.exit_code is None:
                child.kill()
        for broker in self.brokers:
            broker.end()
        self.deployment.close()


def records_directory(out: Path) -> Path:
    """Directory of the collector's files."""
    return out / "departures"
