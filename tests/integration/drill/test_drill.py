"""A short drill with real processes and three brokers: kills, a cut, late bytes, a full disk, a stuck loop."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from legato.cli.main import app
from legato.drill.checker import judge_records, sent_by_flow
from legato.drill.history import audit_log, dead_letters
from legato.drill.records import SettledLine, read_records

THOUSANDS = {"thousands", "thousands-forwarded", "thousands/end-to-end"}
FAULTS = "kill,cut,kill-client,late,delete-lock,full-disk-kill,loop-stuck"
ARGUMENTS = ["drill", "--count", "7", "--faults", FAULTS, "--at", "between-commit-and-confirm", "--brokers", "3"]
ARGUMENTS += ["--every", "0.5", "--rate", "10", "--seed", "1", "--no-spark"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_drill_accounts_for_every_message_and_notices_when_one_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(app, [*ARGUMENTS, "--out", str(out), "--json", str(tmp_path / "result.json")])

    result = json.loads((tmp_path / "result.json").read_text())
    assert done.exit_code == 0, result["complaints"]
    assert result["passes"]
    assert (result["faults"], result["points_reached"]) == (7, 7)
    assert result["takeovers"] >= 4
    assert [result[name] for name in ("lost", "duplicated", "wrong_flags", "falsely_told")] == [0, 0, 0, 0]
    assert len(result["configurations"]) == 35
    idle = {name for name, row in result["configurations"].items() if not row["received"]}
    assert idle <= {"large", *THOUSANDS}, "these are rare: so short a drill may have none"
    assert result["exactly_once"]["configurations"] == 13
    assert result["exactly_once"]["sent"] > 0
    assert result["exactly_once"]["duplicated"] == 0
    assert result["clients_killed"] == 1
    assert "7 faults" in done.output
    assert "<svg" in (out / "report.html").read_text()
    assert audit_log(out / "store").stored >= result["sent"]

    forget_one(out / "records" / "forwarded-consumer.records")
    findings = judge_records(out / "records", dead_letters(out / "store"))
    assert {finding.subscription: finding.lost for finding in findings if finding.lost} == {"drill.1.forwarded": 1}


def forget_one(file: Path) -> None:
    """Take one message out of a consumer's record, as if it had never come: one that its sender knew to be stored."""
    head, lines = read_records(file)
    stored = sent_by_flow(file.parent)[head.flow].stored
    victim = next(line.message for line in lines if isinstance(line, SettledLine) and line.message in stored)
    named = f" {victim.producer} {victim.number} "
    file.write_text("".join(f"{line}\n" for line in file.read_text().splitlines() if named not in f"{line} "))


def test_the_list_names_faults_and_points() -> None:
    done = CliRunner().invoke(app, ["drill", "--list"])
    assert done.exit_code == 0
    assert "between-commit-and-confirm" in done.output
    assert "full-disk" in done.output
