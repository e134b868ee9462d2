"""Many seeds in processes: all are run, once; a crash is a failed seed; the summary says how to go on."""

import json
import os
from pathlib import Path

import pytest
from simulator import seed_runner
from simulator.__main__ import main
from simulator.run import Outcome, simulate
from simulator.seed_runner import Runner


def crash_at_three(seed: int, steps: int | None) -> Outcome:
    """The process ends in the middle of seed 3."""
    if seed == 3:
        os._exit(9)
    return simulate(seed, steps)


def test_a_seed_that_kills_its_process_has_failed_and_all_others_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_runner, "simulate", crash_at_three)
    told: list[Outcome] = []
    runner = Runner(range(1, 17), 50, 2, told.append)
    runner.run()
    assert sorted(outcome.seed for outcome in told) == [*range(1, 17)]
    assert {outcome.seed for outcome in told if outcome.violation} == {3}
    assert runner.next_seed == 17


def test_the_summary_tells_what_was_met_and_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "summary.json"
    assert main(["--seeds", "6", "--first", "21", "--jobs", "2", "--json", str(file)]) == 0
    summary = json.loads(file.read_text())
    assert (summary["first"], summary["done"], summary["next"], summary["failed"]) == (21, 6, 27, [])
    assert summary["counts"]["presented"] > 0
    assert "next: --first 27" in capsys.readouterr().out
