"""A run's last line, its file and its exit code say the same; known errors need evidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from interop import outcomes
from interop.outcomes import FAILED, PASSED, SKIPPED, Outcome, Report
from interop.run_clients import rhea_outcomes
from interop.run_roundtrip import compare
from interop.run_tck import jndi_properties
from interop.upstream import JORAM, TCK, TCK_PREFETCHING

KNOWN = {"core.A.known": "because of this"}


def report(*results: Outcome) -> Report:
    return Report("suite", results, 1.5, {"client": "1"}, KNOWN)


def test_the_last_line_counts_all_and_only_unknown_failures_fail_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    known, unknown = Outcome("core.A.known", FAILED, 1, "x"), Outcome("core.A.new", FAILED, 1, "y")
    passed, skipped = Outcome("core.A.good", PASSED), Outcome("core.A.not", SKIPPED)
    assert report(known, passed, skipped).show() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 1 skipped"
    assert report(known, unknown, passed).show() == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["KNOWN FAILED core.A.known: x", "FAILED core.A.new: y"]
    assert lines[-1] == "1 passed, 2 failed, 0 skipped"


def test_a_run_of_nothing_fails() -> None:
    assert report().show() == 1


def test_the_file_has_every_test_and_the_evidence_for_known_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "RESULTS", tmp_path / "results")
    path = report(Outcome("core.A.known", FAILED, 1, "x"), Outcome("core.A.good", PASSED, 2)).write("suite")
    document = json.loads(path.read_text())
    assert (document["passed"], document["failed"], document["skipped"]) == (1, 1, 0)
    assert document["upstream_errors"] == KNOWN
    assert [each["test"] for each in document["tests"]] == ["core.A.known", "core.A.good"]
    assert document["commit"]
    assert document["date"]
    assert document["versions"]["client"] == "1"


def test_every_exclusion_names_one_test_and_argues_with_evidence() -> None:
    for test, evidence in {**JORAM, **TCK, **TCK_PREFETCHING}.items():
        assert test.count(".") >= 2
        assert len(evidence.split()) >= 20, f"{test} needs more of an argument"


def test_the_reference_lists_every_exclusion() -> None:
    page = (outcomes.ROOT / "docs" / "reference" / "interop.md").read_text()
    assert [test for test in {**JORAM, **TCK, **TCK_PREFETCHING} if f"`{test}`" not in page] == []


def test_what_failed_in_the_results_kept_here_is_excluded_with_evidence() -> None:
    kept = [json.loads(path.read_text()) for path in sorted(outcomes.RESULTS.glob("*.json"))]
    failed = {each["test"] for document in kept for each in document["tests"] if each["outcome"] == FAILED}
    assert failed <= {*JORAM, *TCK, *TCK_PREFETCHING}


def test_rheas_lines_are_outcomes() -> None:
    lines = ["noise", "end\tdrain\tpassed\t30\t", "end\ttopic\tfailed\t6\tError: no"]
    assert list(rhea_outcomes(lines)) == [
        Outcome("rhea.drain", PASSED, 30),
        Outcome("rhea.topic", FAILED, 6, "Error: no"),
    ]


def test_a_round_trip_shows_the_field_that_changed_and_where() -> None:
    sent = ["0\tpriority 4\ttext string", "1\tpriority 5\tbytes 00"]
    changed = ["0\tpriority 4\ttext string", "1\tpriority 4\tbytes 00"]
    first, second = compare("trip", sent, {"There": sent, "Back": changed})
    assert first == Outcome("trip.0-text", PASSED)
    assert second == Outcome("trip.1-bytes", FAILED, 0, "Back: priority 5 became priority 4")


def test_a_message_that_did_not_arrive_fails() -> None:
    (outcome,) = compare("trip", ["0\ttext string"], {"Back": []})
    assert outcome.outcome == FAILED


def test_the_tck_looks_everything_up_at_the_brokers_port_with_the_prefetch_asked_for() -> None:
    properties = dict(line.split("=", 1) for line in jndi_properties("amqp://127.0.0.1:1234", 7).splitlines())
    urls = [value for name, value in properties.items() if name.startswith("connectionfactory.")]
    assert len(urls) == 4
    assert all(url.startswith("amqp://127.0.0.1:1234?jms.prefetchPolicy.all=7") for url in urls)
    assert properties["queue.MY_QUEUE"] == "MY_QUEUE"
