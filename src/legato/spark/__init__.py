"""The ledger in Spark: facts as Parquet segments, their audit, and tables that grow with them.

```python
from legato.spark import audit, read_ledger, start_session

result = audit("./store/ledger")
print(result.verdict, [check.complaint for check in result.failed])

facts = read_ledger(start_session(), "./store/ledger")
facts.groupBy("kind").count().show()
```

Names are imported when they are first asked for: the process that exports a ledger needs no Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from legato.spark.auditor.audit import audit
    from legato.spark.auditor.group_audits import audit_groups
    from legato.spark.auditor.scope import Scope
    from legato.spark.lag import LagListener
    from legato.spark.ledger.fact_frames import SCHEMA as FACTS_SCHEMA
    from legato.spark.ledger.fact_frames import read_ledger
    from legato.spark.ledger.group_frames import read_ledgers
    from legato.spark.query.ledger_query import LedgerQuery
    from legato.spark.report.audit_page import write_report
    from legato.spark.result import AuditResult, CheckResult, GroupAudits
    from legato.spark.runtime.session import start_session
    from legato.spark.summaries.message_summary import MESSAGES_SCHEMA
    from legato.spark.summaries.message_summary_sql import silver
    from legato.spark.tables.gold import BRONZE, Step, gold_steps
    from legato.spark.tables.gold_tables import read_table
    from legato.spark.tables.group_tables import GroupTables
    from legato.spark.tables.ledger_tables import LedgerTables

__all__ = [
    "BRONZE",
    "FACTS_SCHEMA",
    "MESSAGES_SCHEMA",
    "AuditResult",
    "CheckResult",
    "GroupAudits",
    "GroupTables",
    "LagListener",
    "LedgerQuery",
    "LedgerTables",
    "Scope",
    "Step",
    "audit",
    "audit_groups",
    "gold_steps",
    "read_ledger",
    "read_ledgers",
    "read_table",
    "silver",
    "start_session",
    "write_report",
]

_HOMES = {
    "BRONZE": "tables.gold",
    "FACTS_SCHEMA": "ledger.fact_frames:SCHEMA",
    "MESSAGES_SCHEMA": "summaries.message_summary",
    "AuditResult": "result",
    "CheckResult": "result",
    "GroupAudits": "result",
    "GroupTables": "tables.group_tables",
    "LagListener": "lag",
    "LedgerQuery": "query.ledger_query",
    "LedgerTables": "tables.ledger_tables",
    "Scope": "auditor.scope",
    "Step": "tables.gold",
    "audit": "auditor.audit",
    "audit_groups": "auditor.group_audits",
    "gold_steps": "tables.gold",
    "read_ledger": "ledger.fact_frames",
    "read_ledgers": "ledger.group_frames",
    "read_table": "tables.gold_tables",
    "silver": "summaries.message_summary_sql",
    "start_session": "runtime.session",
    "write_report": "report.audit_page",
}
_EXTRAS = {"pyspark": "spark", "jinja2": "spark", "pyarrow": "query", "numpy": "query"}
"""Which extra has each package that may be missing."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, original = _HOMES[name].partition(":")
    try:
        value = getattr(import_module(f"{__name__}.{module}"), original or name)
    except ModuleNotFoundError as error:
        if extra := _EXTRAS.get((error.name or "").partition(".")[0]):
            # Without a name: that is the sign of an error that is for the user (`legato.cli.failures`).
            raise ImportError(f"legato.spark.{name} needs {error.name}: pip install 'legato[{extra}]'.") from error
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
