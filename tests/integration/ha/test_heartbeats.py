"""A backup's eye on its primary: heartbeats, silence, lost connections, and the lock that decides."""

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from legato.amqp import names
from legato.amqp.engine.events import Closed, Transfer
from legato.cli.management import request
from legato.cli.status import ask
from legato.errors import JMSError
from legato.ha.heartbeat_connection import BACKUP_USER, Heartbeat
from legato.ha.lock import StoreLock
from legato.ha.roles import Role
from tests.integration.ha.conftest import WAIT_S, WaitForRole
from tests.integration.ha.relay import Relay
from tests.support.amqp_peer import AmqpPeer, Refused, data_of
from tests.support.forked_process import run_legato
from tests.support.server import Server, server

QUICK = {"LEGATO_HA_HEARTBEAT_INTERVAL_S": "0.1", "LEGATO_HA_ACTIVATION_INTERVAL_S": "0.5"}


@contextmanager
def behind_proxy(directory: Path, **environment: str) -> Iterator[tuple[Server, Server, Relay]]:
    """A primary and a backup that reaches it through a proxy: the lock's file says so."""
    quick = QUICK | environment
    with server(directory / "store", environment=quick) as primary, Relay(primary.port) as proxy:
        lock = StoreLock(directory / "store")
        holder = lock.holder()
        assert holder is not None
        lock.path.write_bytes(msgspec.json.encode(msgspec.structs.replace(holder, listen=f"127.0.0.1:{proxy.port}")))
        with server(directory / "store", environment=quick) as backup:
            yield primary, backup, proxy


def test_a_backup_hears_the_heartbeats_of_its_primary(tmp_path: Path, wait_for_role: WaitForRole) -> None:
    """CONTRACT B20: each interval, from the moment when somebody listens."""
    with server(tmp_path / "store", environment=QUICK) as primary:
        peer = AmqpPeer(primary.port)
        peer.receiver("$heartbeat", 3)
        for _ in range(3):
            heartbeat = msgspec.json.decode(data_of(peer.expect(Transfer)), type=Heartbeat)
            assert heartbeat == Heartbeat(primary.pid, 1, 0.1, 0.5)
        with server(tmp_path / "store", environment=QUICK) as backup:
            backup.wait_for_log("heartbeats of epoch 1")
            wait_for_role(backup, Role.BACKUP)


def test_a_lost_connection_sends_the_backup_to_lock_and_primary_in_turn(
    tmp_path: Path, wait_for_role: WaitForRole
) -> None:
    """CONTRACT B1 (the connection's loss), B2, B6: the lock is held, so it resumes as the backup."""
    # An interval that a busy machine does not miss: it is the loss that counts.
    with behind_proxy(tmp_path, LEGATO_HA_ACTIVATION_INTERVAL_S="10") as (primary, backup, proxy):
        backup.wait_for_log("heartbeats of epoch 1")
        proxy.freeze()
        proxy.cut()
        wait_for_role(backup, Role.SEEKING)
        backup.wait_for_log("connection to the primary is lost")
        proxy.thaw()
        wait_for_role(backup, Role.BACKUP)
        assert (primary.role, backup.role) == ("active epoch=1", "backup")


def test_silence_sends_it_too_after_the_activation_interval(tmp_path: Path, wait_for_role: WaitForRole) -> None:
    """CONTRACT B1 (missing heartbeats), B6, B19: the connection stands, nothing comes over it."""
    with behind_proxy(tmp_path, LEGATO_HA_ACTIVATION_INTERVAL_S="2") as (primary, backup, proxy):
        backup.wait_for_log("heartbeats of epoch 1")
        frozen = time.monotonic()
        proxy.freeze()
        wait_for_role(backup, Role.SEEKING)
        assert time.monotonic() - frozen > 0.3, "the interval runs from the last heartbeat, which may be old"
        backup.wait_for_log("no heartbeat came for 2 s")
        proxy.thaw()
        wait_for_role(backup, Role.BACKUP)
        assert (primary.role, backup.role) == ("active epoch=1", "backup")


def test_a_backup_never_serves_while_a_stopped_primary_holds_the_lock(
    tmp_path: Path, wait_for_role: WaitForRole
) -> None:
    """CONTRACT B2, B6: it seeks until the primary wakes, and is its backup again; or dies, and is replaced at once."""
    with (
        server(tmp_path / "store", environment=QUICK) as primary,
        server(tmp_path / "store", environment=QUICK) as backup,
    ):
        backup.wait_for_log("heartbeats of epoch 1")
        primary.signal(signal.SIGSTOP)
        wait_for_role(backup, Role.SEEKING)
        assert backup.role == "backup"
        primary.signal(signal.SIGCONT)
        wait_for_role(backup, Role.BACKUP)
        primary.signal(signal.SIGSTOP)
        wait_for_role(backup, Role.SEEKING)
        primary.kill()
        backup.wait_for_role("active")
        assert backup.epoch == 2


def test_of_several_backups_one_takes_over_and_the_others_follow_it(tmp_path: Path, wait_for_role: WaitForRole) -> None:
    """CONTRACT B2, B3: more than one backup; the first to start is the primary."""
    slow = {"LEGATO_HA_HEARTBEAT_INTERVAL_S": "0.1"}
    with (
        server(tmp_path / "store", environment=slow) as first,
        server(tmp_path / "store", environment=slow) as second,
        server(tmp_path / "store", environment=slow) as third,
    ):
        assert [each.role for each in (first, second, third)] == ["active epoch=1", "backup", "backup"]
        first.kill()
        wait_until_one_serves(second, third)
        winner, loser = (second, third) if second.role != "backup" else (third, second)
        assert (winner.epoch, loser.role) == (2, "backup")
        loser.wait_for_log("heartbeats of epoch 2")
        wait_for_role(loser, Role.BACKUP)
        first.start()
        first.wait_for_log("heartbeats of epoch 2")
        winner.kill()
        wait_until_one_serves(first, loser)
        assert {first.role, loser.role} == {"active epoch=3", "backup"}


def wait_until_one_serves(*servers: Server) -> None:
    deadline = time.monotonic() + WAIT_S
    while all(each.role == "backup" for each in servers):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_backup_is_let_in_where_peers_need_a_password(tmp_path: Path) -> None:
    """It shows that it may read the store's lock, and may do nothing else."""
    closed = QUICK | {"LEGATO_AUTH_ANONYMOUS": "false"}
    flags = ("--user", "ann:secret")
    with server(tmp_path / "store", *flags, environment=closed) as primary:
        with server(tmp_path / "store", *flags, environment=closed) as backup:
            backup.wait_for_log("heartbeats of epoch 1")
        lock = StoreLock(tmp_path / "store")
        assert lock.path.stat().st_mode & 0o077 == 0
        holder = lock.holder()
        assert holder is not None
        assert holder.token
        peer = AmqpPeer(primary.port, user=BACKUP_USER, password=holder.token)
        with pytest.raises(Refused, match="not-allowed"):
            peer.sender("q")
        with pytest.raises(Refused):
            AmqpPeer(primary.port, user=BACKUP_USER, password="")


def test_the_intervals_are_changed_while_brokers_run_and_hold_over_a_takeover(
    tmp_path: Path, wait_for_role: WaitForRole
) -> None:
    """CONTRACT B20: by an administration command too; the backup acts on the new ones, and keeps them."""
    with server(tmp_path / "store") as primary, server(tmp_path / "store") as backup:
        backup.wait_for_log("heartbeats of epoch 1")
        assert intervals(primary).stdout == "a heartbeat every 3 s, activation after 10 s\n"
        changed = intervals(primary, "--heartbeat", "0.1", "--activation", "0.5")
        assert (changed.returncode, changed.stdout) == (0, "a heartbeat every 0.1 s, activation after 0.5 s\n")
        backup.wait_for_log("a heartbeat every 0.1 s, activation after 0.5 s")
        primary.signal(signal.SIGSTOP)
        backup.wait_for_log("no heartbeat came for 0.5 s")
        wait_for_role(backup, Role.SEEKING)
        primary.signal(signal.SIGCONT)
        wait_for_role(backup, Role.BACKUP)
        backup.signal(signal.SIGHUP)
        backup.wait_for_log("the configuration was read again")
        primary.kill()
        backup.wait_for_role("active epoch=2")
        assert intervals(backup, "--json").stdout == '{"heartbeat_interval_s": 0.1, "activation_interval_s": 0.5}\n'
        backup.kill()
        primary.start()
        assert intervals(primary).stdout == "a heartbeat every 3 s, activation after 10 s\n", "nothing was written"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--heartbeat", "6"), "at least twice"),
        (("--activation", "5.9"), "at least twice"),
        (("--heartbeat", "0"), "more than 0"),
        (("--heartbeat", "-1"), "more than 0"),
        (("--heartbeat", "nan"), "more than 0"),
        (("--activation", "inf"), "more than 0"),
    ],
)
def test_intervals_that_do_not_fit_are_refused_and_nothing_changes(
    alone: Server, arguments: tuple[str, ...], told: str
) -> None:
    """CONTRACT B20."""
    refused = intervals(alone, *arguments)
    assert refused.returncode == 1
    assert told in refused.stderr
    assert intervals(alone).stdout == "a heartbeat every 3 s, activation after 10 s\n"


def test_a_request_that_names_no_number_is_refused(alone: Server) -> None:
    """CONTRACT B20."""
    url = f"amqp://127.0.0.1:{alone.port}"
    with pytest.raises(JMSError, match="number of seconds"):
        request(url, "update", "broker", heartbeat_interval_s="soon")
    with pytest.raises(JMSError, match="Only the type broker"):
        request(url, "update", "queue", "q", heartbeat_interval_s=1)


def intervals(of: Server, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_legato("intervals", "--url", f"amqp://127.0.0.1:{of.port}", *arguments)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker with the default intervals."""
    with server(tmp_path_factory.mktemp("alone") / "store") as running:
        yield running


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_a_broker_cleanly_and_its_backup_takes_over(tmp_path: Path, number: int) -> None:
    """CONTRACT E7: Ctrl-C is a clean shutdown like SIGTERM; by default the backup serves, at once."""
    with server(tmp_path / "store") as first, server(tmp_path / "store") as second:
        second.wait_for_log("heartbeats of epoch 1")
        peer = AmqpPeer(first.port)
        first.signal(number)
        closed = peer.expect(Closed)
        assert closed.info[names.FAREWELL] == "shutdown"
        assert first.wait() == 0
        second.wait_for_role("active epoch=2")
        assert "Traceback" not in first.log.read_text()
        assert ask(f"amqp://127.0.0.1:{second.port}")["failover"]["cause"] == "shutdown"


def test_ctrl_c_ends_a_backup_too_and_where_a_shutdown_is_to_stay_one_nobody_takes_over(tmp_path: Path) -> None:
    """CONTRACT E7: with `failover_on_server_shutdown = false` the backup waits for a primary to come back."""
    stays = QUICK | {"LEGATO_HA_FAILOVER_ON_SERVER_SHUTDOWN": "false"}
    with (
        server(tmp_path / "store", environment=stays) as first,
        server(tmp_path / "store", environment=stays) as second,
    ):
        second.wait_for_log("heartbeats of epoch 1")
        first.signal(signal.SIGINT)
        assert first.wait() == 0
        second.wait_for_log("its backups wait for another one")
        assert second.role == "backup"
        second.signal(signal.SIGINT)
        assert second.wait() == 0
