"""The inbox: which messages each stage has worked on, written in the transactions in which it did (CONTRACT D13)."""

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


class Inbox:
    """Statements on the table of the inbox.

    Args:
        dialect: makes of a statement with `?` one that the driver takes.
    """

    def __init__(self, dialect: Callable[[str], str]) -> None:
        self._dialect = dialect
        self._enter_one = self._enter_sql(1)
        self._prune = dialect(
            "DELETE FROM legato_inbox WHERE (stage_id, message_id) IN "
            "(SELECT stage_id, message_id FROM legato_inbox WHERE at_us < ? ORDER BY at_us LIMIT ?)"
        )

    def enter(self, connection: Connection, stage_id: str, message_ids: Sequence[str], now_us: int) -> set[str]:
        """Take note that the stage works on messages in this transaction; returns those that are new to it.

        If another transaction works on one of them, this waits for its end: that decides whether it is new.

        Args:
            now_us: microseconds since 1970.
        """
        if len(message_ids) == 1:
            sql = self._enter_one
        else:
            # Two transactions that enter the same ones in the same order do not wait for each other crosswise.
            message_ids = sorted(message_ids)
            sql = self._enter_sql(len(message_ids))
        arguments = tuple(value for message_id in message_ids for value in (stage_id, message_id, now_us))
        return {row[0] for row in connection.exec_driver_sql(sql, arguments)}

    def prune(self, connection: Connection, before_us: int) -> bool:
        """Forget some messages of before that time; returns whether there may be more of them."""
        return connection.exec_driver_sql(self._prune, (before_us, PRUNED_AT_ONCE_MAX)).rowcount >= PRUNED_AT_ONCE_MAX

    def _enter_sql(self, count: int) -> str:
        rows = ", ".join(["(?, ?, ?)"] * count)
        return self._dialect(
            f"INSERT INTO legato_inbox (stage_id, message_id, at_us) VALUES {rows} "
            "ON CONFLICT DO NOTHING RETURNING message_id"
        )
