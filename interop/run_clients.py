"""`interop/run-clients`: rhea and python-qpid-proton as clients of Legato."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from interop.broker import ROOT, Broker, broker
from interop.outcomes import FAILED, PASSED, Outcome, Report
from interop.proton_scenarios import SCENARIOS

JAVASCRIPT = Path(__file__).parent / "javascript"
LOGS = JAVASCRIPT / "node_modules"
SCENARIO_TIMEOUT_S = 40.0
RHEA_TIMEOUT_S = 600.0


def rhea_outcomes(lines: Sequence[str]) -> Iterator[Outcome]:
    """What `scenarios.js` printed, one outcome a line."""
    for line in lines:
        kind, *fields = line.rstrip("\n").split("\t")
        if kind == "end":
            name, outcome, milliseconds, reason = fields
            yield Outcome(f"rhea.{name}", outcome, int(milliseconds), reason)


def run_rhea(served: Broker, only: Sequence[str]) -> Iterator[Outcome]:
    """All scenarios of rhea in one process."""
    command = ["node", "scenarios.js", str(served.port), *only]
    done = subprocess.run(
        command, cwd=JAVASCRIPT, stdout=subprocess.PIPE, text=True, check=False, timeout=RHEA_TIMEOUT_S
    )
    yield from rhea_outcomes(done.stdout.splitlines())


def run_proton(served: Broker, name: str) -> Outcome:
    """One scenario of python-qpid-proton in a process of its own."""
    started = time.monotonic()
    command = [sys.executable, "-m", "interop.proton_scenarios", name, served.url]
    reason = ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SCENARIO_TIMEOUT_S)
        if done.returncode:
            reason = " | ".join(done.stderr.strip().splitlines()[-4:])
    except subprocess.TimeoutExpired:
        reason = f"nothing came for {SCENARIO_TIMEOUT_S} s"
    milliseconds = int((time.monotonic() - started) * 1000)
    return Outcome(f"proton.{name}", FAILED if reason else PASSED, milliseconds, reason)


def rhea_version() -> str:
    """The version that the lock file pins."""
    lock = json.loads((JAVASCRIPT / "package-lock.json").read_text())
    version: str = lock["packages"]["node_modules/rhea"]["version"]
    return version


def main() -> int:
    """Run the scenarios; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=(), metavar="PART", help="parts of names of scenarios")
    parser.add_argument("--trace-frames", action="store_true", help="the broker's log gets every AMQP frame")
    options = parser.parse_args()
    if not (JAVASCRIPT / "node_modules" / "rhea").exists():
        subprocess.run(["npm", "ci", "--silent"], cwd=JAVASCRIPT, check=True)
    os.chdir(ROOT)
    started = time.monotonic()
    outcomes: list[Outcome] = []
    with broker(LOGS / "clients-broker.log", trace_frames=options.trace_frames) as served:
        for outcome in run_rhea(served, options.only):
            outcomes.append(outcome)
        for name in SCENARIOS:
            if not options.only or any(part in name for part in options.only):
                outcomes.append(run_proton(served, name))
    for outcome in outcomes:
        print(f"{outcome.outcome} {outcome.test} ({outcome.milliseconds} ms)")
    report = Report("clients", outcomes, time.monotonic() - started, {"rhea": rhea_version()})
    if not options.only:
        report.write("clients")
    return report.show()


if __name__ == "__main__":
    sys.exit(main())
