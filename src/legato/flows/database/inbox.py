"""The inbox: the messages that each stage has processed, written in its transactions (CONTRACT D13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

INBOX_SQL = (
    """\
CREATE TABLE IF NOT EXISTS legato_inbox (
    stage_id   TEXT   NOT NULL,
    message_id TEXT   NOT NULL,
    at_us      BIGINT NOT NULL,
    PRIMARY KEY (stage_id, message_id)
)""",
    "CREATE INDEX IF NOT EXISTS legato_inbox_at ON legato_inbox (at_us)",
)
RETENTION_S_DEFAULT = 7 * 86400.0
PRUNED_AT_ONCE_MAX = 1000

_NOW_US = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)",
}
"""The database's clock, in microseconds since 1970."""
_LATER = {"sqlite": "max", "postgresql": "greatest"}


class Inbox:
    """Statements on the table of the inbox, which the processes of several machines share.

    The clock of one of them may be wrong. Therefore a message counts as entered at the later of two times, by the clock
    of who enters it and by the database's; and it is forgotten when its time is over by the clock of who prunes and by
    the database's.

    Args:
        dialect: makes of a statement with `?` one that the driver takes.
        retention_s: no message is forgotten sooner, whatever a caller's clock says.
    """

    def __init__(self, dialect: Callable[[str], str], retention_s: float = RETENTION_S_DEFAULT) -> None:
        self._dialect = dialect
        self._retention_us = round(retention_s * 1_000_000)
        self._enter_one = {kind: self._enter_sql(kind, 1) for kind in _NOW_US}
        self._prune = {
            kind: dialect(
                "DELETE FROM legato_inbox WHERE (stage_id, message_id) IN (SELECT stage_id, message_id "
                f"FROM legato_inbox WHERE at_us < ? AND at_us < {now_us} - ? ORDER BY at_us LIMIT ?)"
            )
            for kind, now_us in _NOW_US.items()
        }

    def enter(self, connection: Connection, stage_id: str, message_ids: Sequence[str], now_us: int) -> set[str]:
        """Take note that the stage works on messages in this transaction; returns those that are new to it.

        If another transaction works on one of them, this waits for its end: that decides whether it is new.

        Args:
            now_us: microseconds since 1970, by the caller's clock.
        """
        kind = connection.dialect.name
        if len(message_ids) == 1:
            sql = self._enter_one[kind]
        else:
            # Two transactions that enter the same ones in the same order do not wait for each other crosswise.
            message_ids = sorted(message_ids)
            sql = self._enter_sql(kind, len(message_ids))
        arguments = tuple(value for message_id in message_ids for value in (stage_id, message_id, now_us))
        return {row[0] for row in connection.exec_driver_sql(sql, arguments)}

    def prune(self, connection: Connection, before_us: int) -> bool:
        """Forget some messages that were entered before that time; returns whether there may be more of them.

        Args:
            before_us: microseconds since 1970, by the caller's clock; by the database's clock, too, the inbox has them
                for longer than its retention.
        """
        arguments = (before_us, self._retention_us, PRUNED_AT_ONCE_MAX)
        pruned = connection.exec_driver_sql(self._prune[connection.dialect.name], arguments)
        return pruned.rowcount >= PRUNED_AT_ONCE_MAX

    def _enter_sql(self, kind: str, count: int) -> str:
        rows = ", ".join([f"(?, ?, {_LATER[kind]}(?, {_NOW_US[kind]}))"] * count)
        return self._dialect(
            f"INSERT INTO legato_inbox (stage_id, message_id, at_us) VALUES {rows} "
            "ON CONFLICT DO NOTHING RETURNING message_id"
        )
