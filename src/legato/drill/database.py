"""The database of a drill's flows: its table, and the check of its rows at the end."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from legato.drill.checker import EXAMPLES_MAX, Finding, sent_by_flow
from legato.drill.records import Identity

DATABASE_NAME = "flows.db"
DATABASE = "database"
STAGES = (1, 2, 3)
TABLE = "CREATE TABLE IF NOT EXISTS stages (producer TEXT, number INTEGER, stage INTEGER)"
"""Without a key: what is done twice must be seen."""
INSERT = "INSERT INTO stages VALUES (?, ?, ?)"
_ROWS = "SELECT producer, number, stage, count(*) FROM stages GROUP BY producer, number, stage"


def read_rows(file: Path) -> "Counter[tuple[Identity, int]]":
    """How many rows there are for each message and stage; none if the service never began."""
    rows: Counter[tuple[Identity, int]] = Counter()
    if file.exists():
        with closing(sqlite3.connect(file)) as database:
            database.execute(TABLE)
            for producer, number, stage, count in database.execute(_ROWS):
                rows[Identity(producer, number), stage] = count
    return rows


def judge_database(records: Path, flow: str) -> Finding:
    """Whether each message that was stored in `flow` has one row of each stage, and none that was not has any.

    Nothing is forgiven: a flow that became a dead letter is lost, and so is one whose service was killed.

    Args:
        records: those of the clients; the database is in the same directory.

    Raises:
        ValueError: a file is no record.
    """
    sent = sent_by_flow(records)[flow]
    rows = read_rows(records.parent / DATABASE_NAME)
    seen = {identity for identity, _ in rows}
    wrong = {
        "lost": {each for each in sent.stored if any((each, stage) not in rows for stage in STAGES)},
        "duplicated": {identity for (identity, _), count in rows.items() if count > 1},
        "falsely_told": (seen & sent.refused) | (seen - sent.stored - sent.refused - sent.unsure),
    }
    finding = Finding(f"{flow}/{DATABASE}", len(sent.stored), len(seen), exactly_once=True, flow=flow)
    for what, messages in wrong.items():
        setattr(finding, what, len(messages))
        for identity in sorted(messages)[:EXAMPLES_MAX]:
            each = ", ".join(f"{rows[identity, stage]} of stage {stage}" for stage in STAGES)
            finding.examples.append(
                f"{what.replace('_', ' ')}: message {identity.number} of {identity.producer} in {finding.subscription} "
                f"(rows: {each})"
            )
    return finding
