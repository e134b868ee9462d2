"""Gets axe-core, which looks for obstacles to people in pages, for the tests in a browser; checks its digest."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "4.14.1"
SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
"""Of `axe.min.js`."""
AXE = Path(__file__).parents[1] / ".venv" / f"axe-core-{VERSION}.min.js"


def main() -> None:
    """Put it in the environment, unless it is there."""
    if AXE.exists() and hashlib.sha256(AXE.read_bytes()).hexdigest() == SHA256:
        return
    with tempfile.TemporaryDirectory() as directory:
        command = ["npm", "pack", "--silent", f"axe-core@{VERSION}"]
        subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL)
        with tarfile.open(Path(directory) / f"axe-core-{VERSION}.tgz") as package:
            member = package.extractfile("package/axe.min.js")
            assert member is not None
            data = member.read()
    if hashlib.sha256(data).hexdigest() != SHA256:
        sys.exit(f"axe-core {VERSION} is not what it was: its digest differs.")
    AXE.write_bytes(data)


if __name__ == "__main__":
    main()
