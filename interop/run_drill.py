"""`interop/run-drill`: `legato drill` with Qpid JMS clients beside the Python ones, if Maven and Java are there."""

from __future__ import annotations

import shutil
import sys

from interop.maven import build
from legato.cli.main import main


def run() -> None:
    """Build the Java clients where that is possible, and drill with the command line's options."""
    if shutil.which("java") and shutil.which("mvn"):
        sys.argv += ["--java", ":".join(build().classpath)]
    else:
        print("No Java clients: Java and Maven are needed for them.", file=sys.stderr)
    sys.argv.insert(1, "drill")
    main()


if __name__ == "__main__":
    run()
