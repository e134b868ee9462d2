"""Frame of the questions F1 to F9: Legato beside Artemis, both up and warm, the same load at each in turn.

A case is one load with its figures and a goal for each; its ratio is Legato's figure over that of Artemis, of adjacent
runs. The processor time of all of a broker's processes is taken with each run.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench import artemis
from bench.figures import Goal, Pair, spread, summary
from bench.harness import finish, note, pairs_table, temporary_store
from bench.processes import LEGATO, broker, processor_s_of_family

LEGATO_NAME, ARTEMIS_NAME = "Legato", f"Artemis {artemis.VERSION}"
WARM_UP = 300_000
"""Messages that a virtual machine is given before it is measured."""


@dataclass(frozen=True)
class Served:
    """A running broker."""

    name: str
    port: int
    pid: int

    def processor_s(self) -> float:
        """Seconds of processor time that all of its processes have had."""
        return processor_s_of_family(self.pid)


@dataclass(frozen=True)
class Measured:
    """What one run of a load gave."""

    figures: tuple[float, ...]
    count: int
    """Messages, or transactions, of which the processor time is shared out."""
    processor_s: float | None = None
    """Of the broker, where not the whole run is what is measured."""


@dataclass(frozen=True)
class Aim:
    """One figure of a load: its unit, and the goal for its ratio."""

    unit: str
    goal: Goal | None


@dataclass(frozen=True)
class Case:
    """A load that is run at each side in turn."""

    name: str
    run: Callable[[Served], Measured]
    aims: tuple[Aim, ...]
    warm_up: int = WARM_UP
    """So many messages or transactions go through Artemis first, and one run through Legato."""
    warm: Callable[[Served], object] | None = None
    """Warms instead, where runs of the load itself would take too long for it."""


@dataclass
class Outcome:
    """The pairs of one figure of a case."""

    name: str
    aim: Aim
    pairs: list[Pair] = field(default_factory=list)
    processor_us: list[Pair] = field(default_factory=list)
    """Of all processes of each broker, for one message."""
    peer: str = ARTEMIS_NAME

    def line(self) -> dict[str, Any]:
        """As JSON."""
        found = summary(self.pairs, self.aim.goal)
        named: dict[str, Any] = {"case": self.name, "unit": self.aim.unit}
        named |= found | {"range": [found["min"], found["max"]]}
        if self.processor_us:
            own, peer = zip(*map(_both, self.processor_us), strict=True)
            named |= {"processor_us": round(spread(own).median, 2), "processor_us_peer": round(spread(peer).median, 2)}
        return named

    @property
    def distance(self) -> float:
        """How far the ratio is on the good side of its goal, 1 being at it."""
        if self.aim.goal is None:
            return math.inf
        ratio = spread([pair.ratio for pair in self.pairs]).median
        return ratio / self.aim.goal.bound if self.aim.goal.at_least else self.aim.goal.bound / ratio

    def text(self) -> str:
        """As a table, with the processor time beneath."""
        lines = [
            f"{self.name}: goal {self.aim.goal}",
            pairs_table(LEGATO_NAME, self.peer, self.aim.unit, self.pairs),
        ]
        if self.processor_us:
            own, peer = (spread(values).median for values in zip(*map(_both, self.processor_us), strict=True))
            lines.append(f"processor time, us for each (medians): {own:.1f} and {peer:.1f}")
        return "\n".join(lines)


def _both(pair: Pair) -> tuple[float, float]:
    return pair.figure, pair.peer


@contextmanager
def both(directory: Path) -> Iterator[tuple[Served, Served]]:
    """Legato and Artemis, both active, on stores of their own beneath `directory`."""
    with artemis.running(directory / "artemis") as peer, broker(LEGATO, directory / "legato") as own:
        yield Served(LEGATO_NAME, own.port, own.process.pid), Served(ARTEMIS_NAME, peer.port, peer.process.pid)


def measure(case: Case, served: Served) -> tuple[Measured, float]:
    """One run, and the processor time that it took of the broker, in us for each message."""
    before = served.processor_s()
    found = case.run(served)
    processor_s = served.processor_s() - before if found.processor_s is None else found.processor_s
    processor_us = processor_s / found.count * 1e6
    figures = ", ".join(f"{value:,.4g} {aim.unit}" for value, aim in zip(found.figures, case.aims, strict=True))
    note(f"{case.name}, {served.name}: {figures}; {processor_us:.1f} us of processor time for each")
    return found, processor_us


def warm(case: Case, own: Served, peer: Served) -> None:
    """Have both do enough of the load, or what stands for it, that what is measured is not their beginning."""
    if case.warm:
        case.warm(own)
        case.warm(peer)
        return
    case.run(own)
    warmed = 0
    while warmed < case.warm_up:
        warmed += case.run(peer).count


def compare(case: Case, own: Served, peer: Served, pairs: int) -> list[Outcome]:
    """Warm both, then run them in turn."""
    warm(case, own, peer)
    outcomes = [Outcome(f"{case.name}, {aim.unit}" if len(case.aims) > 1 else case.name, aim) for aim in case.aims]
    for _ in range(pairs):
        (found, processor_us), (of_peer, of_peer_us) = measure(case, own), measure(case, peer)
        for outcome, figure, peer_figure in zip(outcomes, found.figures, of_peer.figures, strict=True):
            outcome.pairs.append(Pair(figure, peer_figure))
            outcome.processor_us.append(Pair(processor_us, of_peer_us))
    return outcomes


def judged(question: str, outcomes: Sequence[Outcome], **details: Any) -> dict[str, Any]:
    """The last line: the figures of the case that is farthest from its goal; met is the question if all cases are."""
    lines = [outcome.line() for outcome in outcomes]
    worst = min(outcomes, key=lambda outcome: outcome.distance).line()
    return {
        "question": question,
        **worst,
        "met": all(line["met"] for line in lines if line["goal"]),
        "sides": [LEGATO_NAME, outcomes[0].peer],
        "cases": lines,
        **details,
    }


def conclude(name: str, question: str, outcomes: Sequence[Outcome], **details: Any) -> None:
    """Print the tables and the last line, and keep the result."""
    result = judged(question, outcomes, **details)
    text = "\n\n".join(outcome.text() for outcome in outcomes)
    runs = [
        {"case": outcome.name, "figure": round(pair.figure, 3), "peer": round(pair.peer, 3)}
        for outcome in outcomes
        for pair in outcome.pairs
    ]
    finish(name, question, text, result, runs=runs)


def require_artemis() -> None:
    """End with code 2 and a sentence where Artemis cannot run."""
    try:
        artemis.home()
    except artemis.ArtemisAbsent as absent:
        print(absent, file=sys.stderr)
        sys.exit(2)


def only(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the options of these questions."""
    parser.add_argument("--only", default="", help="only the cases whose name has this in it")
    parser.add_argument(
        "--warm-up", type=int, default=None, help="messages or transactions through Artemis before each case"
    )
    return parser


def answer(name: str, question: str, cases: Sequence[Case], given: argparse.Namespace) -> None:
    """Run all cases of a question, and conclude; exit code 2 where Artemis cannot run."""
    require_artemis()
    chosen = [case for case in cases if given.only in case.name]
    if not chosen:
        sys.exit(f"No case has {given.only!r} in its name; there are: {'; '.join(case.name for case in cases)}.")
    outcomes: list[Outcome] = []
    with temporary_store() as directory, both(directory) as (own, peer):
        for case in chosen:
            warm_up = case.warm_up if given.warm_up is None else given.warm_up
            outcomes += compare(replace(case, warm_up=warm_up), own, peer, given.pairs)
    conclude(name, question, outcomes, versions_of_peers={"artemis": artemis.VERSION})


def at_least(unit: str, bound: float) -> tuple[Aim, ...]:
    """One figure of which more is better."""
    return (Aim(unit, Goal(bound, at_least=True)),)


def rate_of(results: Sequence[Mapping[str, Any]], count: int) -> float:
    """How many a second there were of `count`, from the first that began to the last that ended."""
    elapsed_s: float = max(each["ended"] for each in results) - min(each["started"] for each in results)
    return count / elapsed_s
