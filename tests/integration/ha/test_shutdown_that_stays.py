"""`failover_on_server_shutdown = false` with several backups: none of them takes over, whatever the others do."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from legato.ha.lock import StoreLock
from legato.server.process.standby import POLL_S, SHUTDOWN
from tests.integration.ha.test_switchover import STAYS
from tests.support.replicated import Group
from tests.support.server import Server, server

WAITS = "its backups wait for another one"


def stop_and_start_again(primary: Server, *backups: Server) -> None:
    """It serves again, and nobody has meanwhile."""
    for backup in backups:
        backup.wait_for_log("heartbeats of epoch 1")
    assert primary.stop() == 0
    for backup in backups:
        backup.wait_for_log(WAITS)
    primary.start()
    primary.wait_for_role("active")
    assert [backup.role for backup in backups] == ["backup"] * len(backups)
    assert not any("activating" in backup.log.read_text().split(WAITS)[-1] for backup in backups)


def test_backups_of_one_store_wait_for_the_primary_to_come_back(tmp_path: Path) -> None:
    with ExitStack() as stack:
        primary, *backups = (stack.enter_context(server(tmp_path / "store", environment=STAYS)) for _ in range(4))
        stop_and_start_again(primary, *backups)


def test_backups_with_a_replicated_log_wait_for_the_primary_to_come_back(group: Group) -> None:
    stays = STAYS | {"LEGATO_REPLICATION_LEASE_S": "5"}
    primary = group.start("one", "active", None, **stays)
    backups = [group.start(name, "backup", None, **stays) for name in ("two", "three", "four")]
    stop_and_start_again(primary, *backups)


@contextmanager
def backup_that_waits(store: Path) -> Iterator[tuple[Server, Server]]:
    """A primary that was shut down, and its backup, which waits for it to come back."""
    with server(store, environment=STAYS) as primary, server(store, environment=STAYS) as backup:
        backup.wait_for_log("heartbeats of epoch 1")
        assert primary.stop() == 0
        backup.wait_for_log(WAITS)
        yield primary, backup


def test_a_backup_that_sees_another_one_pass_the_lock_on_does_not_take_it(tmp_path: Path) -> None:
    """Another took the lock, and let go of it again, as it had heard a primary too; who saw that served."""
    with backup_that_waits(tmp_path / "store") as (primary, backup):
        another = StoreLock(tmp_path / "store")
        assert another.acquire_blocking()
        time.sleep(50 * POLL_S)  # Time to see it. If that is not enough the test shows less.
        another.release(SHUTDOWN)
        primary.start()
        primary.wait_for_role("active")
        assert backup.role == "backup"


def test_a_backup_that_waits_takes_over_from_one_that_died_before_it_served(tmp_path: Path) -> None:
    """It came back, and was killed while it began its epoch: nobody would serve for ever."""
    with backup_that_waits(tmp_path / "store") as (_, backup):
        another = StoreLock(tmp_path / "store")
        assert another.acquire_blocking()
        assert another._file is not None
        another._file.close()  # As the system does when its process is killed.
        backup.wait_for_role("active")


def test_a_backup_that_waits_takes_over_from_one_that_came_back_and_could_not_listen(tmp_path: Path) -> None:
    """Another program had taken its address meanwhile: clients would have had nobody."""
    with backup_that_waits(tmp_path / "store") as (primary, backup):
        with socket.create_server(("127.0.0.1", primary.port)):
            primary.start()
            assert primary.wait() == 1
            backup.wait_for_role("active epoch=2")
        assert "Cannot listen" in primary.log.read_text()


def test_a_broker_of_a_replicated_log_that_cannot_listen_has_not_come_back(group: Group) -> None:
    """It ends before it claims the log: the backups wait on for one that serves."""
    stays = STAYS | {"LEGATO_REPLICATION_LEASE_S": "5"}
    primary = group.start("one", "active", None, **stays)
    backup = group.start("two", "backup", None, **stays)
    backup.wait_for_log("heartbeats of epoch 1")
    assert primary.stop() == 0
    backup.wait_for_log(WAITS)
    with socket.create_server(("127.0.0.1", primary.port)):
        primary.start()
        assert primary.wait() == 1
    assert "Cannot listen" in primary.log.read_text()
    primary.start()
    primary.wait_for_role("active")
    assert backup.role == "backup"
