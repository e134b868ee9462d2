"""Progress display of a run: a live panel on a terminal, plain lines elsewhere."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from legato.demo.progress import RunState
from legato.processes.broker_process import BrokerProcess, Role
from legato.terminal import Terminal

LINE_INTERVAL_S = 2.0
REFRESH_PER_SECOND = 8
PLAIN_WIDTH = 140

ROLE_STYLES = {
    Role.STARTING: "yellow",
    Role.BACKUP: "cyan",
    Role.PRIMARY: "bold green",
    Role.DEAD: "bold red",
    Role.STOPPED: "dim",
}


def make_console() -> Console:
    """Standard output; tables in a file or a pipe are as wide as they like to be."""
    console = Terminal()
    return console if console.is_terminal else Terminal(width=PLAIN_WIDTH)


class Display(Protocol):
    """Shows a run; used as a context manager around it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def event(self, text: str, style: str = "") -> None:
        """Something happened that stays on the screen."""

    def refresh(self) -> None:
        """Show how things are now; called often."""


def make_display(console: Console, state: RunState, brokers: Sequence[BrokerProcess]) -> Display:
    """The display that fits the console."""
    return LiveDisplay(console, state, brokers) if console.is_terminal else LineDisplay(console, state, brokers)


class LineDisplay:
    """A line every two seconds and one for each event."""

    def __init__(self, console: Console, state: RunState, brokers: Sequence[BrokerProcess]) -> None:
        self._console = console
        self._state = state
        self._brokers = brokers
        self._next_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def event(self, text: str, style: str = "") -> None:
        self._console.print(f"= {text}", style=style, highlight=False, soft_wrap=True)

    def refresh(self) -> None:
        now = time.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + LINE_INTERVAL_S
        state = self._state
        self._console.print(
            f"sent {state.sent:,}  processed {state.processed:,}  collected {state.collected:,} of {state.flights:,}  "
            f"{state.rate:,.0f} flights/s  " + "  ".join(f"{broker.name}={broker.role}" for broker in self._brokers),
            highlight=False,
            soft_wrap=True,
        )


class LiveDisplay:
    """Progress bars, brokers and takeovers, redrawn in place."""

    def __init__(self, console: Console, state: RunState, brokers: Sequence[BrokerProcess]) -> None:
        self._state = state
        self._brokers = brokers
        self._live = Live(
            console=console, get_renderable=self._draw, refresh_per_second=REFRESH_PER_SECOND, transient=False
        )

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def event(self, text: str, style: str = "") -> None:
        self._live.console.print(f"= {text}", style=style, highlight=False)

    def refresh(self) -> None:
        """Nothing to do: the panel redraws itself."""

    def _draw(self) -> Panel:
        parts = [progress_table(self._state), broker_table(self._brokers)]
        if self._state.takeovers:
            parts.append(takeover_table(self._state))
        return Panel(Group(*parts), title="Legato", subtitle=f"{self._state.rate:,.0f} flights/s", padding=(1, 2))


def progress_table(state: RunState) -> Table:
    """How many flights are sent, processed and collected."""
    table = Table.grid(padding=(0, 2))
    for label, done in (("sent", state.sent), ("processed", state.processed), ("collected", state.collected)):
        table.add_row(
            label, ProgressBar(total=state.flights, completed=done, width=40), f"{done:>9,} / {state.flights:,}"
        )
    return table


def broker_table(brokers: Sequence[BrokerProcess]) -> Table:
    """Table of the brokers: the primary and its epoch."""
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for column in ("broker", "process", "port", "role", "epoch"):
        table.add_column(column)
    for broker in brokers:
        epoch = str(broker.epoch) if broker.role is Role.PRIMARY else ""
        role = Text(broker.role, style=ROLE_STYLES[broker.role])
        table.add_row(broker.name, str(broker.pid), str(broker.port), role, epoch)
    return table


def takeover_table(state: RunState) -> Table:
    """Each takeover's gap as clients saw it."""
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for column in ("takeover", "longest gap a client saw", "clients"):
        table.add_column(column)
    for takeover in sorted(state.takeovers.values(), key=lambda one: one.epoch):
        table.add_row(f"epoch {takeover.epoch}", f"{takeover.gap_ms:,.0f} ms", str(takeover.clients))
    return table
