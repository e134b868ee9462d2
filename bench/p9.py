"""P9: from facts to the tables of gold, and a whole audit, on two cores: rows a second, and how both grow with size."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

from pyspark.sql import SparkSession

from bench.facts import FACTS_IN_A_SEGMENT, write_facts
from bench.harness import finish, note, options, table, temporary_store
from legato.spark.audit import audit
from legato.spark.session import start_session
from legato.spark.tables import LedgerTables

GOAL_FACTS_PER_S = 800_000
AUDIT_GOAL_FACTS = 5_000_000
AUDIT_GOAL_S = 15.0


def processor_s(spark: SparkSession) -> float:
    """Processor time of Spark's process tree so far: what a busy machine does not change."""
    context = spark.sparkContext
    assert context._gateway is not None
    ticks = 0
    pending = [str(context._gateway.proc.pid)]
    while pending:
        process = Path("/proc") / pending.pop()
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
        for thread in (process / "task").iterdir():
            # A thread may have ended meanwhile.
            with suppress(FileNotFoundError):
                pending += (thread / "children").read_text().split()
    return ticks / os.sysconf("SC_CLK_TCK")


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


def an_hour_more(spark: SparkSession, ledger: Path, tables: Path, facts: int) -> tuple[float, float, int]:
    """A run of tables that have `facts` already, over one segment that is new to them."""
    segments = sorted(ledger.glob("facts-*.parquet"))
    aside = ledger.parent / segments[-1].name
    segments[-1].rename(aside)
    to_gold(spark, ledger, tables)
    aside.rename(segments[-1])
    wall_s, cpu_s = measured(spark, LedgerTables(spark, str(ledger), tables).run_once)
    return wall_s, cpu_s, facts


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=10_000_000)
    parser.description = f"{__doc__} --count is the number of facts of the largest ledger; --size is ignored."
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    sizes = [size for size in (100_000, 1_000_000, AUDIT_GOAL_FACTS) if size < given.count] + [given.count]
    began = time.monotonic()
    spark = start_session("legato-p9", master=given.master, minutes=True)
    note(f"session: {time.monotonic() - began:.1f} s")
    runs: list[dict[str, float]] = []
    later: list[tuple[float, float, int]] = []
    with temporary_store() as directory:
        for size in sizes:
            ledger, tables = directory / f"ledger-{size}", directory / "tables"
            facts = write_facts(ledger, size)
            for _ in range(given.pairs):
                gold, check = to_gold(spark, ledger, tables), audited(spark, ledger)
                runs.append({"facts": facts, "gold_s": gold[0], "gold_cpu_s": gold[1]})
                runs[-1] |= {"audit_s": check[0], "audit_cpu_s": check[1]}
                note(" ".join(f"{name} {value:.5g}" for name, value in runs[-1].items()))
            if size >= 10 * FACTS_IN_A_SEGMENT:
                later.append(an_hour_more(spark, ledger, tables, facts))
            rmtree(ledger)
    best = [min(of_size, key=lambda run: run["gold_s"]) for of_size in _by_size(runs)]
    rows = [
        [int(run["facts"]), run["gold_s"], run["gold_cpu_s"], run["facts"] / run["gold_s"], run["audit_s"]]
        for run in best
    ]
    text = table(["facts", "to gold, s", "processor, s", "facts/s", "audit, s"], rows)
    more = [[facts, wall_s, cpu_s] for wall_s, cpu_s, facts in later]
    text += "\n\n" + table([f"{FACTS_IN_A_SEGMENT:,} facts more, after", "s", "processor, s"], more)
    figure = max(run["facts"] / run["gold_s"] for run in best)
    audits = [run["audit_s"] for run in best if 0.9 * AUDIT_GOAL_FACTS < run["facts"] < 1.1 * AUDIT_GOAL_FACTS]
    met = figure >= GOAL_FACTS_PER_S and (not audits or audits[0] <= AUDIT_GOAL_S)
    result = {
        "figure": round(figure),
        "peer": GOAL_FACTS_PER_S,
        "ratio": round(figure / GOAL_FACTS_PER_S, 3),
        "goal": f"{GOAL_FACTS_PER_S:,} facts/s to gold; {AUDIT_GOAL_FACTS:,} facts audited in {AUDIT_GOAL_S:g} s",
        "met": met,
        "unit": "facts/s",
        "sides": ["facts to gold", "the goal"],
    }
    finish("P9", "facts to the ledger's tables, and a whole audit", text, result, runs=runs)


def _by_size(runs: list[dict[str, float]]) -> list[list[dict[str, float]]]:
    return [[run for run in runs if run["facts"] == facts] for facts in dict.fromkeys(run["facts"] for run in runs)]


if __name__ == "__main__":
    main()
