"""An audit that fails says first, in words and names, what is missing and what to do. Nothing is "0 lost" then."""

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from legato.core.facts import MessageConsumed, MessageStored
from legato.demo.job import outcome_of as demo_outcome
from legato.demo.options import DemoOptions
from legato.demo.outcome import outcome_table as demo_table
from legato.demo.run import RunResult as DemoResult
from legato.drill.checker import Finding
from legato.drill.outcome import outcome_of, verdict_line
from legato.drill.page import write_page
from legato.drill.result import RunResult
from legato.spark.auditor.audit import audit
from legato.spark.ledger.segments import SegmentSpan, write_segment
from legato.spark.report.audit_page import report_page
from legato.spark.report.audit_terminal import print_audit
from legato.spark.report.flights import TotalsComparison
from legato.spark.result import AuditResult
from tests.spark.history import INVOICES, ORDERS, history, ms_us, record, without

WITHOUT = SegmentSpan(9, 10)
"""The commits that are missing: an epoch begins, and an order is stored."""


@pytest.fixture(scope="module")
def incomplete(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """The audit of a ledger in which a segment was deleted."""
    ledger = tmp_path_factory.mktemp("ledger")
    numbered = list(enumerate(history(), 1))
    write_segment(ledger, numbered[: WITHOUT.first - 1])
    write_segment(ledger, numbered[WITHOUT.last :])
    return audit(ledger, spark)


def shown(result: AuditResult) -> str:
    console = Console(file=StringIO(), width=400, record=True)
    print_audit(result, console)
    return console.export_text()


def test_a_missing_segment_is_the_first_thing_said_with_its_name_and_the_remedy(incomplete: AuditResult) -> None:
    first = shown(incomplete).splitlines()[0]
    assert first.startswith("✗ The ledger is incomplete: commits 9-10 are missing. A segment file (facts-")
    assert WITHOUT.file_name in first
    assert first.rstrip().endswith("deleted or not copied; restore it. Until then no total below is proof.")


def test_in_a_terminal_nothing_is_0_lost_while_the_ledger_is_incomplete(incomplete: AuditResult) -> None:
    text = shown(incomplete)
    assert "every message is accounted for" not in text.lower()
    assert "The ledger is incomplete: what was lost or done twice cannot be told." in text.splitlines()[-1]
    invoices = next(line for line in text.splitlines() if line.strip().startswith("invoices"))
    assert invoices.split().count("?") == 2, "neither lost nor twice is known"


def test_the_page_begins_with_a_red_box_that_links_to_the_rows(incomplete: AuditResult) -> None:
    page = report_page(incomplete, None, {}, "history")
    assert "<h1>The ledger is incomplete.</h1>" in page
    box = page.split('<section class="complaints">')[1].split("</section>")[0]
    assert page.index('<section class="complaints">') < page.index('<div class="tiles">')
    assert "commits 9-10 are missing" in box
    links = re.findall(r'href="#([^"]+)"', box)
    assert len(links) == len(incomplete.failed)
    assert all(f'id="{link}"' in page for link in links)


def test_the_page_has_no_green_zero_while_the_ledger_is_incomplete(incomplete: AuditResult) -> None:
    page = report_page(incomplete, None, {}, "history")
    assert "no messages lost" not in page
    assert "none done twice" not in page
    for label in ("lost", "done twice"):
        assert f'<div class="tile bad"><div class="value">?</div><div class="label">{label}</div>' in page
    assert '<div class="tile good"><div class="value">0</div>' not in page


def test_the_json_says_that_it_is_no_proof(incomplete: AuditResult) -> None:
    document = json.loads(incomplete.to_json())
    assert (document["passes"], document["complete"]) == (False, False)
    assert document["verdict"].startswith("The ledger is incomplete")
    assert document["complaints"][0].startswith("The ledger is incomplete: commits 9-10 are missing.")
    rollup = {queue["name"]: (queue["lost"], queue["duplicated"]) for queue in document["queues"]}
    assert rollup["invoices"] == (None, None)
    assert all(not (queue["lost"] == 0 or queue["duplicated"] == 0) for queue in document["queues"])


def test_a_drill_and_a_demo_know_no_losses_of_a_ledger_that_is_incomplete(
    incomplete: AuditResult, tmp_path: Path
) -> None:
    drilled = outcome_of(7, RunResult(), [Finding("orders", sent=10, received=10)], incomplete, None)
    assert (drilled.passes, drilled.lost, drilled.duplicated) == (False, None, None)
    assert "0 lost" not in verdict_line(drilled)
    assert drilled.complaints[0].startswith("The ledger is incomplete: commits 9-10 are missing.")
    write_page(tmp_path / "page.html", drilled, RunResult(), incomplete)
    assert '<div class="tile good"><div class="value">0</div><div class="label">lost' not in (
        tmp_path / "page.html"
    ).read_text("utf-8")
    totals = TotalsComparison([], missing=0, duplicated=0, unexpected=0)
    result = DemoResult(sent=0, collected=0, takeovers=[], kills=0, seconds=1.0, seed=7)
    demo = demo_outcome(DemoOptions(flights=1, kills=0), result, incomplete, totals, True)
    assert (demo.holds, demo.lost, demo.duplicated) == (False, None, None)
    console = Console(file=StringIO(), record=True)
    console.print(demo_table(demo))
    assert "?" in console.export_text()


@pytest.fixture(scope="module")
def spoilt(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """The audit of a ledger that is all there: an invoice is lost, two orders were stored twice."""
    twice = [MessageStored(ORDERS, 20 + seq, 10, f"ID:{seq}", 1, seq) for seq in (1, 2)]
    gone = [MessageConsumed(ORDERS, 20 + seq, 1, ms_us(401), 1) for seq in (1, 2)]
    records = without(history(), MessageConsumed(INVOICES, 4, 2, ms_us(312), 1))
    ledger = tmp_path_factory.mktemp("ledger")
    write_segment(ledger, list(enumerate([*records, record(2, 402, *twice, *gone)], 1)))
    return audit(ledger, spark)


def test_what_fails_is_told_by_its_own_sentence_first(spoilt: AuditResult) -> None:
    """With all of the log there: what does not hold is said as such, not the sentence that does not hold."""
    first, *others = (line.rstrip() for line in shown(spoilt).splitlines())
    lost, twice = (f"✗ {check.complaint}" for check in spoilt.failed)
    assert first == lost
    assert twice in others
    assert spoilt.complete
    invoices, orders = (
        next(queue for queue in json.loads(spoilt.to_json())["queues"] if queue["name"] == name)
        for name in ("invoices", "orders")
    )
    assert (invoices["lost"], invoices["duplicated"]) == (1, 0), "the ledger is all there"
    assert (orders["lost"], orders["duplicated"]) == (0, 2)


def test_a_lost_message_is_told_with_the_name_of_its_queue(spoilt: AuditResult) -> None:
    (lost,) = (check for check in spoilt.failed if check.name == "lost")
    assert lost.complaint == (
        "1 message of queue 'invoices' is unaccounted for: stored at 1970-01-01 00:16:40 UTC, never seen again."
    )


def test_of_many_each_is_told(spoilt: AuditResult) -> None:
    (found,) = (check for check in spoilt.failed if check.name == "number stored twice")
    assert found.complaint == "2 sends were stored more than once."
    assert found.told == [
        "Producer shop, number 1: stored 2 times, in queue 'orders' at places 1 and 21",
        "Producer shop, number 2: stored 2 times, in queue 'orders' at places 2 and 22",
    ]
