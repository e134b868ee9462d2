"""Writes requirements.lock: an exact version of each package, and the hashes of its files.

    python tools/lock.py              what is in the lock file stays, as far as pyproject.toml allows it
    python tools/lock.py --upgrade    the newest versions

pip-compile (pip-tools) does the work, in an environment of its own below `build/`. What is needed to build Legato is
in the lock file too, so that nothing is installed whose hash is not known. It takes minutes: the hashes of packages
that a registry has without them are computed from the files.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
PIP_TOOLS = "pip-tools==7.6.2"
OPTIONS = (
    *("--quiet", "--generate-hashes", "--allow-unsafe", "--strip-extras", "--no-annotate", "--no-header"),
    *("--no-emit-find-links", "--no-emit-index-url", "--no-emit-trusted-host", "--extra", "dev", "--all-build-deps"),
)
HEADER = """\
# Exact versions with hashes, for pip install --require-hashes; `make lock` writes it.
"""


def main() -> None:
    """Write the lock file anew."""
    build = ROOT / "build"
    environment, compiled = build / "lock-env", build / "requirements.txt"
    shutil.rmtree(environment, ignore_errors=True)
    venv.create(environment, with_pip=True)
    subprocess.run([environment / "bin" / "python", "-m", "pip", "install", "--quiet", PIP_TOOLS], check=True)
    shutil.copyfile(LOCK, compiled)
    command = [environment / "bin" / "pip-compile", *OPTIONS, *sys.argv[1:], "--output-file", compiled]
    subprocess.run([*command, "pyproject.toml"], cwd=ROOT, check=True)
    LOCK.write_text(HEADER + cleaned(compiled.read_text()))
    shutil.rmtree(build)


def cleaned(compiled: str) -> str:
    """Requirements without comments, and without Legato itself, which its own extras name."""
    return re.sub(r"^(#.*|legato @ .*|\s*)\n", "", compiled, flags=re.MULTILINE)


if __name__ == "__main__":
    main()
