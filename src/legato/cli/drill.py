"""`legato drill`: inject faults under load, and account for every message."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer


def drill(
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", help="Minutes during which faults are injected (default 1).", metavar="N"),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", help="Number of faults, instead of --minutes.", metavar="N")
    ] = None,
    faults: Annotated[
        str, typer.Option("--faults", help="Faults, separated by commas; see --list.", metavar="FAULTS")
    ] = "all",
    at: Annotated[
        list[str] | None,
        typer.Option("--at", help="Inject faults at this point; may be repeated; see --list.", metavar="POINT"),
    ] = None,
    every: Annotated[float, typer.Option("--every", help="Seconds between two faults.", metavar="S")] = 4.0,
    rate: Annotated[float, typer.Option("--rate", help="Messages a second for each producer.", metavar="N")] = 20.0,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Repeat the plan of an earlier drill.", metavar="S")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="Configuration of the brokers that the drill starts.", metavar="FILE"),
    ] = None,
    brokers: Annotated[
        int,
        typer.Option(
            "--brokers", help="Number of brokers that the drill starts: a primary and its backups.", metavar="N"
        ),
    ] = 2,
    url: Annotated[
        str | None,
        typer.Option("--url", help="Drill these running brokers instead: amqp://primary,backup.", metavar="URL"),
    ] = None,
    contract: Annotated[
        str, typer.Option("--contract", help="The failover contract of the Python clients.", metavar="NAME")
    ] = "legato",
    out: Annotated[
        Path, typer.Option("--out", help="Directory for store, ledger, records and logs.", metavar="DIR")
    ] = Path("drill-out"),
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the result here as JSON.", metavar="FILE")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write the page here (default OUT/report.html).", metavar="FILE.html"),
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Audit the broker's ledger with Spark, if Spark is installed.")
    ] = True,
    java: Annotated[
        str | None,
        typer.Option(
            "--java",
            help="Run Qpid JMS clients too: a classpath with legato.interop.DrillClients.",
            metavar="CLASSPATH",
        ),
    ] = None,
    spark_load: Annotated[
        bool,
        typer.Option("--spark-load", help="Run a Spark job too, which streams from one queue into another."),
    ] = False,
    users: Annotated[
        bool,
        typer.Option("--users", help="Brokers have users and roles: clients may use queues, others administer."),
    ] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List the faults and the points, and exit.")] = False,
) -> None:
    """Run load on a primary and its backups, inject faults, and account for every message.

    Starts a primary and a backup (or more: --brokers) over a scratch store with your settings (--config), or takes a
    running pair (--url; then only faults of the network and of clients). Producers and consumers in every
    acknowledgement mode, transactions and durable subscriptions record the outcome of every call. The exit code is 0
    only if nothing was lost, done twice or falsely told.

    Faults: kill, kill-both, switchover, stop, loop-stuck, kill-client, stop-client, cut, freeze, late, half-close,
    partition, full-disk, full-disk-kill, full-disk-switchover, slow-disk, clock-jump, kill-reader, stop-reader,
    delete-lock, kill-driver; or all, which is the default. kill-driver needs --spark-load, and is one of all only with
    it.

    Examples: legato drill; legato drill --minutes 10 --config legato.toml; legato drill --faults kill,cut --seed 7;
    legato drill --faults kill --at between-commit-and-confirm --count 20
    """
    if show_list:
        _show_list()
        return
    from legato.demo.display import make_console
    from legato.drill.faults import parse_faults, parse_points
    from legato.drill.job import run_drill
    from legato.drill.options import DrillOptions

    options = DrillOptions(
        faults=tuple(parse_faults(faults, owned=url is None, spark_load=spark_load)),
        points=tuple(parse_points(at or [], owned=url is None, ledger=spark, spark_load=spark_load)),
        minutes=1.0 if minutes is None and count is None else minutes,
        count=count,
        every_s=every,
        rate_per_s=rate,
        seed=seed,
        config=config,
        brokers=brokers,
        url=url,
        out=out,
        json_file=json_file,
        report_file=report,
        spark=spark,
        contract=contract,
        java=java,
        spark_load=spark_load,
        users=users,
    )
    outcome = run_drill(options, make_console())
    raise typer.Exit(0 if outcome.passes else 1)


def _show_list() -> None:
    from legato.drill.faults import ANY_INSTANT, FAULTS, POINTS, SOME_POINT

    faults = {
        str(fault): f"{'+' if text.spark_load else ' ' if text.owned else '*'} {text.does}"
        for fault, text in FAULTS.items()
    }
    _say_table("Faults (--faults); * also with --url, + only with --spark-load:", faults)
    further = {
        SOME_POINT: "One of these points, at random.",
        ANY_INSTANT: "No point: a random instant. Without --at, half of the faults.",
    }
    _say_table("Points (--at):", POINTS | further)


def _say_table(title: str, rows: Mapping[Any, str]) -> None:
    from rich.table import Table

    from legato.terminal import Terminal, add_row

    console = Terminal()
    console.print(title)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, text in rows.items():
        add_row(table, f"  {name}", text)
    console.print(table)
