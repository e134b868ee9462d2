"""A primary whose loop does not turn is ended by its watchdog, and the backup serves (SECURITY finding 12)."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from pathlib import Path

import pytest

from legato.client import ConnectionFactory, TextMessage
from legato.failpoints import VARIABLE, DrillOrders, Stuck
from legato.server.process.watchdog import Watchdog
from tests.integration.ha.conftest import WAIT_S
from tests.integration.ha.test_heartbeats import QUICK
from tests.integration.ha.test_stopped import received_by
from tests.integration.ha.test_switchover import url_of
from tests.support.server import server

LIMIT_S = 2.0


def watched(drill_orders: Path) -> dict[str, str]:
    return QUICK | {"LEGATO_HA_WATCHDOG_S": str(LIMIT_S), VARIABLE: str(drill_orders)}


@pytest.mark.parametrize("how", Stuck)
def test_a_stuck_primary_ends_and_the_backup_serves_and_nothing_is_lost(tmp_path: Path, how: Stuck) -> None:
    """CONTRACT B2: a loop that waits for ever, and one that is busy in C and lets no other thread run."""
    drill_orders = DrillOrders(tmp_path / "drill_orders")
    environment = watched(tmp_path / "drill_orders")
    with (
        server(tmp_path / "store", environment=environment) as primary,
        server(tmp_path / "store", environment=environment) as backup,
    ):
        backup.wait_for_log("heartbeats of epoch 1")
        with ConnectionFactory(url_of(primary, backup)).create_connection() as connection:
            session = connection.create_session()
            producer = session.create_producer(session.create_queue("q"))
            producer.send(TextMessage("before"))
            drill_orders.stick(how)
            backup.wait_for_role("active epoch=2")
            producer.send(TextMessage("after"))
        assert primary.wait() != 0
        assert "may_stick" in primary.log.read_text(), "the log says where the loop was"
        assert received_by(url_of(primary, backup), 2) == ["before", "after"]


def test_a_primary_that_was_stopped_for_longer_goes_on(tmp_path: Path) -> None:
    """A pause of the machine is no stuck loop: it has its chance to turn."""
    with server(tmp_path / "store", environment=watched(tmp_path / "drill_orders")) as primary:
        primary.signal(signal.SIGSTOP)
        time.sleep(2 * LIMIT_S)
        primary.signal(signal.SIGCONT)
        assert received_after(primary.port) == ["meanwhile"]
        time.sleep(LIMIT_S)
        assert primary._process is not None
        assert primary._process.poll() is None


def received_after(port: int) -> list[str | None]:
    url = f"amqp://127.0.0.1:{port}"
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        session.create_producer(session.create_queue("q")).send(TextMessage("meanwhile"))
    return received_by(url, 1)


@pytest.mark.slow
def test_a_slow_disk_is_no_stuck_loop(tmp_path: Path) -> None:
    """The writer waits for longer than the limit; the loop turns meanwhile."""
    drill_orders = DrillOrders(tmp_path / "drill_orders")
    with server(tmp_path / "store", environment=watched(tmp_path / "drill_orders")) as primary:
        url = f"amqp://127.0.0.1:{primary.port}"
        with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
            producer = session.create_producer(session.create_queue("q"))
            drill_orders.set_delay(2000 * LIMIT_S)
            producer.send(TextMessage("meanwhile"))
            drill_orders.set_delay(0)
        assert received_by(url, 1) == ["meanwhile"]


def test_a_loop_that_turns_now_and_then_is_left_alone() -> None:
    ended = threading.Event()

    async def turn() -> None:
        watchdog = Watchdog(1.0, ended.set)
        watchdog.start()
        for _ in range(4):
            ended.wait(0.4)
            await asyncio.sleep(0.02)
        watchdog.stop()
        ended.wait(1.2)

    thread = threading.Thread(target=lambda: asyncio.run(turn()))
    thread.start()
    thread.join()
    assert not ended.is_set()


def test_a_loop_that_does_not_turn_is_given_up(capfd: pytest.CaptureFixture[str]) -> None:
    ended = threading.Event()

    async def turn() -> None:
        Watchdog(0.1, ended.set).start()
        ended.wait(WAIT_S)

    thread = threading.Thread(target=lambda: asyncio.run(turn()))
    thread.start()
    assert ended.wait(WAIT_S)
    thread.join()


def test_a_watchdog_of_nought_does_not_watch() -> None:
    async def turn() -> None:
        watchdog = Watchdog(0)
        watchdog.start()
        watchdog.stop()

    before = threading.active_count()
    asyncio.run(turn())
    assert threading.active_count() == before
