"""A Celery worker or a FastStream service while its brokers are killed again and again; every order must be billed.

python -m tests.stress.service_kills celery --kills 20
python -m tests.stress.service_kills faststream --kills 20 --audit
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from legato.testing import broker_pair
from tests.support.services import under_kills


def main() -> int:
    """One run; returns 1 if an order is missing, or anything is left."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("service", choices=["celery", "faststream"])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--orders", type=int, default=1000)
    parser.add_argument("--audit", action="store_true", help="have Spark account for every message in the ledger")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        with broker_pair(Path(directory), options=() if options.audit else ("--no-ledger",)) as pair:
            account = under_kills(options.service, Path(directory), pair, kills=options.kills, orders=options.orders)
        print(account)
        if not account.complete:
            return 1
        if options.audit:
            ledger = pair.store / "ledger"
            command = [sys.executable, "-m", "legato.cli", "audit", str(ledger), "--store", str(pair.store)]
            return subprocess.run(command, check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
