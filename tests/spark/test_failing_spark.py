"""When Spark itself fails, a command says why in a sentence and names the log; nothing else is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from legato.core.facts import LogRecord
from legato.spark.ledger.segments import write_segment


def test_an_audit_without_a_spark_is_a_sentence_and_the_path_of_the_log(tmp_path: Path) -> None:
    ledger, temporary = tmp_path / "ledger", tmp_path / "tmp"
    ledger.mkdir()
    temporary.mkdir()
    write_segment(ledger, [(1, LogRecord(1, 1, []))])
    done = subprocess.run(
        [sys.executable, "-m", "legato.cli", "audit", str(ledger), "--master", "nowhere"],
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (scratch,) = temporary.iterdir()
    (log,) = scratch.glob("*.log")
    said, kept = done.stderr.splitlines()
    assert said == (
        "legato: Spark failed: org.apache.spark.SparkException: "
        "Master must either be yarn or start with spark, k8s, or local"
    )
    assert kept == f"Spark's log is kept for a week: {log}"
    assert "Traceback" in log.read_text(), "who has to mend it needs more than a sentence"
    assert sorted(path.name for path in scratch.iterdir()) == [log.name, "log4j2.properties"]
