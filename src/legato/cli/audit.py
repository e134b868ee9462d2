"""`legato audit`: the Spark audit of a ledger, as a table and a page."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from legato.cli.options import JsonOption, LedgersArgument, one_or_groups
from legato.cli.output import say, say_json


def time_of(text: str) -> datetime:
    """A time in ISO 8601; UTC if it names no zone.

    Raises:
        typer.BadParameter: it is none.
    """
    try:
        time = datetime.fromisoformat(text.strip().removesuffix("UTC").rstrip())
    except ValueError:
        example = "2026-11-23T21:00, 2026-11-23 21:00:30Z or 2026-11-23T22:00:00+01:00"
        raise typer.BadParameter(f"{text!r} is not a time such as 2026-11-23, {example}") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def audit(
    ledgers: LedgersArgument = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            help="Write the page with pictures here; of several groups a page for each, FILE-NAME.html.",
            metavar="FILE.html",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            help="The ledger's store: the segments are in DIR/ledger, if LEDGER is left out. If no broker uses the "
            "store now, the audit knows exactly which messages still wait.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    begin: Annotated[
        datetime | None,
        typer.Option(
            "--from",
            help="Only messages stored at this time or later; UTC, if it names no other zone.",
            metavar="TIME",
            parser=time_of,
        ),
    ] = None,
    end: Annotated[
        datetime | None,
        typer.Option("--to", help="Only messages stored before this time.", metavar="TIME", parser=time_of),
    ] = None,
    destination: Annotated[
        str | None,
        typer.Option("--destination", help="Only this queue, topic or subscription.", metavar="NAME"),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            envvar="SPARK_MASTER",
            help="Where Spark runs: local[*] (default), spark://host:7077 ...",
            metavar="URL",
            show_default=False,
        ),
    ] = None,
    keep_classes: Annotated[
        bool,
        typer.Option(
            "--keep-classes",
            help="Archive Spark's classes in ~/.cache/legato (180 MB); later Spark commands start 5 s sooner.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Account for every message of a ledger: lost, done twice, dead-lettered; takeovers and latencies.

    The exit code is 1 if anything was lost or done twice. Several ledgers are those of groups of brokers: each is
    audited on its own terms, and there is one verdict.

    Examples: legato audit ./store/ledger --report audit.html; legato audit orders=/srv/one/ledger rest=/srv/two/ledger
    """
    from legato.spark.auditor.scope import Scope
    from legato.spark.job import run_audit, run_group_audits
    from legato.spark.report.audit_terminal import print_audit

    scope = Scope(_us(begin), _us(end), destination)
    found = one_or_groups(ledgers, store)
    if isinstance(found, dict):
        from legato.spark.report.group_terminal import print_group_audits

        audits = run_group_audits(found, report_path=report, scope=scope, master=master, keep_classes=keep_classes)
        if as_json:
            say_json(json.loads(audits.to_json()))
        else:
            print_group_audits(audits)
        raise typer.Exit(0 if audits.passes else 1)
    result = run_audit(
        found,
        store_dir=store,
        report_path=report,
        scope=scope,
        master=master,
        keep_classes=keep_classes,
    )
    if as_json:
        say_json(json.loads(result.to_json()))
    else:
        print_audit(result)
    if keep_classes:
        say("Spark archives its classes now, which takes half a minute, unless an archive exists.", err=True)
    raise typer.Exit(0 if result.passes else 1)


def _us(time: datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1_000_000)
