"""A primary that was stopped (SIGSTOP) and wakes: nothing is served twice, whoever has the lock by then."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from legato.amqp.engine.outcomes import ACCEPTED
from legato.amqp.engine.terminus import Terminus
from legato.client import ConnectionFactory, TextMessage
from legato.ha.lease import CHECK_MS
from legato.ha.lock import StoreLock
from legato.ha.roles import Role
from legato.store.lmdb import LmdbStore
from tests.integration.ha.conftest import WAIT_S, WaitForRole
from tests.integration.ha.test_heartbeats import QUICK
from tests.integration.ha.test_switchover import url_of
from tests.integration.server.test_journal import messages_in_file
from tests.support.amqp_peer import AmqpPeer, text
from tests.support.monitored import until
from tests.support.server import Server, server

FENCED_AFTER_S = 2.0
"""A busy machine does not stop a primary for so long by itself."""
FENCING = QUICK | {"LEGATO_HA_SELF_FENCING": "true", "LEGATO_HA_ACTIVATION_INTERVAL_S": str(FENCED_AFTER_S)}

INSIDE_A_COMMIT = """
import sys
from legato.core.facts import QueueCreated
from legato.errors import FencedError
from legato.store.base import Batch
from legato.store.commit_records import CommitRecord
from legato.store.lmdb import LmdbStore

class Halting(LmdbStore):
    def _apply(self, txn, meta, record):
        used_before = super()._apply(txn, meta, record)
        if isinstance(record, CommitRecord) and isinstance(record.batch.facts[0], QueueCreated):
            print("inside", flush=True)
            sys.stdin.readline()
        return used_before

store = Halting(sys.argv[1])
epoch = store.begin_epoch("stopped", 1).epoch
store.commit(Batch(epoch, 1, [QueueCreated(1, "q")], []))
print("committed", flush=True)
sys.stdin.readline()
try:
    store.commit(Batch(epoch, 1, [QueueCreated(2, "r")], []))
except FencedError:
    print("fenced", flush=True)
"""


def received_by(url: str, count: int) -> list[str | None]:
    """What comes of the queue, and one more look whether there is more."""
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        consumer = session.create_consumer(session.create_queue("q"))
        connection.start()
        texts = []
        for _ in range(count):
            message = consumer.receive(timeout_s=WAIT_S)
            assert isinstance(message, TextMessage)
            texts.append(message.text)
        assert consumer.receive_no_wait() is None
        return texts


def test_a_stopped_primary_that_kept_the_lock_goes_on_when_it_wakes(tmp_path: Path, wait_for_role: WaitForRole) -> None:
    """CONTRACT B2, B6: nobody else has served, so what was asked meanwhile is done, once."""
    with (
        server(tmp_path / "store", environment=QUICK) as primary,
        server(tmp_path / "store", environment=QUICK) as backup,
    ):
        backup.wait_for_log("heartbeats of epoch 1")
        with ConnectionFactory(url_of(primary, backup)).create_connection() as connection:
            session = connection.create_session()
            producer = session.create_producer(session.create_queue("q"))
            producer.send(TextMessage("before"))
            primary.signal(signal.SIGSTOP)
            sending = threading.Thread(target=lambda: producer.send(TextMessage("meanwhile")))
            sending.start()
            wait_for_role(backup, Role.SEEKING)
            primary.signal(signal.SIGCONT)
            sending.join(WAIT_S)
            assert not sending.is_alive()
            wait_for_role(backup, Role.BACKUP)
        assert received_by(url_of(primary, backup), 2) == ["before", "meanwhile"]
        assert (primary.role, backup.role) == ("active epoch=1", "backup")


def test_a_primary_that_fences_itself_answers_nobody_and_the_backup_takes_over(
    tmp_path: Path, wait_for_role: WaitForRole
) -> None:
    """CONTRACT B3: it steps down before a single byte, and is a backup."""
    with (
        server(tmp_path / "store", environment=FENCING) as primary,
        server(tmp_path / "store", environment=FENCING) as backup,
    ):
        backup.wait_for_log("heartbeats of epoch 1")
        peer = AmqpPeer(primary.port, container="raw")
        sender = peer.sender("raw")
        assert peer.send(sender, text(b"before")) == ACCEPTED
        with ConnectionFactory(url_of(primary, backup)).create_connection() as connection:
            session = connection.create_session()
            producer = session.create_producer(session.create_queue("q"))
            producer.send(TextMessage("before"))
            primary.signal(signal.SIGSTOP)
            sending = threading.Thread(target=lambda: producer.send(TextMessage("meanwhile")))
            sending.start()
            sender.send(text(b"unanswered"), b"t", None)
            peer.flush()
            wait_for_role(backup, Role.SEEKING)
            time.sleep(0.5)  # the primary may have looked after its lock since its last heartbeat
            primary.signal(signal.SIGCONT)
            backup.wait_for_role("active epoch=2")
            sending.join(WAIT_S)
            assert not sending.is_alive()
            assert all_bytes_of(peer) == b""
        assert received_by(url_of(primary, backup), 2) == ["before", "meanwhile"]
        primary.wait_for_role("backup")
        primary.wait_for_log("heartbeats of epoch 2")
        backup.kill()
        primary.wait_for_role("active epoch=3")


def test_a_primary_without_a_backup_that_fenced_itself_serves_again(tmp_path: Path) -> None:
    """Its clients lose their connections and come back to a new epoch."""
    with server(tmp_path / "store", environment=FENCING) as alone:
        peer = AmqpPeer(alone.port)
        assert peer.send(peer.sender("raw"), text(b"before")) == ACCEPTED
        alone.signal(signal.SIGSTOP)
        time.sleep(1.25 * FENCED_AFTER_S)
        alone.signal(signal.SIGCONT)
        alone.wait_for_role("active epoch=2")
        assert all_bytes_of(peer) == b""


def all_bytes_of(peer: AmqpPeer) -> bytes:
    """What still comes before the end of the connection."""
    data = b""
    try:
        while more := peer.socket.recv(1 << 16):
            data += more
    except ConnectionResetError:
        pass
    return data


def test_a_primary_whose_lock_was_taken_away_while_it_was_stopped_answers_nobody(tmp_path: Path) -> None:
    """Promise 7: it looks at the lock before it answers, with or without self-fencing."""
    with server(tmp_path / "store") as robbed:
        peer = AmqpPeer(robbed.port)
        sender = peer.sender("q")
        assert peer.send(sender, text(b"before")) == ACCEPTED
        with server(tmp_path / "store") as backup:
            backup.wait_for_log("heartbeats of epoch 1")
            # Stopped before that, it holds up who takes its lock away: see the last test here.
            until(lambda: messages_in_file(tmp_path / "store") == 1)
            robbed.signal(signal.SIGSTOP)
            (tmp_path / "store" / "lock").unlink()
            with server(tmp_path / "store") as successor:
                assert successor.role == "active epoch=2"
                sender.send(text(b"unanswered"), b"t", None)
                asking = peer.session.receiver("late", source=Terminus(address="$status", kind="source"))
                asking.add_credit(1)  # what needs no commit is not refused by the store
                peer.flush()
                time.sleep(2 * CHECK_MS / 1000)  # for less it may go on without a look at its lock
                robbed.signal(signal.SIGCONT)
                assert all_bytes_of(peer) == b""
                robbed.wait_for_role("backup")
                robbed.wait_for_log("heartbeats of epoch 2")
                backup.wait_for_log("heartbeats of epoch 2")
                assert len(received_by_raw(successor.port)) == 1


def received_by_raw(port: int) -> list[bytes]:
    peer = AmqpPeer(port)
    peer.receiver("q", 10)
    first = peer.transfer().data
    peer.receiver("$status", 1)
    return [first, *(transfer.data for transfer in [peer.transfer()] if transfer.tag != b"status")]


@pytest.mark.parametrize("end", ["wakes", "dies"])
def test_a_process_stopped_inside_a_commit_holds_up_the_next_epoch_until_it_wakes_or_dies(
    tmp_path: Path, end: str
) -> None:
    """What LMDB does: the stopped process has its writers' mutex. No epoch begins beside a commit that is under way."""
    process = subprocess.Popen(
        [sys.executable, "-c", INSIDE_A_COMMIT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "inside\n"
        process.send_signal(signal.SIGSTOP)
        reader = LmdbStore(tmp_path, read_only=True)
        successor = Server(tmp_path)
        starting = threading.Thread(target=successor.start, daemon=True)
        starting.start()
        lock = StoreLock(tmp_path)
        while lock.holder() is None:
            os.sched_yield()
        starting.join(0.5)
        assert (starting.is_alive(), reader.meta().epoch) == (True, 1), "it waits; readers do not"
        if end == "dies":
            process.kill()
            starting.join(WAIT_S)
            assert reader.queue("q") is None
        else:
            say(process, "go on")
            process.send_signal(signal.SIGCONT)
            assert process.stdout.readline() == "committed\n"
            starting.join(WAIT_S)
            assert reader.queue("q") is not None, "what was under way was of the old epoch"
            say(process, "commit again")
            assert process.stdout.readline() == "fenced\n"
        assert successor.role == "active epoch=2"
        reader.close()
        successor.kill()
    finally:
        process.kill()
        process.communicate()


def say(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


@pytest.mark.parametrize("end", ["wakes", "dies"])
def test_a_primary_stopped_between_a_commit_and_its_checkpoint_holds_up_the_next_epoch(
    tmp_path: Path, end: str
) -> None:
    """Whoever takes its lock away is told whom it waits for; nothing that was confirmed is lost, nothing goes twice."""
    environment = {"LEGATO_STORE_CHECKPOINT_MS": "10000"}
    with server(tmp_path / "store", environment=environment) as robbed:
        peer = AmqpPeer(robbed.port)
        assert peer.send(peer.sender("q"), text(b"confirmed")) == ACCEPTED
        robbed.signal(signal.SIGSTOP)
        (tmp_path / "store" / "lock").unlink()
        successor = Server(tmp_path / "store")
        starting = threading.Thread(target=successor.start, daemon=True)
        starting.start()
        waits = f"process {robbed.pid} (primary at "
        until(lambda: successor.log.exists() and waits in successor.log.read_text())
        assert "let it go on" in successor.log.read_text()
        if end == "dies":
            robbed.kill()
        else:
            robbed.signal(signal.SIGCONT)
        starting.join(WAIT_S)
        assert successor.role == "active epoch=2"
        assert len(received_by_raw(successor.port)) == 1
        successor.kill()
