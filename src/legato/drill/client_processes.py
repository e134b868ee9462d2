"""The client processes of a drill: start, read reports, kill, restart, stop."""

import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from legato.drill.clients import Orders
from legato.drill.load import Client
from legato.drill.reports import ClientFailedOver, Ready, Totals, decode_report
from legato.processes.child import Child, ProcessError
from legato.processes.reports import Failed

PYTHON = (sys.executable, "-m")
JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
JAVA_NAME = "java"


class Member:
    """One process of clients, through all its lives."""

    def __init__(self, name: str, program: Sequence[str], arguments: Sequence[str]) -> None:
        self.name = name
        self.program = program
        self.arguments = arguments
        self.child: Child | None = None
        self.ready = False
        self.ended = False
        self.dying = False
        """It was killed on purpose, and its end is no news."""
        self.asked = False
        """It was asked to stop, and is to end."""
        self.before = Totals(stored=0, seen=0, rolled_back=0)
        """What its earlier lives did."""
        self.totals = Totals(stored=0, seen=0, rolled_back=0)

    def has_begun(self) -> bool:
        """Whether its clients are connected, or have given up."""
        return self.ready or self.ended

    def has_ended(self) -> bool:
        """Whether it ended, asked or not."""
        return self.ended


class ClientProcesses:
    """All processes of clients of a drill.

    Args:
        directory: of the drill; logs and records are below.
        environment: variables that are added to ours.
        on_failover: hears of every failover of a client.
    """

    def __init__(
        self,
        directory: Path,
        environment: dict[str, str] | None,
        on_failover: Callable[[ClientFailedOver], None],
    ) -> None:
        self.records = directory / "records"
        self.records.mkdir(parents=True, exist_ok=True)
        self.members: dict[str, Member] = {}
        self.complaints: list[str] = []
        self._logs = directory / "logs"
        self._environment = environment
        self._on_failover = on_failover
        self._lines: queue.SimpleQueue[tuple[Child, bytes | None]] = queue.SimpleQueue()

    # -- lives

    def start(self, name: str, url: str, clients: list[Client], rate_per_s: float, *, lenient: bool) -> None:
        """Start a process of Python clients."""
        orders = Orders(url=url, records=str(self.records), clients=clients, rate_per_s=rate_per_s, lenient=lenient)
        arguments = ["legato.drill.clients", msgspec.json.encode(orders).decode()]
        self._start(self.members.setdefault(name, Member(name, PYTHON, arguments)))

    def start_java(self, classpath: str, url: str, works: list[str], rate_per_s: float) -> None:
        """Start the process of the Java clients."""
        program = [*JAVA, "-cp", classpath, "legato.interop.DrillClients"]
        arguments = [url, str(self.records), str(rate_per_s), *works]
        self._start(self.members.setdefault(JAVA_NAME, Member(JAVA_NAME, program, arguments)))

    def _start(self, member: Member) -> None:
        member.ready = member.dying = member.asked = False
        member.before = _sum([member.before, member.totals])
        member.totals = Totals(stored=0, seen=0, rolled_back=0)
        member.child = Child(
            member.name,
            member.arguments,
            program=member.program,
            log_file=self._logs / f"{member.name}.log",
            on_line=lambda child, line: self._lines.put((child, line)),
            on_end=lambda child: self._lines.put((child, None)),
            environment=self._environment,
        )

    def kill(self, member: Member) -> None:
        """SIGKILL: it tells nobody."""
        assert member.child is not None
        if member.child.exit_code is not None and not member.ended:
            self._ended(member, member.child)
        member.dying = True
        member.child.kill()

    def start_again(self, member: Member) -> None:
        """Another life, with the same orders."""
        self._start(member)

    def stop(self, member: Member) -> None:
        """SIGSTOP."""
        assert member.child is not None
        member.child.send_signal(signal.SIGSTOP)

    def go_on(self, member: Member) -> None:
        """SIGCONT."""
        assert member.child is not None
        member.child.send_signal(signal.SIGCONT)

    def chosen(self, chance: float, pid: int | None = None) -> Member:
        """The process of that number if it is one of ours, otherwise any, as `chance` from 0 to 1 says."""
        alive = [member for member in self.members.values() if not member.ended]
        held = [member for member in alive if member.child is not None and member.child.pid == pid]
        return held[0] if held else alive[min(int(chance * len(alive)), len(alive) - 1)]

    def ask_to_stop(self, name: str) -> None:
        """Let a process finish what it does, and end."""
        member = self.members[name]
        assert member.child is not None
        # One that has ended by now was not asked, even if nobody has read so yet.
        member.asked = member.child.exit_code is None
        member.child.ask_to_stop()

    def end(self) -> None:
        """Leave no process behind."""
        for member in self.members.values():
            if member.child is not None and member.child.exit_code is None:
                member.child.kill()

    def memory_bytes(self) -> dict[str, int]:
        """Resident memory of each process now."""
        return {
            name: resident_bytes(member.child.pid)
            for name, member in self.members.items()
            if member.child is not None and member.child.exit_code is None
        }

    # -- what they say

    @property
    def ended(self) -> list[str]:
        """Processes that ended, asked or not."""
        return [member.name for member in self.members.values() if member.ended]

    @property
    def totals(self) -> Totals:
        """Totals of all processes, over all restarts."""
        return _sum([each for member in self.members.values() for each in (member.before, member.totals)])

    def poll(self, timeout_s: float) -> None:
        """Take what they said, waiting for the first line for `timeout_s` seconds at most.

        Raises:
            ProcessError: a line is no report.
        """
        deadline = time.monotonic() + timeout_s
        try:
            child, line = self._lines.get(timeout=timeout_s)
            while True:
                self._take(child, line)
                if time.monotonic() > deadline:
                    return
                child, line = self._lines.get_nowait()
        except queue.Empty:
            pass

    def _take(self, child: Child, line: bytes | None) -> None:
        member = self.members[child.name]
        if child is not member.child:
            return
        if line is None:
            if not member.dying:
                self._ended(member, child)
            return
        try:
            report = decode_report(line)
        except msgspec.DecodeError as error:
            if member.dying:  # it was cut off
                return
            raise ProcessError(f"{child.name} wrote a line that is no report ({error}): {line[:200]!r}") from error
        match report:
            case Ready():
                member.ready = True
            case Totals():
                member.totals = report
            case ClientFailedOver():
                self._on_failover(report)
            case Failed(reason=reason):
                self.complaints.append(f"The {child.name} gave up: {reason}")

    def _ended(self, member: Member, child: Child) -> None:
        member.ended = True
        if child.exit_code != 0:
            self.complaints.append(f"The {child.name} ended with exit code {child.exit_code}: {child.last_words()}")
        elif not member.asked:
            self.complaints.append(f"The {child.name} ended before it was asked to stop: {child.last_words()}")


def _sum(totals: Sequence[Totals]) -> Totals:
    return Totals(
        stored=sum(each.stored for each in totals),
        seen=sum(each.seen for each in totals),
        rolled_back=sum(each.rolled_back for each in totals),
    )


def resident_bytes(pid: int) -> int:
    """Resident memory of a process; 0 if unknown."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
