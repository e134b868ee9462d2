"""What an audit's result says in a sentence."""

from __future__ import annotations

import io
import json

import msgspec

from legato.spark.report.audit_page import report_page
from legato.spark.report.audit_terminal import print_audit
from legato.spark.result import AuditResult, CheckResult, QueueAudit, Timeline, TopicAudit
from legato.terminal import Terminal

NOTHING = AuditResult(0, 0, 0, 0, [], [], [CheckResult("x", "All is well.", 0)], Timeline(0, 1))
ORDERS = QueueAudit(1, "orders", 1, 1, 0, 0, 0, 0, 0, 0)


def shown(result: AuditResult, width: int = 200) -> str:
    text = io.StringIO()
    print_audit(result, Terminal(file=text, width=width))
    return text.getvalue()


def test_an_audit_that_found_no_message_does_not_say_that_all_are_accounted_for() -> None:
    """A wrong `--from` passed in green: who reads that believes that something was checked."""
    assert NOTHING.passes
    assert NOTHING.verdict.startswith("No message was stored in the audited time and queues")
    assert json.loads(NOTHING.to_json())["verdict"] == NOTHING.verdict
    for told in (shown(NOTHING), report_page(NOTHING, None, {}, "Audit")):
        assert "No message was stored" in told
        assert "accounted for" not in told


def test_an_audit_that_found_messages_says_so() -> None:
    for found in (
        msgspec.structs.replace(NOTHING, queues=[ORDERS]),
        msgspec.structs.replace(NOTHING, topics=[TopicAudit(2, "prices", 1, 0, 1, 0)]),
    ):
        assert found.verdict == "Every message is accounted for."
        assert "every message is accounted for" in shown(found)


def test_no_number_is_cut_where_a_name_is_long_and_the_terminal_narrow() -> None:
    """`20,…`, with `assignment://trial/numbers` in 80 columns."""
    queues = [
        QueueAudit(1, "numbers", 1_200_000, 0, 0, 0, 1_200_000, 0, 0, 0),
        QueueAudit(2, "assignment://trial/numbers", 1_200_000, 1_200_000, 0, 0, 0, 0, 0, 0),
    ]
    told = shown(msgspec.structs.replace(NOTHING, queues=queues), width=80)
    assert "…" not in told
    assert told.count("1,200,000") == 4
    begins = [line.split()[0] for line in told.splitlines() if line.strip()]
    assert "assignment://trial/numbers" in "".join(begins), "the name goes on in the next line"
