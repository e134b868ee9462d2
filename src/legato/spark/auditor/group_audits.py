"""The audits of several groups' ledgers: each on its own terms, in one session, with one verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from legato.errors import ConfigError
from legato.spark.auditor.audit import audit
from legato.spark.auditor.scope import EVERYTHING, Scope
from legato.spark.ledger.segments import segments_of
from legato.spark.result import AuditResult, GroupAudits
from legato.spark.runtime.session import start_session


def audit_groups(
    ledgers: Mapping[str, Path],
    spark: SparkSession | None = None,
    scope: Scope = EVERYTHING,
    *,
    master: str | None = None,
    keep_classes: bool = False,
    tell: Callable[[str, AuditResult], object] = lambda _name, _result: None,
) -> GroupAudits:
    """Account for every message of several groups, each by its own positions, epochs and queues.

    Args:
        ledgers: by the name of the group, the directory of its segments.
        spark: a session; one is started if there is none.
        scope: which messages it is about.
        master: where Spark runs, if a session has to be started.
        keep_classes: see `audit`.
        tell: is called with the name and the result of each group when it is known.

    Raises:
        ConfigError: there are no ledgers, no segments in one, or in none of them is such a destination.
        StoreCorruptError: a segment is not whole.
    """
    if not ledgers:
        raise ConfigError("There is no ledger to audit.")
    for ledger in ledgers.values():
        # Before the first one is audited.
        segments_of(ledger)
    started = time.monotonic()
    spark = spark or start_session(master=master, minutes=True, keep_classes=keep_classes)
    found: dict[str, AuditResult] = {}
    elsewhere: ConfigError | None = None
    for name, ledger in ledgers.items():
        try:
            found[name] = audit(ledger, spark, scope=scope)
        except ConfigError as error:
            if scope.destination is None:
                raise
            # A destination is in one group, mostly.
            elsewhere = error
            continue
        tell(name, found[name])
    if not found:
        assert elsewhere is not None
        raise elsewhere
    return GroupAudits(found, round(time.monotonic() - started, 2))
