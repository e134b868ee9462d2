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
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            help="The ledger's store: if no broker uses it now, what waits in it is told exactly from what is lost.",
            metavar="DIR",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Account for every message of a ledger: lost, done twice, dead-lettered; takeovers and latencies.

    The exit code is 1 if anything was lost or done twice. Example: legato audit ./store/ledger --report audit.html
    """
    from legato.spark.job import print_audit, run_audit

    result = run_audit(ledger, store_dir=store, report_path=report)
    if as_json:
        typer.echo(result.to_json().decode())
    else:
        print_audit(result)
    raise typer.Exit(0 if result.passes else 1)
