"""Entry point of `python -m legato.cli`, and the file that `spark-submit` starts."""

import sys
from pathlib import Path

# Started by its path, a script has its own directory first among those of its imports: our `queue` would hide Python's.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from legato.cli.entry import main  # noqa: E402

main()
