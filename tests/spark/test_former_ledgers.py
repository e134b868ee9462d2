"""Audits of ledgers that brokers of former versions wrote (tests/data/stores/ledgers): facts are for ever."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from legato.spark.auditor.audit import audit
from tests.support.stores import DIRECTORY, NAMES


@pytest.mark.parametrize("name", ["1", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name != "1")])
def test_an_audit_of_a_former_ledger_accounts_for_each_message(name: str, spark: SparkSession) -> None:
    result = audit(DIRECTORY / "ledgers" / name, spark)
    assert result.passes, result.to_json()
