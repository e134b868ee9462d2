"""`legato audit`: the Spark audit of a ledger, as a table and a page."""

from pathlib import Path
from typing import Annotated

import typer

from legato.cli.options import JsonOption


def audit(
    ledger: Annotated[
        Path, typer.Argument(metavar="LEDGER", help="Directory of the ledger segments.", show_default=False)
    ],
    report: Annotated[
        Path | None, typer.Option("--report", help="Write the page with pictures here.", metavar="FILE.html")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Account for every message of a ledger: lost, done twice, dead-lettered; takeovers and latencies.

    The exit code is 1 if anything was lost or done twice. Example: legato audit ./store/ledger --report audit.html
    """
    from legato.spark.job import run_audit

    raise typer.Exit(0 if run_audit(ledger, report=report, as_json=as_json) else 1)
