"""One audit from end to end: export the rest of the log, audit, write JSON and page."""

import os
from collections.abc import Mapping
from pathlib import Path

from legato.errors import ConfigError
from legato.spark.auditor.audit import audit
from legato.spark.auditor.group_audits import audit_groups
from legato.spark.auditor.scope import EVERYTHING, Scope
from legato.spark.report.audit_page import write_report
from legato.spark.report.flights import TotalsComparison
from legato.spark.result import AuditResult, GroupAudits


def run_audit(
    ledger_dir: Path,
    *,
    store_dir: Path | None = None,
    json_path: Path | None = None,
    report_path: Path | None = None,
    totals: TotalsComparison | None = None,
    client_gaps_ms: dict[int, float] | None = None,
    title: str = "Delivery audit",
    scope: Scope = EVERYTHING,
    master: str | None = None,
    keep_classes: bool = False,
) -> AuditResult:
    """Audit a ledger in a Spark session that is started if there is none.

    Args:
        ledger_dir: directory of the segments.
        store_dir: the store they come from; if no broker writes to it now, its log is exported to the end first, and
            the messages that wait in it are told exactly from lost ones.
        json_path: where to write the result as JSON.
        report_path: where to write the page with pictures.
        totals: a comparison of source and outcome to show in the page.
        client_gaps_ms: by epoch, how long clients were without a broker, to show in the page.
        title: the page's headline.
        scope: which messages it is about.
        master: where Spark runs, if it does not run yet.
        keep_classes: let its JVM leave its classes for those after it (`class_archive.py`).

    Raises:
        ConfigError: there is no ledger, no such destination in it, no Java, or nowhere to write to.
        StoreError: the store cannot be read.
    """
    for path in (json_path, report_path):
        if path is not None:
            _refuse_unwritable(path)
    result = audit(ledger_dir, scope=scope, store_dir=store_dir, master=master, keep_classes=keep_classes)
    if json_path is not None:
        json_path.write_bytes(result.to_json())
    if report_path is not None:
        write_report(report_path, result, totals=totals, client_gaps_ms=client_gaps_ms or {}, title=title)
    return result


def run_group_audits(
    ledgers: Mapping[str, Path],
    *,
    report_path: Path | None = None,
    scope: Scope = EVERYTHING,
    master: str | None = None,
    keep_classes: bool = False,
) -> GroupAudits:
    """Audit the ledgers of several groups in one Spark session.

    Args:
        ledgers: by the name of the group, the directory of its segments.
        report_path: where to write the pages: `audit.html` becomes `audit-NAME.html` for each group.
        scope, master, keep_classes: see `run_audit`.

    Raises:
        ConfigError: there is no ledger, no such destination in any, no Java, or nowhere to write to.
        StoreCorruptError: a segment is not whole.
    """
    pages = {}
    if report_path is not None:
        pages = {name: report_path.with_name(f"{report_path.stem}-{name}{report_path.suffix}") for name in ledgers}
    for page in pages.values():
        _refuse_unwritable(page)

    def tell(name: str, result: AuditResult) -> None:
        if name in pages:
            write_report(pages[name], result, totals=None, client_gaps_ms={}, title=f"Delivery audit of group {name}")

    return audit_groups(ledgers, scope=scope, master=master, keep_classes=keep_classes, tell=tell)


def _refuse_unwritable(path: Path) -> None:
    """Say so before the audit, not after it.

    Raises:
        ConfigError: no file can be written there.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a directory. The result needs the name of a file.")
    if not path.parent.is_dir():
        raise ConfigError(f"There is no directory {path.parent} to write {path.name} into.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"This user may not write {path}.")
