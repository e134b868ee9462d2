"""The trial of docs/howto/pipeline.md: Spark and the broker are killed, and each number comes once."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_number_is_in_the_table_and_in_the_queue_once_and_the_audit_passes(tmp_path: Path) -> None:
    script = ROOT / "examples" / "killed_pipeline.py"
    done = subprocess.run(
        [sys.executable, script, "--numbers", "4000", "--out", tmp_path / "trial"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-3:] == [
        "in the table 4,000 numbers, 4,000 of them different",
        "in the queue 4,000 numbers, 4,000 of them different",
        "the audit: Every message is accounted for.",
    ]
    assert done.stderr == "", "nothing of Spark's on the terminal"
