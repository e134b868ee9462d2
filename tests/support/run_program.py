"""Runs a program as Python would, with brokers of the fork server that it is lent (`forked_process.py`)."""

import runpy
import sys
from pathlib import Path


def main() -> None:
    here, program = sys.path[0], sys.argv[1]
    sys.path[0] = str(Path(here).parents[1])
    from tests.support.forked_process import quick_starts

    # What the program finds is what it would find without us.
    sys.path[0] = str(Path(program).parent)
    sys.argv = [program]
    with quick_starts():
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
