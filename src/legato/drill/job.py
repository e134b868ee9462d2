"""`legato drill` from start to end: run, audit, comparison with the clients' records, report."""

import importlib.util
import shutil

from rich.console import Console

from legato.client import ConnectionFactory
from legato.client.failover.uri import short_wait
from legato.drill.checker import judge_records
from legato.drill.database import judge_database
from legato.drill.disk import unmount
from legato.drill.history import audit_log, dead_letters
from legato.drill.options import DrillOptions
from legato.drill.outcome import Outcome, outcome_of, outcome_table, write_json
from legato.drill.run import Run
from legato.drill.target import named, own
from legato.errors import ConfigError
from legato.processes.child import ProcessError
from legato.processes.scratch import choose_seed, prepare_directory, see_writable
from legato.store.environment import DATA_NAME

REPORT_NAME = "report.html"


def run_drill(options: DrillOptions, console: Console) -> Outcome:
    """Perform a drill and judge it.

    Raises:
        ConfigError: an option or the machine is not fit for the drill, or lacks Spark for `spark_load`.
        JMSError: no broker can be reached at `url`.
        StoreError: the store cannot be read afterwards.
    """
    if options.spark_load and not spark_is_there():
        raise ConfigError("--spark-load needs Spark: pip install 'legato[spark]', and Java 17 or newer.")
    if options.url is not None:
        # The drill's clients reach it by relays, which take connections whether it is there or not.
        ConnectionFactory(options.url, **short_wait(options.url)).create_connection().close()
    unmount(options.out / "store")
    prepare_directory(options.out, "drill")
    see_writable("--json", options.json_file)
    see_writable("--report", options.report_file)
    seed = choose_seed() if options.seed is None else options.seed
    spark = options.spark and options.url is None and spark_is_there()
    if options.url is not None:
        target = named(options.url, options.contract)
    else:
        target = own(
            options.out,
            options.config,
            ledger=spark,
            contract=options.contract,
            brokers=options.brokers,
            users=options.users,
        )
    console.print(f"seed {seed}; all files are in {options.out}", highlight=False)
    run = Run(options, target, seed, console)
    try:
        result = run.perform()
    except ProcessError as error:
        # It could not go on; what the clients have on record is judged all the same.
        result = run.result
        result.complaints.append(str(error))
    # Brokers that could not begin have left nothing to be read.
    stored = target.pair is not None and (target.pair.store / DATA_NAME).exists()
    dead = dead_letters(target.pair.store) if target.pair is not None and stored else result.dead
    findings = judge_records(run.records, dead)
    findings += [judge_database(run.records, flow) for flow in run.staged]
    audit = history = None
    if target.pair is not None and stored and spark:
        console.print("Spark reads the ledger ...", style="dim")
        from legato.spark.job import run_audit

        audit = run_audit(target.pair.store / "ledger", store_dir=target.pair.store)
    elif target.pair is not None and stored:
        history = audit_log(target.pair.store)
    outcome = outcome_of(seed, result, findings, audit, history, options.contract)
    console.print(outcome_table(outcome))
    if importlib.util.find_spec("pyspark") is not None:
        # Its pictures are the audit's.
        from legato.drill.page import write_page

        report = options.report_file or options.out / REPORT_NAME
        write_page(report, outcome, result, audit)
        console.print(f"The page with pictures: {report}", highlight=False, soft_wrap=True)
    if options.json_file is not None:
        write_json(outcome, options.json_file)
    return outcome


def spark_is_there() -> bool:
    """Whether Spark can audit: it needs pyspark and pyarrow, and Java."""
    return all(importlib.util.find_spec(name) for name in ("pyspark", "pyarrow")) and shutil.which("java") is not None
