"""The lock's file deleted or replaced under a primary that works: it steps down, somebody serves, nothing is lost."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from legato.client import AcknowledgeMode, ConnectionFactory, TextMessage
from tests.integration.ha.conftest import WAIT_S
from tests.integration.ha.test_switchover import url_of
from tests.support.monitored import until
from tests.support.server import Server, server

ENOUGH = 40


def delete(lock: Path) -> None:
    """As somebody does who cleans up."""
    lock.unlink()


def replace(lock: Path) -> None:
    """As somebody does who brings a directory back from a copy: what it says of its holder is the same."""
    copy = lock.with_name("copy")
    shutil.copyfile(lock, copy)
    copy.replace(lock)


def wait_for_epoch(epoch: int, *servers: Server) -> None:
    """Until one of the servers serves in that epoch, or a later one."""
    until(lambda: any(each.role.startswith("active") and each.epoch >= epoch for each in servers))


@pytest.mark.parametrize("take_away", [delete, replace])
def test_a_primary_whose_lock_file_is_taken_away_becomes_a_backup_and_clients_go_on(
    tmp_path: Path, take_away: Callable[[Path], None]
) -> None:
    """CORRECTNESS D8 a24, CONTRACT B3, B8: each deletion ended the primary's process."""
    sent: list[int] = []
    received: list[int] = []
    over = threading.Event()
    with server(tmp_path / "store") as first, server(tmp_path / "store") as second:
        url = url_of(first, second)

        def send() -> None:
            with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
                producer = session.create_producer(session.create_queue("q"))
                while not over.is_set():
                    producer.send(TextMessage(str(len(sent))))
                    sent.append(len(sent))

        with ConnectionFactory(url).create_connection() as connection:
            connection.start()
            session = connection.create_session(acknowledge_mode=AcknowledgeMode.AUTO)
            consumer = session.create_consumer(session.create_queue("q"))

            def receive(count: int) -> None:
                for _ in range(count):
                    message = consumer.receive(timeout_s=WAIT_S)
                    assert isinstance(message, TextMessage)
                    received.append(int(str(message.text)))

            sender = threading.Thread(target=send)
            sender.start()
            pids = (first.pid, second.pid)
            for epoch in (2, 3, 4):
                receive(ENOUGH)
                take_away(tmp_path / "store" / "lock")
                wait_for_epoch(epoch, first, second)
                receive(ENOUGH)
            over.set()
            sender.join()
            receive(len(sent) - len(received))
            assert consumer.receive_no_wait() is None
        assert (first.pid, second.pid) == pids
        until(lambda: {first.role[:6], second.role[:6]} == {"active", "backup"})
        assert received == sent


def test_a_primary_alone_whose_lock_file_is_deleted_serves_again(tmp_path: Path) -> None:
    """CORRECTNESS D8 a24: nobody else wants the lock, so it is its own again, on the new file and in a new epoch."""
    with server(tmp_path / "store") as alone, ConnectionFactory(url_of(alone)).create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(session.create_queue("q"))
        producer.send(TextMessage("before"))
        (tmp_path / "store" / "lock").unlink()
        alone.wait_for_role("active epoch=2")
        producer.send(TextMessage("after"))
