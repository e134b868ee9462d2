"""Stages and initiations with a database: what commits together, and what the tables of inbox and outbox hold."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Connection, Engine, create_engine, event

from legato.client import ConnectionFactory, management
from legato.clock import SystemClock
from legato.errors import ConfigError
from legato.flows import Context, FlowBackendError, FlowError, Flows, Policy, Transaction
from legato.flows.database.database import make_engine
from legato.flows.model.calls import first_envelope
from legato.flows.model.envelope import Call, Outgoing
from legato.flows.model.wire import Sender
from tests.integration.client.calling import until
from tests.support.broker import BrokerPair
from tests.support.databases import database_url, postgres

__all__ = ["database_url", "postgres"]

WAIT_S = 60.0
FEW = Policy(concurrency=2)
LEVELS = [Transaction.BEST_EFFORT, Transaction.INBOX_OUTBOX]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """The test's own way to the database, with a table for totals."""
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE totals (item TEXT PRIMARY KEY, quantity INTEGER NOT NULL)")
    yield engine
    engine.dispose()


def test_services_that_begin_at_once_with_a_new_file_all_get_it(tmp_path: Path) -> None:
    """SQLite refuses some of them at first; one file in ten, so there are many."""
    for number in range(60):
        begin = threading.Barrier(4)
        services: list[Engine] = []

        def start(url: str, begin: threading.Barrier, services: list[Engine]) -> None:
            begin.wait()
            services.append(make_engine(url))

        arguments = (f"sqlite:///{tmp_path}/{number}.db", begin, services)
        threads = [threading.Thread(target=start, args=arguments) for _ in range(begin.parties)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(services) == begin.parties
        for service in services:
            service.dispose()


def add(connection: Connection, item: str) -> None:
    """One more of an item."""
    sql = f"INSERT INTO totals VALUES ('{item}', 1) ON CONFLICT (item) DO UPDATE SET quantity = totals.quantity + 1"
    connection.exec_driver_sql(sql)


def totals(engine: Engine) -> dict[str, int]:
    """What the database says."""
    with engine.connect() as connection:
        return {row.item: row.quantity for row in connection.exec_driver_sql("SELECT * FROM totals")}


def count(engine: Engine, table: str) -> int:
    """How many rows there are."""
    with engine.connect() as connection:
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())


def declare_counting(flows: Flows) -> queue.SimpleQueue[str]:
    """Three stages of which each counts in the database, and where their flows end."""
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()
    endpoint = flows.endpoint("Count")

    @endpoint.stage
    def first(context: Context[None], item: str) -> None:
        add(context.database, item)
        context.next(item)

    @endpoint.stage
    def second(context: Context[None], item: str) -> None:
        context.dbapi_connection.cursor().execute(f"UPDATE totals SET quantity = quantity + 1 WHERE item = '{item}'")
        context.next(item)

    @endpoint.last_stage
    def third(context: Context[None], item: str) -> str:
        add(context.database, item)
        return item

    @flows.terminator("Counted", transaction=Transaction.MESSAGING)
    def counted(context: Context[None], item: str) -> None:
        ended.put(item)

    return ended


@pytest.mark.parametrize("batch_max", [1, 10])
@pytest.mark.parametrize("level", LEVELS)
def test_stages_work_in_one_database_transaction_each_that_commits_with_their_messages(
    make_flows: Callable[..., Flows], database_url: str, engine: Engine, level: Transaction, batch_max: int
) -> None:
    """CONTRACT D1, D3, D4, D12, D13."""
    flows = make_flows(database=database_url, policy=Policy(transaction=level, concurrency=2, batch_max=batch_max))
    ended = declare_counting(flows)
    items = [f"item{number}" for number in range(20)]
    with flows.initiate("counting") as initiation:
        for item in items:
            initiation.request("Count", item, reply_to="Counted")
    flows.start()
    assert sorted(ended.get(timeout=WAIT_S) for _ in items) == sorted(items)
    assert totals(engine) == dict.fromkeys(items, 3)
    flows.stop()
    if level is Transaction.INBOX_OUTBOX:
        assert count(engine, "legato_inbox") == 3 * len(items)
        assert count(engine, "legato_outbox") == 0, "what was sent is deleted"


@pytest.mark.parametrize("level", LEVELS)
def test_a_stage_that_fails_leaves_nothing_in_the_database_and_is_tried_again(
    make_flows: Callable[..., Flows], database_url: str, engine: Engine, level: Transaction
) -> None:
    """CONTRACT D2, D5."""
    flows = make_flows(database=database_url, policy=FEW)
    seen: queue.SimpleQueue[int] = queue.SimpleQueue()

    @flows.terminator("Fail", transaction=level)
    def fail(context: Context[None], item: str) -> None:
        add(context.database, item)
        context.initiate("more").send("Counted", item)
        if context.delivery_count == 1:
            raise ValueError("the machine is broken")

    @flows.terminator("Counted", transaction=Transaction.MESSAGING)
    def counted(context: Context[None], item: str) -> None:
        seen.put(context.delivery_count)

    flows.start()
    flows.send("Fail", "tea", trace_id="tea")
    assert seen.get(timeout=WAIT_S) == 1
    flows.stop()
    assert totals(engine) == {"tea": 1}
    assert seen.empty()


def test_best_effort_commits_the_database_before_messaging(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str, database_url: str, engine: Engine
) -> None:
    """CONTRACT D4, D5: while the database commits, what the stage sent is not sent; if it cannot, it never is."""
    database = make_engine(database_url)
    flows = make_flows(database=database, policy=Policy(transaction=Transaction.BEST_EFFORT))
    looks: queue.SimpleQueue[int] = queue.SimpleQueue()

    @flows.terminator("Count")
    def count(context: Context[None], item: str) -> None:
        context.database.info["attempt"] = context.delivery_count
        add(context.database, item)
        context.initiate("told").send("Told", item)

    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        told = session.create_queue(f"{prefix}Told")

        def look(committing: Connection) -> None:
            if attempt := committing.info.pop("attempt", 0):
                with session.create_browser(told) as browser:
                    looks.put(len(list(browser)))
                if attempt == 1:
                    committing.connection.rollback()
                    raise OSError("the disk of the database is full")

        event.listen(database, "commit", look)
        flows.start()
        flows.send("Count", "tea", trace_id="tea")
        assert [looks.get(timeout=WAIT_S) for _ in range(2)] == [0, 0]
        consumer = session.create_consumer(told)
        assert consumer.receive(timeout_s=WAIT_S) is not None
        flows.stop()
        assert consumer.receive_no_wait() is None
    assert totals(engine) == {"tea": 1}


def test_an_idempotent_stage_has_neither_inbox_nor_outbox(
    make_flows: Callable[..., Flows], database_url: str, engine: Engine
) -> None:
    """CONTRACT D10, D14."""
    flows = make_flows(database=database_url, policy=FEW)
    done: queue.SimpleQueue[str] = queue.SimpleQueue()

    @flows.terminator("Set", idempotent=True)
    def set_quantity(context: Context[None], item: str) -> None:
        add(context.database, item)
        context.after_commit(lambda: done.put(item))

    @flows.terminator("Keep")
    def keep(context: Context[None], item: str) -> None:
        """With an inbox."""

    flows.start()
    flows.send("Set", "tea", trace_id="tea")
    assert done.get(timeout=WAIT_S) == "tea"
    assert totals(engine) == {"tea": 1}
    assert count(engine, "legato_inbox") == 0


def test_a_stage_cannot_end_the_transaction_that_is_its_services(
    make_flows: Callable[..., Flows], database_url: str, engine: Engine
) -> None:
    """CONTRACT D1."""
    flows = make_flows(database=database_url, policy=FEW)
    said: queue.SimpleQueue[str] = queue.SimpleQueue()

    @flows.terminator("Commit")
    def commit(context: Context[None], item: str) -> None:
        add(context.database, item)
        with pytest.raises(FlowError, match="commits with the stage"):
            context.database.commit()
        with pytest.raises(FlowError, match="raise an exception"):
            context.database.rollback()
        with context.database.begin_nested() as part:
            add(context.database, "milk")
            part.rollback()
        context.after_commit(lambda: said.put(item))

    flows.start()
    flows.send("Commit", "tea", trace_id="tea")
    assert said.get(timeout=WAIT_S) == "tea"
    assert totals(engine) == {"tea": 1}


def test_flows_begin_when_the_applications_own_transaction_commits_and_only_then(
    make_flows: Callable[..., Flows], database_url: str, engine: Engine
) -> None:
    """CONTRACT D7, D12, D24."""
    flows = make_flows(database=database_url, policy=FEW)
    ended = declare_counting(flows)
    flows.start()
    for item, commits in (("coffee", False), ("tea", True)):
        with engine.connect() as connection:
            add(connection, item)
            with flows.initiate(item, database=connection) as initiation:
                initiation.request("Count", item, reply_to="Counted")
            if commits:
                connection.commit()
    assert ended.get(timeout=WAIT_S) == "tea"
    assert totals(engine) == {"tea": 4}
    flows.stop()
    assert count(engine, "legato_outbox") == 0
    assert ended.empty()


def test_a_connection_that_begins_many_flows_listens_once(make_flows: Callable[..., Flows], database_url: str) -> None:
    """SQLAlchemy keeps a listener as long as its connection, and asks all of them at each commit."""
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()
    flows = make_flows(database=database_url, policy=FEW)

    @flows.terminator("Orders.done")
    def done(context: Context[None], item: str) -> None:
        ended.put(item)

    flows.start()
    assert flows._database_support is not None
    with flows._database_support.source.engine.connect() as connection:
        for number in range(3):
            with flows.initiate(f"order:{number}", database=connection) as initiation:
                initiation.send("Orders.done", str(number))
            if number == 1:
                connection.rollback()
            else:
                connection.commit()
        assert len(list(connection.dispatch.commit)) == 1
    assert sorted(ended.get(timeout=WAIT_S) for _ in range(2)) == ["0", "2"]


def test_an_application_that_only_begins_flows_needs_no_tables_beforehand(
    make_flows: Callable[..., Flows], database_url: str, engine: Engine
) -> None:
    """CONTRACT D12, D24: its transaction has written already, so nobody else could create them."""
    heard = make_flows()
    ended = declare_counting(heard)
    heard.start()
    flows = make_flows(database=database_url)
    with engine.begin() as connection:
        add(connection, "tea")
        with flows.initiate("tea", database=connection) as initiation:
            initiation.send("Counted", "tea")
    assert ended.get(timeout=WAIT_S) == "tea"
    flows.stop()
    assert count(engine, "legato_outbox") == 0


def test_a_service_without_stages_sends_what_the_one_before_it_was_killed_over(
    make_flows: Callable[..., Flows], database_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT D12, D24: the application had committed, and no sweeper lived to see it."""
    monkeypatch.setattr("legato.flows.starting.database_support.OUTBOX_GRACE_S", 0.0)
    heard = make_flows()
    ended = declare_counting(heard)
    heard.start()
    killed = make_flows(database=database_url)
    killed.start()
    with monkeypatch.context() as patch:
        patch.setattr("legato.flows.database.sweeper.Sweeper.expect", lambda self, cause_id: None)
        with engine.begin() as connection, killed.initiate("tea", database=connection) as initiation:
            initiation.send("Counted", "tea")
    killed.stop()
    assert count(engine, "legato_outbox") == 1
    restarted = make_flows(database=database_url)
    restarted.start()
    assert ended.get(timeout=WAIT_S) == "tea"
    restarted.stop()
    assert count(engine, "legato_outbox") == 0


def test_flows_do_not_begin_in_a_database_whose_outbox_nobody_looks_after(
    make_flows: Callable[..., Flows], database_url: str, tmp_path: Path
) -> None:
    """CONTRACT D3: one database per service."""
    flows = make_flows(database=f"sqlite:///{tmp_path}/other.db")
    theirs = create_engine(database_url)
    with theirs.connect() as connection:
        initiate = flows.initiate("tea", database=connection)
        with pytest.raises(FlowError, match="leads to"):
            initiate.__enter__()
    theirs.dispose()


def test_what_all_processes_are_to_hear_has_no_inbox_that_they_share(
    make_flows: Callable[..., Flows], database_url: str
) -> None:
    """CONTRACT D14."""
    flows = make_flows(database=database_url)

    @flows.subscription_terminator("News", transaction=Transaction.INBOX_OUTBOX)
    def news(context: Context[None], item: str) -> None:
        """Never."""

    with pytest.raises(ConfigError, match="News hears in each process"):
        flows.start()


@pytest.mark.parametrize("level", LEVELS)
def test_an_initiation_has_a_database_transaction_of_its_own(
    make_flows: Callable[..., Flows], database_url: str, engine: Engine, level: Transaction
) -> None:
    """CONTRACT D3, D7."""
    flows = make_flows(database=database_url, policy=FEW)
    ended = declare_counting(flows)
    flows.start()
    with contextlib.suppress(KeyError), flows.initiate("coffee", transaction=level) as initiation:
        add(initiation.database, "coffee")
        initiation.request("Count", "coffee", reply_to="Counted")
        raise KeyError("coffee")
    with flows.initiate("tea", transaction=level) as initiation:
        add(initiation.database, "tea")
        initiation.request("Count", "tea", reply_to="Counted")
    assert ended.get(timeout=WAIT_S) == "tea"
    assert totals(engine) == {"tea": 4}


def test_a_database_that_cannot_commit_begins_no_flow(
    make_flows: Callable[..., Flows], database_url: str, engine: Engine
) -> None:
    """CONTRACT D5, D7."""
    theirs = create_engine(database_url)
    if theirs.dialect.name == "sqlite":
        event.listen(theirs, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys = ON"))
    flows = make_flows(database=theirs, policy=FEW)
    ended = declare_counting(flows)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE parts (item TEXT REFERENCES totals (item) DEFERRABLE INITIALLY DEFERRED)"
        )
    flows.start()
    initiate = flows.initiate("coffee", transaction=Transaction.BEST_EFFORT)
    initiation = initiate.__enter__()
    initiation.database.exec_driver_sql("INSERT INTO parts VALUES ('not an item')")
    initiation.request("Count", "coffee", reply_to="Counted")
    with pytest.raises(FlowBackendError, match="nothing was"):
        initiate.__exit__(None, None, None)
    with flows.initiate("tea") as initiation:
        initiation.request("Count", "tea", reply_to="Counted")
    assert ended.get(timeout=WAIT_S) == "tea"
    assert ended.empty()
    flows.stop()
    theirs.dispose()


@pytest.mark.parametrize(
    ("database", "says"),
    [
        ("sqlite://", "in memory"),
        ("no-such-database://x", "no URL of a database"),
        ("mysql+pymysql://x", "pip install"),
        ("postgres://ann:s3cret@x/shop", "Write postgresql:// in place of postgres://"),
        ("mysql+pymysql://ann:s3cret@x/shop", "needs the module pymysql"),
    ],
)
def test_a_database_that_cannot_be_used_is_refused_with_what_to_do(database: str, says: str) -> None:
    """CONTRACT D3."""
    with pytest.raises(ConfigError, match=says) as refused:
        Flows("amqp://127.0.0.1:1", database=database)
    assert "s3cret" not in str(refused.value)


class Wrong(SystemClock):
    """The clock of a machine that is set wrong, by so many days."""

    def __init__(self, days: int) -> None:
        self._ahead_us = days * 86_400_000_000

    def now_us(self) -> int:
        return super().now_us() + self._ahead_us


@pytest.mark.parametrize("days", [8, -8])
def test_of_two_services_that_share_an_inbox_one_with_a_wrong_clock_makes_no_work_done_twice(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str, database_url: str, engine: Engine, days: int
) -> None:
    """CONTRACT D13: a message that is delivered again is known, whoever of them gets it, and whoever prunes."""
    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    services = [make_flows(database=database_url, clock=clock, policy=FEW) for clock in (SystemClock(), Wrong(days))]
    for service in services:

        @service.terminator("Work")
        def work(context: Context[None], item: str) -> None:
            add(context.database, item)
            context.after_commit(lambda: done.put(item))

        service.start()
    names = [f"m{number}" for number in range(20)]
    with ConnectionFactory(calm_pair.url).create_connection() as connection, connection.create_session() as session:
        for again in range(2):
            for name in names:
                envelope = first_envelope(
                    message_id=name,
                    flow_id=name,
                    trace_id=name,
                    sender="test",
                    to="Work",
                    data=msgspec.Raw(f'"{name}"'.encode()),
                    now_us=SystemClock().now_us(),
                    call=Call.SEND,
                )
                Sender(session, prefix).send(Outgoing(envelope))
            for _ in () if again else names:
                done.get(timeout=WAIT_S)
            for service in services:
                assert service._database_support is not None
                service._database_support.sweeper._prune()
        until(lambda: not any(row["depth"] for row in management.rows(calm_pair.url, "queue", f"{prefix}Work")))
    assert totals(engine) == dict.fromkeys(names, 1)
    assert count(engine, "legato_inbox") == len(names)


def test_best_effort_goes_on_after_a_failover_in_the_middle_of_a_stage(
    make_flows: Callable[..., Flows], pair: BrokerPair, database_url: str
) -> None:
    """CONTRACT D4: nothing is committed then, and the message comes again, once."""
    flows = make_flows(database=database_url, policy=Policy(transaction=Transaction.BEST_EFFORT, concurrency=1))
    runs: queue.SimpleQueue[int] = queue.SimpleQueue()
    go_on = threading.Event()
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    @flows.single("Count")
    def count_one(context: Context[None], item: str) -> str:
        runs.put(context.delivery_count)
        assert go_on.wait(WAIT_S)
        return item

    @flows.terminator("Count.end", transaction=Transaction.MESSAGING)
    def end(context: Context[None], item: str) -> None:
        ended.put(item)

    flows.start()
    with flows.initiate("count:1") as initiation:
        initiation.request("Count", "tea", reply_to="Count.end")
    runs.get(timeout=WAIT_S)
    pair.fail_over()
    until(lambda: flows.is_connected)
    go_on.set()
    assert ended.get(timeout=WAIT_S) == "tea"
    flows.stop()
    assert runs.qsize() == 1
