"""Services that stop: while a stage is at work, after a start that failed, and to be started again."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine

from legato.errors import FlowError, JMSError, JMSSecurityError
from legato.flows import Context, FlowBackendError, Flows, Policy, Transaction
from tests.integration.client.calling import Calling, until
from tests.integration.flows.test_databases import add, engine, totals
from tests.integration.server.test_logins import add as add_user
from tests.support.databases import database_url, postgres
from tests.support.server import Server, server

__all__ = ["database_url", "engine", "postgres"]

WAIT_S = 60.0
LONG_S = 3600.0
WITHOUT_BROWSE = """
[[role]]
name = "workers"
members = ["ann"]
allow = [{ on = "flows.#", may = ["send", "receive", "create"] }]
"""


def test_a_stage_that_is_given_up_leaves_nothing_in_its_database(
    make_flows: Callable[..., Flows], database_url: str, engine: Engine
) -> None:
    """CONTRACT D4: its message comes again, so that its work would be done twice."""
    policy = Policy(transaction=Transaction.BEST_EFFORT, concurrency=1)
    flows, other = make_flows(database=database_url, policy=policy), make_flows(database=database_url, policy=policy)
    at_work, go_on = threading.Event(), threading.Event()
    done: queue.SimpleQueue[str] = queue.SimpleQueue()

    @flows.terminator("Count")
    def count(context: Context[None], item: str) -> None:
        at_work.set()
        assert go_on.wait(WAIT_S)
        add(context.database, item)

    @other.terminator("Count")
    def count_there(context: Context[None], item: str) -> None:
        add(context.database, item)
        context.after_commit(lambda: done.put(item))

    flows.start()
    [worker] = flows._workers
    flows.send("Count", "tea", trace_id="tea")
    assert at_work.wait(WAIT_S)
    assert not flows.stop(timeout_s=0.1)
    go_on.set()
    worker._thread.join(WAIT_S)
    other.start()
    assert done.get(timeout=WAIT_S) == "tea"
    assert totals(engine) == {"tea": 1}


def test_a_service_that_failed_to_start_stops_at_once(
    make_flows: Callable[..., Flows], monkeypatch: pytest.MonkeyPatch
) -> None:
    flows = make_flows(policy=Policy(concurrency=1))

    @flows.terminator("Count")
    def count(context: Context[None], item: str) -> None:
        pass

    def refuse(_: object) -> None:
        raise JMSError("The user may not receive from flow.cancelled.")

    with monkeypatch.context() as patch:
        patch.setattr(flows._cancelled, "follow", refuse)
        with pytest.raises(JMSError, match="may not"):
            flows.start()
    begun = time.monotonic()
    assert flows.stop()
    assert time.monotonic() - begun < 10
    assert flows._connection is None


def test_a_service_that_may_not_look_for_cancelled_flows_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked again, as over a failover."""
    monkeypatch.setattr("legato.flows.starting.cancellations.LOOK_AGAIN_S", LONG_S)
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    add_user(store / "users", "ann", "x")
    (tmp_path / "legato.toml").write_text(WITHOUT_BROWSE)
    with server(store, "--config", str(tmp_path / "legato.toml")) as running:
        flows = Flows(f"amqp://ann:x@127.0.0.1:{running.port}", policy=Policy(concurrency=1))

        @flows.terminator("Count")
        def count(context: Context[None], item: str) -> None:
            pass

        starting = Calling(flows.start)
        with pytest.raises(JMSSecurityError, match=r"browse on 'flows\.cancelled'"):
            starting.outcome()
        flows.stop()


def test_a_stage_is_told_that_it_cannot_stop_its_service(make_flows: Callable[..., Flows]) -> None:
    """It waited for itself, and left the connection open."""
    flows = make_flows(policy=Policy(concurrency=1))

    @flows.single("Shop.close")
    def close(context: Context[None], item: str) -> str:
        with pytest.raises(FlowError, match="have another thread call"):
            flows.stop()
        return "open"

    flows.start()
    future = flows.request("Shop.close", "tea", trace_id="tea", reply=str, timeout_s=WAIT_S)
    assert future.result() == "open"
    assert flows.stop()


def test_a_service_that_is_started_again_has_replies(make_flows: Callable[..., Flows]) -> None:
    flows = make_flows(policy=Policy(concurrency=1))

    @flows.single("Shop.sell")
    def sell(context: Context[None], item: str) -> str:
        return f"{item} sold"

    for _ in range(2):
        flows.start()
        future = flows.request("Shop.sell", "tea", trace_id="tea", reply=str, timeout_s=WAIT_S)
        assert future.result() == "tea sold"
        assert flows.stop()


def test_a_service_that_was_started_says_so_and_goes_on(make_flows: Callable[..., Flows]) -> None:
    """`start()` raised a `RuntimeError` of a thread's, and left another consumer at the broker each time."""
    flows = make_flows(policy=Policy(concurrency=1))

    @flows.single("Shop.sell")
    def sell(context: Context[None], item: str) -> str:
        return f"{item} sold"

    flows.start()
    sessions = len(flows.connection()._sessions)
    with pytest.raises(FlowError, match="has been started"):
        flows.start()
    assert len(flows.connection()._sessions) == sessions
    assert flows.request("Shop.sell", "tea", trace_id="tea", reply=str, timeout_s=WAIT_S).result() == "tea sold"
    assert flows.stop()


def test_a_service_whose_connection_gave_up_works_again_when_there_is_a_broker(tmp_path: Path) -> None:
    """Its workers tried again for ever, with the connection that was gone for good."""
    with server(tmp_path / "store") as lost:
        flows = Flows(f"amqp://127.0.0.1:{lost.port}?reconnect_attempts=2&reconnect_delay_max_s=0.01")

        @flows.single("Shop.sell")
        def sell(context: Context[None], item: str) -> str:
            return f"{item} sold"

        with flows:
            for _ in range(2):
                future = flows.request("Shop.sell", "tea", trace_id="tea", reply=str, timeout_s=WAIT_S)
                assert future.result() == "tea sold"
                _lose_and_find(flows, lost)


def test_a_service_whose_broker_is_gone_for_good_says_so_and_stops(tmp_path: Path) -> None:
    """Each call, and `stop()`, waited for a first connection as long as the URL allows: here for ever."""
    options = "reconnect_attempts=2&reconnect_delay_max_s=0.01&connect_attempts=-1"
    with server(tmp_path / "store") as lost:
        flows = Flows(f"amqp://127.0.0.1:{lost.port}?{options}", database=f"sqlite:///{tmp_path / 'shop.db'}")
        flows.send("Shop.sell", "tea", trace_id="tea")
        connection = flows.connection()
        lost.kill()
        until(lambda: connection.lost is not None)
        with pytest.raises((FlowBackendError, JMSError), match="No broker can be reached"):
            flows.send("Shop.sell", "tea", trace_id="tea")
        with flows.initiate("kept", transaction=Transaction.INBOX_OUTBOX) as initiation:
            initiation.send("Shop.sell", "tea")
        assert flows.stop()


def test_a_service_stops_where_no_broker_confirms_that_a_reply_came(tmp_path: Path) -> None:
    """`stop()` raised, and left the connection, which looked for a broker for ever, and what works for the database."""
    with server(tmp_path / "store") as lost:
        url = f"amqp://127.0.0.1:{lost.port}?reconnect_attempts=-1&close_timeout_s=0.1"

        @dataclass
        class Sold:
            item: str

            def __post_init__(self) -> None:
                lost.kill()  # before its acknowledgement

        shop, customer = Flows(url), Flows(url, database=f"sqlite:///{tmp_path / 'shop.db'}")

        @shop.single("Shop.sell")
        def sell(context: Context[None], item: str) -> dict[str, str]:
            return {"item": item}

        shop.start()
        try:
            future = customer.request("Shop.sell", "tea", trace_id="tea", reply=Sold, timeout_s=WAIT_S)
            assert future.result().item == "tea"
            connection = customer.connection()
            assert customer.stop()
            with pytest.raises(JMSError, match="closed"):
                connection.create_session()
        finally:
            shop.stop(timeout_s=1)


def _lose_and_find(flows: Flows, lost: Server) -> None:
    """What is cancelled then is heard of, too."""
    connection = flows.connection()
    flow_id = flows.send("Shop.sell", "milk", trace_id="milk")
    lost.kill()
    until(lambda: connection.lost is not None)
    lost.start()
    until(lambda: _cancels(flows, flow_id))
    until(lambda: flows._cancelled.has(flow_id))


def _cancels(flows: Flows, flow_id: str) -> bool:
    try:
        flows.cancel(flow_id)
    except (FlowBackendError, JMSError):
        return False
    return True
