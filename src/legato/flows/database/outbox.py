"""The outbox: messages of stages, kept from their database's commit until the broker has them (CONTRACT D12)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from legato.errors import MessageFormatError
from legato.flows.model.envelope import Outgoing, decode_outgoing, encode_outgoing
from legato.quoting import quoted, sentence

if TYPE_CHECKING:
    from sqlalchemy import Connection

logger = logging.getLogger(__name__)

OUTBOX_SQL = (
    """\
CREATE TABLE IF NOT EXISTS legato_outbox (
    message_id TEXT    NOT NULL PRIMARY KEY,
    cause_id   TEXT    NOT NULL,
    at_us      BIGINT  NOT NULL,
    due_us     BIGINT  NOT NULL,
    attempts   INTEGER NOT NULL,
    outgoing   TEXT    NOT NULL
)""",
    "CREATE INDEX IF NOT EXISTS legato_outbox_due ON legato_outbox (due_us)",
)
DELETED_AT_ONCE_MAX = 500
UNREADABLE_KNOWN_MAX = 10_000
"""Of more rows that cannot be read some are logged again."""

Row = tuple[str, Outgoing]
"""The message, or initiation, that something is sent because of, and what is sent."""


class Outbox:
    """Statements on the table of the outbox, and which of its rows the brokers have but nobody has deleted.

    Args:
        dialect: makes of a statement with `?` one that the driver takes.
        skips_locked: whether the database can pass over rows that others hold.
        grace_us: after so long a row is the sweepers'.
    """

    def __init__(self, dialect: Callable[[str], str], *, skips_locked: bool, grace_us: int) -> None:
        self._dialect = dialect
        self._skip_locked = " FOR UPDATE SKIP LOCKED" if skips_locked else ""
        self._grace_us = grace_us
        self._put = dialect(
            "INSERT INTO legato_outbox (message_id, cause_id, at_us, due_us, attempts, outgoing) "
            "VALUES (?, ?, ?, ?, 0, ?)"
        )
        self._lock = threading.Lock()
        self._sent: list[str] = []
        self._unreadable: set[str] = set()
        """Rows of which the log tells already."""

    def put(self, connection: Connection, rows: Sequence[Row], now_us: int) -> None:
        """Keep what is to be sent once this transaction is committed.

        Args:
            now_us: microseconds since 1970.
        """
        # Their times say in which order they were put: their ids are in none.
        arguments = [
            (one.envelope.message_id, cause_id, now_us + number, now_us + self._grace_us, encode_outgoing(one).decode())
            for number, (cause_id, one) in enumerate(rows)
        ]
        if len(arguments) == 1:
            connection.exec_driver_sql(self._put, arguments[0])
        elif arguments:
            connection.exec_driver_sql(self._put, arguments)

    def unsent(self, connection: Connection, cause_ids: Sequence[str]) -> list[Outgoing]:
        """Outbox messages of some messages or initiations, in sending order, but for those that cannot be read."""
        sql = (
            f"SELECT message_id, outgoing FROM legato_outbox WHERE cause_id IN ({marks(cause_ids)}) "
            "ORDER BY at_us, message_id"
        )
        rows = connection.exec_driver_sql(self._dialect(sql), tuple(cause_ids)).all()
        found = [self._read(message_id, text) for message_id, text in rows]
        return [one for one in found if one is not None]

    def is_any_due(self, connection: Connection, now_us: int) -> bool:
        """Whether a sweeper would find something."""
        sql = self._dialect("SELECT 1 FROM legato_outbox WHERE due_us <= ? LIMIT 1")
        return connection.exec_driver_sql(sql, (now_us,)).first() is not None

    def claim(
        self, connection: Connection, now_us: int, lease_us: int, count_max: int
    ) -> tuple[list[tuple[Outgoing, int]], list[tuple[str, int]]]:
        """Take some that are due, the oldest first: for the time of the lease no other sweeper finds them.

        Returns:
            What is to be sent, and the ids of what cannot be read; each with how many sweepers have taken it, including
            this one.
        """
        sql = (
            "UPDATE legato_outbox SET due_us = ?, attempts = attempts + 1 WHERE message_id IN (SELECT message_id FROM "
            f"legato_outbox WHERE due_us <= ? ORDER BY due_us, at_us LIMIT ?{self._skip_locked}) "
            "RETURNING at_us, message_id, outgoing, attempts"
        )
        found = connection.exec_driver_sql(self._dialect(sql), (now_us + lease_us, now_us, count_max)).all()
        readable: list[tuple[Outgoing, int]] = []
        unreadable: list[tuple[str, int]] = []
        for _, message_id, text, attempts in sorted(found):
            outgoing = self._read(message_id, text)
            if outgoing is None:
                unreadable.append((message_id, attempts))
            else:
                readable.append((outgoing, attempts))
        return readable, unreadable

    def _read(self, message_id: str, text: str) -> Outgoing | None:
        """What a row says; None if this version cannot read it, of which the log tells once."""
        try:
            return decode_outgoing(text)
        except MessageFormatError as error:
            with self._lock:
                known = message_id in self._unreadable
                if not known and len(self._unreadable) >= UNREADABLE_KNOWN_MAX:
                    self._unreadable.clear()
                self._unreadable.add(message_id)
            if not known:
                logger.error(
                    "Message %s stays in the table legato_outbox: this version of Legato cannot read it. %s Start the "
                    "version that wrote it, which sends it; or delete the row if nobody needs the message.",
                    quoted(message_id),
                    sentence(error),
                )
            return None

    def postpone(self, connection: Connection, message_id: str, due_us: int) -> None:
        """Have the next attempt at one made at that time."""
        sql = self._dialect("UPDATE legato_outbox SET due_us = ? WHERE message_id = ?")
        connection.exec_driver_sql(sql, (due_us, message_id))

    def sent(self, outgoing: Sequence[Outgoing]) -> None:
        """Have the rows of what the brokers have durably deleted in one of the next transactions."""
        ids = [one.envelope.message_id for one in outgoing]
        with self._lock:
            self._sent += ids

    @property
    def has_sent(self) -> bool:
        """Whether rows are to be deleted."""
        return bool(self._sent)

    @contextmanager
    def deleting(self, connection: Connection) -> Iterator[None]:
        """Delete rows of what was sent; the transaction is committed in the block, otherwise others will."""
        with self._lock:
            ids, self._sent = self._sent[:DELETED_AT_ONCE_MAX], self._sent[DELETED_AT_ONCE_MAX:]
        try:
            if ids:
                sql = f"DELETE FROM legato_outbox WHERE message_id IN ({marks(ids)})"
                connection.exec_driver_sql(self._dialect(sql), tuple(ids))
            yield
        except BaseException:
            with self._lock:
                self._sent += ids
            raise


def marks(values: Sequence[object]) -> str:
    """A `?` for each."""
    return ", ".join("?" * len(values))
