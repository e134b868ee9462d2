"""Outcomes of a suite: one for each test, the file that keeps them, and their summary."""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "interop" / "results"
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True)
class Outcome:
    """How one test ended."""

    test: str
    outcome: str
    milliseconds: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Report:
    """All outcomes of one run of a suite."""

    suite: str
    outcomes: Sequence[Outcome]
    seconds: float
    versions: Mapping[str, str] = field(default_factory=dict)
    upstream_errors: Mapping[str, str] = field(default_factory=dict)
    """Tests that fail through no fault of Legato's, each with its evidence."""

    def count(self, outcome: str) -> int:
        return sum(each.outcome == outcome for each in self.outcomes)

    @property
    def failures(self) -> list[Outcome]:
        """What failed and should not have: all but the proven upstream errors."""
        return [each for each in self.outcomes if each.outcome == FAILED and each.test not in self.upstream_errors]

    def write(self, name: str) -> Path:
        """Leave a file that a program can read in `interop/results`."""
        path = RESULTS / f"{name}.json"
        RESULTS.mkdir(exist_ok=True)
        document = {
            "suite": self.suite,
            "commit": commit(),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "versions": {**versions_here(), **self.versions},
            "passed": self.count(PASSED),
            "failed": self.count(FAILED),
            "skipped": self.count(SKIPPED),
            "seconds": round(self.seconds, 1),
            "upstream_errors": {
                each.test: self.upstream_errors[each.test]
                for each in self.outcomes
                if each.outcome == FAILED and each.test in self.upstream_errors
            },
            "tests": [asdict(each) for each in self.outcomes],
        }
        path.write_text(json.dumps(document, indent=1) + "\n")
        return path

    def show(self) -> int:
        """Print what did not pass and the totals; returns the exit code."""
        for each in self.outcomes:
            if each.outcome == FAILED:
                known = "KNOWN " if each.test in self.upstream_errors else ""
                print(f"{known}FAILED {each.test}: {each.reason[:400]}")
        print(f"took {self.seconds:.0f} s")
        print(f"{self.count(PASSED)} passed, {self.count(FAILED)} failed, {self.count(SKIPPED)} skipped", flush=True)
        return 1 if self.failures or not self.outcomes else 0


def commit() -> str:
    """The commit that ran, with a mark if files differ from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def versions_here() -> dict[str, str]:
    """Versions of what every run shares."""
    return {
        "legato": version("legato"),
        "python-qpid-proton": version("python-qpid-proton"),
        "python": platform.python_version(),
    }
