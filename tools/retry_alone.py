"""Run once more, alone, the few tests that failed beside others: `python -m tools.retry_alone`.

The suite keeps four workers and two type checkers busy on two processors. A test of five real processes that gets no
processor for ten seconds may fail there without any defect of Legato. It gets a second run by itself: what fails in
that, or fails in numbers, has failed. What passes is named all the same, for whoever makes the test robust or finds
the race that it saw.
"""

import json
import subprocess
import sys
from pathlib import Path

RETRIED_MAX = 3
"""More failures than that are no accident. One may take others of its worker with it, by what it leaves open."""
FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    """0 if the tests that failed in the last run of pytest pass alone, 1 otherwise."""
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not 0 < len(failed) <= RETRIED_MAX:
        return 1
    print(f"\nOnce more, alone: {', '.join(failed)}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *failed]
    if subprocess.run(command).returncode:
        return 1
    for test in failed:
        print(f"UNSTABLE: {test} failed beside other tests and passed alone. Find out why: see CONTRIBUTING.md.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
