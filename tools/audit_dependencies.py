"""Looks for known vulnerabilities of the versions in requirements.lock: `make audit-dependencies`.

pip-audit does the work, in an environment of its own below `build/`. Exit code 0: none is known; 1: some are, and they
are printed; 2: nobody could be asked, so that nothing is known.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / "build" / "audit-env"
PIP_AUDIT = "pip-audit==2.10.1"
FOUND, NOT_ASKED = 1, 2

ADVICE = (
    "Run it on a machine that reaches pypi.org directly (a mirror of packages has no advisories), or ask osv.dev: "
    'make audit-dependencies ARGS="-s osv". Nothing else needs this: `make install` and `make test` do without.'
)


def why_not_asked(words: str) -> str | None:
    """Why pip-audit could not ask for advisories; None if it could.

    Args:
        words: what it wrote to its standard error.
    """
    lines = words.strip().splitlines()
    if any("Dependency not found on PyPI" in line for line in lines):
        return "what answers for pypi.org here does not know the packages of requirements.lock"
    if lines and ("ConnectionError" in lines[-1] or "Could not connect" in lines[-1] or "ProxyError" in lines[-1]):
        return lines[-1].partition(": ")[2] or lines[-1]
    return None


def main(arguments: Sequence[str]) -> int:
    """Ask for each version in the lock file; returns the exit code."""
    program = ENVIRONMENT / "bin" / "pip-audit"
    if not program.exists():
        venv.create(ENVIRONMENT, with_pip=True)
        subprocess.run([ENVIRONMENT / "bin" / "python", "-m", "pip", "install", "--quiet", PIP_AUDIT], check=True)
    locked = ("--requirement", "requirements.lock", "--require-hashes", "--disable-pip", "--strict")
    done = subprocess.run([program, *locked, *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode and (why := why_not_asked(done.stderr)):
        print(f"The advisories could not be asked for: {why}.\n{ADVICE}", file=sys.stderr)
        return NOT_ASKED
    print(done.stderr, end="", file=sys.stderr)
    return FOUND if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
