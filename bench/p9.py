"""P9: from facts to gold tables, and a whole audit, on two cores: rate, growth with size, and fixed cost."""

import os
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from statistics import median

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.facts import FACTS_IN_A_SEGMENT, write_facts
from bench.harness import finish, note, options, table, temporary_store
from legato.spark import LedgerTables, audit, start_session
from legato.spark.ledger.fact_frames import aggregate, read_segments

GOAL_FACTS_PER_S = 800_000
AUDIT_GOAL_FACTS = 5_000_000
AUDIT_GOAL_S = 15.0


def processor_s(spark: SparkSession) -> float:
    """Processor time of Spark's process tree so far: what a busy machine does not change."""
    context = spark.sparkContext
    assert context._gateway is not None
    # Processes that read the ledger for an audit are our own children, and over.
    ours = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = 0
    pending = [str(context._gateway.proc.pid)]
    while pending:
        process = Path("/proc") / pending.pop()
        # It may have ended meanwhile, or a thread of it.
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
            for thread in (process / "task").iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):
                    pending += (thread / "children").read_text().split()
    return ticks / os.sysconf("SC_CLK_TCK") + ours.ru_utime + ours.ru_stime


def measured(spark: SparkSession, work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock and of the processors."""
    began, before = time.monotonic(), processor_s(spark)
    work()
    return time.monotonic() - began, processor_s(spark) - before


def to_gold(spark: SparkSession, ledger: Path, tables: Path) -> tuple[float, float]:
    """All of a ledger into new tables."""
    rmtree(tables, ignore_errors=True)
    return measured(spark, LedgerTables(spark, str(ledger), tables).run_once)


def audited(spark: SparkSession, ledger: Path) -> tuple[float, float]:
    """A whole audit, in which every check must hold."""

    def work() -> None:
        assert audit(ledger, spark).passes

    return measured(spark, work)


def floor(spark: SparkSession, ledger: Path) -> tuple[float, float]:
    """The least that any such query costs here: the facts read, and one aggregation by message with three sums."""
    facts = read_segments(spark, [str(ledger)]).where("seq is not null")
    by_message = aggregate(facts, "queue, seq", facts="count(*)", first="min(time_us)", last="max(time_us)")
    return measured(spark, by_message.write.format("noop").mode("overwrite").save)


def an_hour_more(spark: SparkSession, ledger: Path, tables: Path, aside: Path) -> tuple[float, float]:
    """A run of tables that have all but one segment already, which is new to them."""
    aside.rename(ledger / aside.name)
    return measured(spark, LedgerTables(spark, str(ledger), tables).run_once)


def run_size(
    spark: SparkSession, directory: Path, size: int, pairs: int, deadline_s: float
) -> tuple[list[dict[str, float]], list[tuple[float, float, float]]]:
    """Measure a ledger of about so many facts; returns the runs, and what a further segment then costs."""
    ledger, tables = directory / f"ledger-{size}", directory / "tables"
    written = write_facts(ledger, size + FACTS_IN_A_SEGMENT)
    last = sorted(ledger.glob("facts-*.parquet"))[-1]
    facts = written - pq.read_metadata(last).num_rows
    aside = last.rename(directory / last.name)
    runs: list[dict[str, float]] = []
    for _ in range(pairs):
        if runs and time.monotonic() > deadline_s:
            break
        least, gold = floor(spark, ledger), to_gold(spark, ledger, tables)
        run = {"facts": facts, "floor_s": least[0], "floor_cpu_s": least[1], "gold_s": gold[0], "gold_cpu_s": gold[1]}
        if size <= AUDIT_GOAL_FACTS:
            check = audited(spark, ledger)
            run |= {"audit_s": check[0], "audit_cpu_s": check[1]}
        note(" ".join(f"{name} {value:.5g}" for name, value in run.items()))
        runs.append(run)
    later = [(facts, *an_hour_more(spark, ledger, tables, aside))]
    rmtree(ledger)
    return runs, later


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=10_000_000)
    parser.description = f"{__doc__} --count is the number of facts of the largest ledger; --size is ignored."
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no further run after this time")
    given = parser.parse_args()
    sizes = [size for size in (100_000, 1_000_000, AUDIT_GOAL_FACTS) if size < given.count] + [given.count]
    began = time.monotonic()
    spark = start_session("legato-p9", master=given.master, minutes=True)
    note(f"session: {time.monotonic() - began:.1f} s")
    runs: list[dict[str, float]] = []
    later: list[tuple[float, float, float]] = []
    with temporary_store() as directory:
        for size in sizes:
            if runs and time.monotonic() > began + 60 * given.minutes:
                break
            more = run_size(spark, directory, size, given.pairs, began + 60 * given.minutes)
            runs, later = runs + more[0], later + more[1]
    best = [min(of_size, key=lambda run: run["gold_s"]) for of_size in _by_size(runs)]
    fastest = max(best, key=lambda run: run["facts"] / run["gold_s"])
    figure, least = fastest["facts"] / fastest["gold_s"], fastest["facts"] / fastest["floor_s"]
    audits = [run["audit_s"] for run in runs if 0.9 * AUDIT_GOAL_FACTS < run["facts"] < 1.1 * AUDIT_GOAL_FACTS]
    ratios = sorted(run["floor_s"] / run["gold_s"] for run in runs)
    result = {
        "figure": round(figure),
        "peer": round(least),
        "ratio": round(figure / least, 3),
        "min": round(ratios[0], 3),
        "median": round(median(ratios), 3),
        "max": round(ratios[-1], 3),
        "goal": f"{GOAL_FACTS_PER_S:,} facts/s to gold; {AUDIT_GOAL_FACTS:,} facts audited in {AUDIT_GOAL_S:g} s",
        "met": figure >= GOAL_FACTS_PER_S and (not audits or min(audits) <= AUDIT_GOAL_S),
        "unit": "facts/s",
        "sides": ["facts to gold", "the same facts read, and one aggregation by message"],
    }
    finish("P9", "facts to the ledger's tables, and a whole audit", _tables(best, later), result, runs=runs)


def _tables(best: list[dict[str, float]], later: list[tuple[float, float, float]]) -> str:
    """What a reader sees: the fastest run of each size, and what a further segment costs after it."""
    rows: list[list[object]] = []
    for run in best:
        gold = [int(run["facts"]), run["gold_s"], run["gold_cpu_s"], run["facts"] / run["gold_s"]]
        audit_s: list[object] = [run["audit_s"], run["audit_cpu_s"]] if "audit_s" in run else ["-", "-"]
        rows.append([*gold, run["floor_s"], run["floor_cpu_s"], *audit_s])
    headings = ["facts", "to gold, s", "processor, s", "facts/s", "floor, s", "processor, s", "audit, s"]
    more = [[int(facts), wall_s, cpu_s] for facts, wall_s, cpu_s in later]
    further = table([f"{FACTS_IN_A_SEGMENT:,} facts more, after", "s", "processor, s"], more)
    return table([*headings, "processor, s"], rows) + "\n\n" + further


def _by_size(runs: list[dict[str, float]]) -> list[list[dict[str, float]]]:
    return [[run for run in runs if run["facts"] == facts] for facts in dict.fromkeys(run["facts"] for run in runs)]


if __name__ == "__main__":
    main()
