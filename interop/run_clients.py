"""`interop/run-clients`: rhea and python-qpid-proton as clients of Legato."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from interop.broker import REPLICATED_HELP, ROOT, Broker, log_of_brokers
from interop.outcomes import FAILED, PASSED, SKIPPED, Outcome, Report
from interop.proton_scenarios import SCENARIOS

JAVASCRIPT = Path(__file__).parent / "javascript"
LOGS = JAVASCRIPT / "node_modules"
SCENARIO_TIMEOUT_S = 40.0
RHEA_TIMEOUT_S = 600.0
EXAMPLES_TIMEOUT_S = 300.0
EXAMPLES_PORT = 5672
EXAMPLES = (
    "test_helloworld",
    "test_helloworld_blocking",
    "test_helloworld_direct",
    "test_simple_send_recv",
    "test_client_server",
    "test_sync_client_server",
    "test_client_server_tx",
    "test_sync_client_server_tx",
    "test_tx_send_tx_recv",
    "test_selected_recv",
    "test_db_send_recv",
)
"""Those that need a broker, and one that needs none; of the rest, some need none, some the package tornado."""
EXAMPLE = re.compile(r"(test_\w+) \(.*\) \.\.\. (ok|FAIL|ERROR|skipped)")


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


def example_outcomes(lines: Sequence[str]) -> Iterator[Outcome]:
    """What `unittest -v` says of the examples' own tests."""
    for line in lines:
        if found := EXAMPLE.match(line):
            outcome = {"ok": PASSED, "skipped": SKIPPED}.get(found[2], FAILED)
            yield Outcome(f"proton-examples.{found[1]}", outcome, 0, line if outcome == FAILED else "")


def run_examples(directory: Path, log: Path) -> list[Outcome]:
    """The test of python-qpid-proton's examples, in a checkout; they all connect to localhost:5672."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "unittest", "-v", *(f"test_examples.ExamplesTest.{name}" for name in EXAMPLES)]
    with Broker(log, port=EXAMPLES_PORT):
        done = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=EXAMPLES_TIMEOUT_S,
            env={**os.environ, "PATH": path},
        )
    outcomes = list(example_outcomes(done.stderr.splitlines()))
    missing = set(EXAMPLES) - {each.test.partition(".")[2] for each in outcomes}
    return [*outcomes, *(Outcome(f"proton-examples.{name}", FAILED, 0, done.stderr[-400:]) for name in sorted(missing))]


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
    parser.add_argument(
        "--proton-examples",
        type=Path,
        metavar="DIRECTORY",
        help="python/examples of a checkout of qpid-proton: run their own test too",
    )
    parser.add_argument("--replicated", action="store_true", help=REPLICATED_HELP)
    options = parser.parse_args()
    if not (JAVASCRIPT / "node_modules" / "rhea").exists():
        subprocess.run(["npm", "ci", "--silent"], cwd=JAVASCRIPT, check=True)
    os.chdir(ROOT)
    started = time.monotonic()
    outcomes: list[Outcome] = []
    with (
        log_of_brokers(replicated=options.replicated) as log_url,
        Broker(LOGS / "clients-broker.log", trace_frames=options.trace_frames, log_url=log_url) as served,
    ):
        outcomes += run_rhea(served, options.only)
        for name in SCENARIOS:
            if not options.only or any(part in name for part in options.only):
                outcomes.append(run_proton(served, name))
    if options.proton_examples:
        outcomes += run_examples(options.proton_examples, LOGS / "examples-broker.log")
    for outcome in outcomes:
        print(f"{outcome.outcome} {outcome.test} ({outcome.milliseconds} ms)")
    report = Report("clients", outcomes, time.monotonic() - started, {"rhea": rhea_version()})
    if not options.only:
        report.write("clients-replicated" if options.replicated else "clients")
    return report.show()


if __name__ == "__main__":
    sys.exit(main())
