"""The database of a service: its engine, the stages' transactions, the tables of inbox and outbox."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import NoReturn
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError

from legato.errors import ConfigError, FlowError
from legato.flows.database.inbox import INBOX_SQL
from legato.flows.database.outbox import OUTBOX_SQL

logger = logging.getLogger(__name__)

WRITER_WAIT_MAX_S = 30.0
"""How long a transaction waits for the one that SQLite allows at a time."""
_BUSY_PAUSE_S = 0.02
POOL_SIZE = 20
POOL_OVERFLOW_MAX = 80
SQLITE, POSTGRESQL = "sqlite", "postgresql"
_at_commit: WeakKeyDictionary[Connection, list[Callable[[], None]]] = WeakKeyDictionary()
"""What is to be done at the commit of an application's transaction."""
_committing = threading.Lock()
SCHEMA_LOCK = 0x1E6A70
"""PostgreSQL's advisory lock under which tables are created: `IF NOT EXISTS` alone fails if two do it at once."""


class StageConnection(Connection):
    """A connection whose transaction is the stage's: ending it is not for the stage's function."""

    def commit(self) -> NoReturn:
        """Refused.

        Raises:
            FlowError: always.
        """
        raise FlowError("The database transaction commits with the stage; for a part of it use `begin_nested()`.")

    def rollback(self) -> NoReturn:
        """Refused.

        Raises:
            FlowError: always.
        """
        raise FlowError("The database transaction rolls back with the stage: raise an exception.")


class DataSource:
    """A database that stages work in: SQLite or PostgreSQL with all levels, others without inbox and outbox.

    Args:
        database: an SQLAlchemy URL, or an engine to be used as it is. `postgresql:` means psycopg 3.

    Raises:
        ConfigError: the URL is of no known kind, its driver is missing, or the database is only in memory.
    """

    def __init__(self, database: str | Engine) -> None:
        self.engine = make_engine(database) if isinstance(database, str) else database
        self._owned = isinstance(database, str)
        self.kind = self.engine.dialect.name
        # SQLite lets one transaction write. Who waits for it here is woken; who waits in SQLite looks now and then.
        self._writer = threading.Lock() if self.kind == SQLITE else None
        self._is_prepared = False
        self._preparing = threading.Lock()

    def transaction(self) -> DatabaseTransaction:
        """One that begins when its connection is first asked for."""
        return DatabaseTransaction(self.engine, self._writer)

    def sql(self, text: str) -> str:
        """A statement with `?` for its arguments in the way that the driver has them."""
        return text if self.kind == SQLITE else text.replace("?", "%s")

    def create_tables(self) -> None:
        """Create the tables of inbox and outbox if they are missing; one may also run `schema_sql()` oneself.

        Raises:
            ConfigError: the database is neither SQLite nor PostgreSQL.
        """
        with self._preparing:
            if not self._is_prepared:
                create_tables(self.engine)
                self._is_prepared = True

    def create_tables_in(self, connection: Connection) -> None:
        """The same in an open transaction of the application's, which may hold what another one would wait for.

        Raises:
            ConfigError: the database is neither SQLite nor PostgreSQL.
        """
        if not self._is_prepared:
            check_kind(self.kind)
            if tables_exist(connection):
                self._is_prepared = True
            else:
                execute_schema(connection)

    def has_tables(self) -> bool:
        """Whether the tables of inbox and outbox are there."""
        if not self._is_prepared:
            with self.engine.connect() as connection:
                self._is_prepared = tables_exist(connection)
        return self._is_prepared

    def may_have_outbox(self) -> bool:
        """Whether the tables are there, or the database does not say."""
        if self.kind not in (SQLITE, POSTGRESQL):
            return False
        try:
            return self.has_tables()
        except SQLAlchemyError as error:
            logger.warning("The database does not say whether it has an outbox; it is asked again: %r", error)
            return True

    def same_as(self, connection: Connection) -> bool:
        """Whether a connection of the application's leads to this database."""
        theirs = connection.engine
        return theirs is self.engine or theirs.url == self.engine.url

    def close(self) -> None:
        """Close the connections that nobody uses."""
        if self._owned:
            self.engine.dispose()


class DatabaseTransaction:
    """A transaction of a stage: begun when its connection is first asked for, rolled back unless committed."""

    def __init__(self, engine: Engine, writer: threading.Lock | None) -> None:
        self._engine = engine
        self._writer = writer
        self._connection: StageConnection | None = None

    def connection(self) -> Connection:
        """The connection, in its transaction.

        Raises:
            FlowError: another thread of this process has been writing for too long.
            sqlalchemy.exc.DBAPIError: the database cannot be reached, or another process is writing.
        """
        if self._connection is None:
            self._begin()
            assert self._connection is not None
        return self._connection

    def commit(self) -> None:
        """Commit, if it has begun.

        Raises:
            sqlalchemy.exc.DBAPIError: it could not be.
        """
        if self._connection is not None:
            Connection.commit(self._connection)
            self._end()

    def __enter__(self) -> DatabaseTransaction:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._end()

    def _begin(self) -> None:
        writer = self._writer
        if writer is None:
            self._connection = begun(self._engine)
            return
        if not writer.acquire(timeout=WRITER_WAIT_MAX_S):
            raise FlowError(
                f"Another thread has had a transaction of the database open for {WRITER_WAIT_MAX_S:.0f} s; SQLite "
                "allows one at a time. Does a stage begin a second one while its own is open?"
            )
        try:
            connection = begun(self._engine)
            try:
                # A transaction that began by reading could not go on to write after somebody else had written.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        except BaseException:
            writer.release()
            raise

    def _end(self) -> None:
        connection, self._connection = self._connection, None
        assert connection is not None
        try:
            connection.close()
        finally:
            if self._writer is not None:
                self._writer.release()


def begun(engine: Engine) -> StageConnection:
    """A connection with its transaction, which is SQLAlchemy's to commit even if only the driver is used in it."""
    connection = StageConnection(engine)
    connection.begin()
    return connection


def make_engine(database: str) -> Engine:
    """An engine for the threads of a service.

    Raises:
        ConfigError: the URL is of no known kind, its driver is missing, or the database is only in memory.
    """
    shown = database
    try:
        url = make_url(database)
        shown = url.render_as_string(hide_password=True)
        if url.drivername == POSTGRESQL:
            url = url.set(drivername="postgresql+psycopg")
        if url.get_backend_name() == SQLITE:
            if url.database in (None, "", ":memory:"):
                raise ConfigError("A database in memory dies with its process: name a file, `sqlite:///orders.db`.")
            engine = create_engine(
                url, connect_args={"timeout": WRITER_WAIT_MAX_S}, pool_size=POOL_SIZE, max_overflow=POOL_OVERFLOW_MAX
            )
            _let_readers_be(engine)
            return engine
        return create_engine(url, pool_size=POOL_SIZE, max_overflow=POOL_OVERFLOW_MAX)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{shown} needs the module {error.name}: pip install 'legato[flows]', or 'legato[postgresql]'."
        ) from error
    except ArgumentError as error:
        hint = " Write postgresql:// in place of postgres://." if shown.startswith("postgres://") else ""
        raise ConfigError(f"{shown} is no URL of a database: {error}.{hint}") from error


def _let_readers_be(engine: Engine) -> None:
    """Readers and the writer do not wait for each other; each commit is durable (`synchronous` is FULL).

    Several that begin with a new file at once all want it for themselves, and SQLite refuses that at once instead of
    letting one wait for the other.
    """
    give_up_at = time.monotonic() + WRITER_WAIT_MAX_S
    while True:
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            return
        except OperationalError as error:
            is_busy = getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > give_up_at:
                raise
            time.sleep(_BUSY_PAUSE_S)


def schema_sql() -> str:
    """SQL that creates the tables of inbox and outbox, for users who manage their schema themselves.

    The same for SQLite and PostgreSQL. A service whose tables are there creates none.
    """
    return ";\n\n".join((*INBOX_SQL, *OUTBOX_SQL)) + ";\n"


def create_tables(engine: Engine) -> None:
    """Create the tables of inbox and outbox if they are missing.

    Raises:
        ConfigError: the database is neither SQLite nor PostgreSQL.
    """
    check_kind(engine.dialect.name)
    with engine.connect() as connection:
        if tables_exist(connection):
            return
    with engine.connect() as connection:
        if engine.dialect.name == SQLITE:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        execute_schema(connection)
        connection.commit()
    logger.info("The tables of inbox and outbox were created.")


def check_kind(kind: str) -> None:
    """Refuse a database in which inbox and outbox would not be right.

    Raises:
        ConfigError: the database is neither SQLite nor PostgreSQL.
    """
    if kind not in (SQLITE, POSTGRESQL):
        raise ConfigError(f"Inbox and outbox are kept in SQLite or PostgreSQL; this database is {kind}.")


def execute_schema(connection: Connection) -> None:
    """Create what is missing in the connection's transaction."""
    if connection.dialect.name == POSTGRESQL:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({SCHEMA_LOCK})")
    for statement in (*INBOX_SQL, *OUTBOX_SQL):
        connection.exec_driver_sql(statement)


def tables_exist(connection: Connection) -> bool:
    """Whether nothing has to be created, which a service may not even be allowed to."""
    return all(connection.dialect.has_table(connection, name) for name in ("legato_inbox", "legato_outbox"))


def call_at_commit(connection: Connection, action: Callable[[], None]) -> None:
    """Have something done when the application commits its transaction: just before that takes effect.

    A connection has one listener for all of them: SQLAlchemy keeps each one with its connection, also with `once`.
    """
    with _committing:
        actions = _at_commit.get(connection)
        if actions is None:
            actions = _at_commit[connection] = []
            event.listen(connection, "commit", _committed)
            event.listen(connection, "rollback", _rolled_back)
    actions.append(action)


def _committed(connection: Connection) -> None:
    actions = _at_commit.get(connection, [])
    due = actions[:]
    actions.clear()
    for action in due:
        action()


def _rolled_back(connection: Connection) -> None:
    _at_commit.get(connection, []).clear()


def is_in_doubt(error: BaseException) -> bool:
    """Whether an error of a commit leaves open what became of it: the connection was lost meanwhile."""
    return isinstance(error, DBAPIError) and error.connection_invalidated
