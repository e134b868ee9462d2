"""A service that is killed at named points, and brokers that fail over there: what each level of transaction shows."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import OperationalError

from legato.client import ConnectionFactory, Queue
from legato.errors import FlowBackendError, FlowMessageSendError
from legato.failpoints import VARIABLE, DrillOrders, FlowPoint
from legato.flows import Context, Flows, Policy, Transaction
from legato.flows.starting import database_support
from tests.support.broker import BrokerPair
from tests.support.clients import forgetful_pair
from tests.support.databases import database_url, postgres
from tests.support.flow_processes import GRACE_S, TABLES, FlowProcess, begin, declare, insert

__all__ = ["database_url", "forgetful_pair", "postgres"]

WAIT_S = 60.0
LOOK_EVERY_S = 0.01
BETWEEN_COMMITS = FlowPoint.BETWEEN_DATABASE_COMMIT_AND_MESSAGING_COMMIT


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """The test's own way to the database."""
    engine = create_engine(database_url)
    with engine.begin() as connection:
        for statement in TABLES:
            connection.exec_driver_sql(statement)
    yield engine
    engine.dispose()


@pytest.fixture
def service(forgetful_pair: BrokerPair, database_url: str, prefix: str, tmp_path: Path) -> Iterator[FlowProcess]:
    """The service that is killed; its brokers give what it had to the next one at once."""
    process = FlowProcess(forgetful_pair.url, database_url, prefix, tmp_path / "drill_orders")
    yield process
    process.kill()


Ended = queue.SimpleQueue[str]


def hear(flows: Flows) -> Ended:
    """What comes to `Done`; no inbox drops anything there."""
    ended: Ended = queue.SimpleQueue()

    @flows.terminator("Done", transaction=Transaction.MESSAGING)
    def done(context: Context[None], item: str) -> None:
        # Not before its commit: it may be held there, and rolled back by a failover.
        context.after_commit(lambda: ended.put(item))

    return ended


@pytest.fixture
def outside(forgetful_pair: BrokerPair, prefix: str) -> Iterator[tuple[Flows, Ended]]:
    """Who begins the flows, and hears of their ends."""
    flows = Flows(forgetful_pair.url, prefix=prefix, policy=Policy(concurrency=1))
    ended = hear(flows)
    with flows:
        yield flows, ended


def items(engine: Engine, table: str) -> list[str]:
    """What is in a table."""
    with engine.connect() as connection:
        return sorted(row[0] for row in connection.exec_driver_sql(f"SELECT item FROM {table}"))


def count(engine: Engine, table: str) -> int:
    """How many rows are in a table."""
    with engine.connect() as connection:
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())


def in_doubt(engine: Engine) -> int:
    """Transactions of the dead that hold something in the database still."""
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            prepared, open_ones = (
                "SELECT count(*) FROM pg_prepared_xacts",
                "SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()",
            )
            return sum(int(connection.exec_driver_sql(text).scalar_one()) for text in (prepared, open_ones))
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        except OperationalError:
            return 1
        connection.rollback()
        return 0


def wait_until(is_so: Callable[[], bool]) -> None:
    """Look until it is so."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(LOOK_EVERY_S)


def kill_once(service: FlowProcess, flows: Flows, endpoint: str, item: str, point: FlowPoint) -> None:
    """Have the service, which runs, killed at a point while it works on an item."""
    service.drill_orders.arm(point)
    flows.send(endpoint, item, trace_id=item)
    service.kill_at(point)


def test_best_effort_shows_work_that_is_done_and_a_message_that_comes_again(
    service: FlowProcess, outside: tuple[Flows, Ended], engine: Engine, forgetful_pair: BrokerPair, prefix: str
) -> None:
    """A naive insert is doubled, one with a key collides on every attempt until its flow is a dead letter; who looks
    first goes on, and who may do it twice needs nothing (CONTRACT D6, D8, D9, D10).
    """
    flows, ended = outside
    service.start(Transaction.BEST_EFFORT)
    for endpoint in ("Plain", "Looking", "Setting"):
        kill_once(service, flows, endpoint, endpoint, BETWEEN_COMMITS)
        assert ended.empty(), "the work is done, and nobody was told"
        service.start(Transaction.BEST_EFFORT)
        assert ended.get(timeout=WAIT_S) == endpoint
    kill_once(service, flows, "Keyed", "tea", BETWEEN_COMMITS)
    service.start(Transaction.BEST_EFFORT)
    with (
        ConnectionFactory(forgetful_pair.url).create_connection() as connection,
        connection.create_session() as session,
    ):
        connection.start()
        letter = session.create_consumer(Queue(f"DLQ.{prefix}Keyed")).receive(timeout_s=WAIT_S)
    assert letter is not None
    assert str(letter.properties["JMS_LEGATO_EXCEPTION"]).startswith("IntegrityError")
    assert items(engine, "plain") == ["Plain", "Plain"]
    assert items(engine, "keyed") == ["Looking", "tea"]
    assert items(engine, "jobs") == ["Setting"]
    assert ended.empty()


def test_inbox_and_outbox_show_nothing_wherever_the_service_dies(
    service: FlowProcess, outside: tuple[Flows, Ended], engine: Engine
) -> None:
    """CONTRACT D11, D12, D13, D14: nor is anything in doubt that somebody would have to end by hand."""
    flows, ended = outside
    service.start(Transaction.INBOX_OUTBOX)
    for number, point in enumerate(FlowPoint):
        # Plain functions and coroutine functions in turn: below, each has the points that the other has here.
        kill_once(service, flows, ("Plain", "Coroutine")[number % 2], point, point)
        wait_until(lambda: in_doubt(engine) == 0)
        service.start(Transaction.INBOX_OUTBOX)
        assert ended.get(timeout=WAIT_S) == point
    # What was sent and not deleted is sent again by the sweeper of the last life, and dropped by the broker.
    wait_until(lambda: count(engine, "legato_outbox") == 0)
    flows.send("Done", "last", trace_id="last")
    assert ended.get(timeout=WAIT_S) == "last"
    assert items(engine, "plain") == sorted(FlowPoint)


def test_stages_that_are_coroutine_functions_have_the_transactions_of_others(
    service: FlowProcess, outside: tuple[Flows, Ended], engine: Engine
) -> None:
    """CONTRACT D11, D12, D13, D14: wherever the service dies, each once; best effort shows work done twice (D6, D8)."""
    flows, ended = outside
    service.start(Transaction.INBOX_OUTBOX)
    points = [point for number, point in enumerate(FlowPoint) if number % 2 == 0]
    for point in points:
        kill_once(service, flows, "Coroutine", point, point)
        wait_until(lambda: in_doubt(engine) == 0)
        service.start(Transaction.INBOX_OUTBOX)
        assert ended.get(timeout=WAIT_S) == point
    wait_until(lambda: count(engine, "legato_outbox") == 0)
    assert items(engine, "plain") == sorted(points)
    service.kill()
    service.start(Transaction.BEST_EFFORT)
    kill_once(service, flows, "Coroutine", "twice", BETWEEN_COMMITS)
    service.start(Transaction.BEST_EFFORT)
    assert ended.get(timeout=WAIT_S) == "twice"
    assert items(engine, "plain") == sorted([*points, "twice", "twice"])


def test_messages_alone_are_received_and_sent_together_or_not_at_all(
    service: FlowProcess, outside: tuple[Flows, Ended]
) -> None:
    """CONTRACT D1, D3."""
    flows, ended = outside
    service.start(Transaction.MESSAGING)
    kill_once(service, flows, "Plain", "tea", FlowPoint.BETWEEN_SEND_AND_MESSAGING_COMMIT)
    assert ended.empty()
    service.start(Transaction.MESSAGING)
    assert ended.get(timeout=WAIT_S) == "tea"
    flows.send("Done", "last", trace_id="last")
    assert ended.get(timeout=WAIT_S) == "last"


@pytest.mark.parametrize("level", [Transaction.BEST_EFFORT, Transaction.INBOX_OUTBOX])
def test_an_initiator_that_dies_between_its_commits_leaves_its_job_and_no_flow_unless_it_has_an_outbox(
    service: FlowProcess, outside: tuple[Flows, Ended], engine: Engine, level: Transaction
) -> None:
    """CONTRACT D7, D12."""
    flows, ended = outside
    service.drill_orders.arm(BETWEEN_COMMITS)
    service.start(level, begin)
    service.kill_at(BETWEEN_COMMITS)
    assert items(engine, "keyed") == ["tea"]
    if level is Transaction.INBOX_OUTBOX:
        # Any process of the service sends it.
        service.start(level)
        assert ended.get(timeout=WAIT_S) == "tea"
    flows.send("Done", "last", trace_id="last")
    assert ended.get(timeout=WAIT_S) == "last"


@pytest.mark.parametrize("level", [Transaction.BEST_EFFORT, Transaction.INBOX_OUTBOX])
def test_a_broker_that_dies_between_the_commits_doubles_best_effort_and_nothing_with_inbox_and_outbox(
    pair: BrokerPair,
    prefix: str,
    database_url: str,
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    level: Transaction,
) -> None:
    """CONTRACT D6, D8, D12, D13."""
    monkeypatch.setattr(database_support, "OUTBOX_GRACE_S", GRACE_S)
    drill_orders = DrillOrders(tmp_path / "drill_orders")
    flows = Flows(pair.url, database=database_url, prefix=prefix, policy=Policy(concurrency=1))
    declare(flows, level)
    ended = hear(flows)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "drill_orders"))
    flows.start()
    monkeypatch.delenv(VARIABLE)
    points = [BETWEEN_COMMITS]
    if level is Transaction.INBOX_OUTBOX:
        points += [FlowPoint.BEFORE_DATABASE_COMMIT, FlowPoint.BETWEEN_SEND_AND_MESSAGING_COMMIT]
    for number, point in enumerate(points):
        drill_orders.arm(point)
        flows.send(("Plain", "Coroutine")[number % 2], point, trace_id=point)
        wait_until(lambda: drill_orders.reached)
        pair.fail_over()
        drill_orders.disarm()
        assert ended.get(timeout=WAIT_S) == point
    if level is Transaction.INBOX_OUTBOX:
        wait_until(lambda: count(engine, "legato_outbox") == 0)
    flows.send("Done", "last", trace_id="last")
    assert ended.get(timeout=WAIT_S) == "last"
    flows.stop()
    assert items(engine, "plain") == sorted(points * (2 if level is Transaction.BEST_EFFORT else 1))


def test_an_initiator_hears_whether_its_database_was_committed_when_the_brokers_are_gone(
    pair: BrokerPair,
    prefix: str,
    database_url: str,
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CONTRACT D7: two errors, and none at all where an outbox keeps the messages (D12)."""
    drill_orders = DrillOrders(tmp_path / "drill_orders")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "drill_orders"))
    flows = Flows(f"{pair.url}?reconnect_attempts=2", database=database_url, prefix=prefix)
    monkeypatch.delenv(VARIABLE)
    errors: list[Exception] = []

    def initiate(level: Transaction, item: str) -> None:
        try:
            with flows.initiate(item, transaction=level) as initiation:
                insert(initiation.database, "plain", item)
                initiation.send("Done", item)
        except Exception as error:
            errors.append(error)

    drill_orders.arm(BETWEEN_COMMITS)
    thread = threading.Thread(target=initiate, args=(Transaction.BEST_EFFORT, "committed"))
    thread.start()
    wait_until(lambda: drill_orders.reached)
    pair.close()
    drill_orders.disarm()
    thread.join(WAIT_S)
    assert [type(error) for error in errors] == [FlowMessageSendError]
    initiate(Transaction.BEST_EFFORT, "not committed")
    assert [type(error) for error in errors] == [FlowMessageSendError, FlowBackendError]
    initiate(Transaction.INBOX_OUTBOX, "kept")
    flows.stop()
    assert len(errors) == 2
    assert items(engine, "plain") == ["committed", "kept"]
    assert count(engine, "legato_outbox") == 1
