"""One Spark session for all of this tier: it takes longer to start than the tests to run."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from legato.core.facts import LogRecord
from legato.spark.auditor.audit import audit
from legato.spark.auditor.frames import as_rows
from legato.spark.ledger.fact_frames import read_ledger
from legato.spark.ledger.segments import write_segment
from legato.spark.result import AuditResult
from legato.spark.runtime.session import SMALL_QUERY_SETTINGS, start_session

MakeFacts = Callable[[list[LogRecord]], DataFrame]
Audit = Callable[[list[LogRecord]], AuditResult]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start_session("legato-tests", master="local[2]", driver_memory="3g")
    for key, value in SMALL_QUERY_SETTINGS.items():
        session.conf.set(key, value)
    yield session
    session.stop()


@pytest.fixture
def facts_of(spark: SparkSession, tmp_path: Path) -> MakeFacts:
    """Facts as the audit reads few: records written as a segment, at positions from 1 on, and read by Spark."""

    def make(records: list[LogRecord]) -> DataFrame:
        write_segment(tmp_path, list(enumerate(records, 1)))
        return as_rows(read_ledger(spark, tmp_path))

    return make


@pytest.fixture
def audit_of(spark: SparkSession, tmp_path: Path) -> Audit:
    """The audit of records, written as a segment of a ledger."""

    def make(records: list[LogRecord]) -> AuditResult:
        write_segment(tmp_path, list(enumerate(records, 1)))
        result = audit(tmp_path, spark)
        active = SparkSession.getActiveSession()
        assert active is not None
        assert active.conf.get("spark.sql.ansi.enabled") == "true", "an audit's sessions are its own"
        return result

    return make
