"""A short drill with real processes: a kill between commit and confirmation, and a network cut."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from legato.cli.main import app
from legato.drill.history import audit_log
from legato.drill.records import DoneLine, read_records
from legato.drill.verdict import judge_records

ARGUMENTS = ["drill", "--count", "2", "--faults", "kill,cut", "--at", "between-commit-and-confirm"]
ARGUMENTS += ["--every", "1", "--rate", "30", "--seed", "1", "--no-spark"]


@pytest.mark.timeout(300)
def test_a_drill_accounts_for_every_message_and_notices_when_one_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(app, [*ARGUMENTS, "--out", str(out), "--json", str(tmp_path / "result.json")])

    result = json.loads((tmp_path / "result.json").read_text())
    assert done.exit_code == 0, result["complaints"]
    assert result["passes"]
    assert (result["faults"], result["points_reached"]) == (2, 2)
    assert result["takeovers"] >= 1
    assert [result[name] for name in ("lost", "duplicated", "wrong_flags", "falsely_told")] == [0, 0, 0, 0]
    assert len(result["subscriptions"]) == 9
    assert all(row["received"] > 0 for row in result["subscriptions"])
    assert "2 faults" in done.output
    assert "<svg" in (out / "report.html").read_text()
    assert audit_log(out / "store").stored >= result["sent"]

    forget_one(out / "records" / "forwarded-consumer.records")
    assert sum(finding.lost for finding in judge_records(out / "records")) == 1


def forget_one(file: Path) -> None:
    """Take one message out of a consumer's record, as if it had never come."""
    _, lines = read_records(file)
    victim = next(line.message for line in lines if isinstance(line, DoneLine))
    named = f" {victim.producer} {victim.number}"
    kept = [
        line for line in file.read_text().splitlines() if not f"{line} ".startswith((f"seen{named} ", f"done{named} "))
    ]
    file.write_text("\n".join(kept) + "\n")


def test_the_list_names_faults_and_points() -> None:
    done = CliRunner().invoke(app, ["drill", "--list"])
    assert done.exit_code == 0
    assert "between-commit-and-confirm" in done.output
    assert "full-disk" in done.output
