"""A broker with a journal: whoever reads the store sees what was confirmed, and a kill takes nothing away."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.amqp.engine.outcomes import ACCEPTED
from legato.drill.history import audit_log
from legato.spark.exporter import export_all
from legato.spark.ledger.waiting import read_waiting
from legato.store.backup import restore, take, verify
from legato.store.lmdb import LmdbStore
from legato.store.segment_names import exported_through
from tests.integration.server.test_management import Manager
from tests.integration.server.test_pipelines import ask, opened, publish, read
from tests.support.amqp_peer import AmqpPeer, text
from tests.support.server import Server, server

SELDOM = {"LEGATO_STORE_CHECKPOINT_MS": "10000"}
"""Only who asks for a checkpoint gets one in time."""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path / "store", environment=SELDOM) as running:
        yield running


def confirm(port: int, *bodies: bytes) -> None:
    peer = AmqpPeer(port)
    sender = peer.sender("q")
    for number, body in enumerate(bodies):
        assert peer.send(sender, text(body), number.to_bytes(4, "big")) == ACCEPTED


def messages_in_file(store: Path) -> int:
    """What a process sees that looks at nothing but the store's file."""
    reader = LmdbStore(store, read_only=True)
    try:
        record = reader.queue("q")
        return 0 if record is None else record.stored - record.consumed
    finally:
        reader.close()


def test_what_was_confirmed_is_served_after_a_kill(running: Server) -> None:
    confirm(running.port, *[b"%d" % number for number in range(20)])
    running.kill()
    assert messages_in_file(running.store) < 20, "else this shows nothing"
    running.start()
    assert running.role == "active epoch=2"
    assert Manager(AmqpPeer(running.port)).depth("q") == 20


def test_a_backup_takes_over_what_only_the_journal_holds(tmp_path: Path) -> None:
    with server(tmp_path / "store", environment=SELDOM) as primary, server(tmp_path / "store") as backup:
        confirm(primary.port, *[b"%d" % number for number in range(20)])
        primary.kill()
        backup.wait_for_role("active epoch=2")
        assert Manager(AmqpPeer(backup.port)).depth("q") == 20


def test_a_ticket_is_given_when_its_holder_can_read_all_of_it(running: Server) -> None:
    """The process for reading in bulk sees the last checkpoint: without one it would leave out what was assigned."""
    peer = AmqpPeer(running.port)
    manager = Manager(peer)
    for number in range(3):
        publish(peer, "orders", f"{number}a", f"{number}b")
        stand = opened(manager)
        last = ask(manager, "assign", stand["name"], fence=stand["fence"])["last"]
        assert last == 2 * number + 2
        rows = read(manager, stand["name"])
        assert [seq for seq, _ in rows] == list(range(1, last + 1))


def test_the_ledger_has_everything_when_a_broker_has_ended(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with server(store, "--ledger", environment=SELDOM) as running:
        confirm(running.port, b"1", b"2", b"3")
        assert running.stop() == 0
    reader = LmdbStore(store, read_only=True)
    assert exported_through(store / "ledger") == reader.log_range()[1] > 3
    reader.close()
    assert messages_in_file(store) == 3


def test_audits_of_a_killed_store_see_all_of_it(running: Server, tmp_path: Path) -> None:
    confirm(running.port, b"1", b"2", b"3")
    running.kill()
    copies = [tmp_path / name for name in ("audited", "exported", "waiting", "verified", "taken")]
    for copy in copies:
        shutil.copytree(running.store, copy, ignore=shutil.ignore_patterns("lock.mdb"))
    audited, exported, looked_at, verified, taken = copies
    finding = audit_log(audited)
    assert (finding.stored, finding.complaints) == (3, [])
    assert export_all(exported, tmp_path / "ledger") > 3
    table = read_waiting(looked_at, tmp_path / "ledger")
    assert table is not None
    assert table.num_rows == 3
    assert verify(verified).messages == 3
    take(taken, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    assert not (tmp_path / "restored" / "journal").exists()
    assert verify(tmp_path / "restored").messages == messages_in_file(tmp_path / "restored") == 3
    with server(tmp_path / "restored") as again:
        assert Manager(AmqpPeer(again.port)).depth("q") == 3


def test_a_backup_beside_a_broker_has_what_was_confirmed_before_it(tmp_path: Path) -> None:
    with server(tmp_path / "store", environment={"LEGATO_STORE_CHECKPOINT_MS": "300"}) as running:
        for number in range(1, 4):
            confirm(running.port, b"x")
            take(running.store, tmp_path / f"backup-{number}")
            assert messages_in_file(tmp_path / f"backup-{number}") == number


def test_a_broker_without_a_journal_serves_the_store_of_one_that_had_one(running: Server) -> None:
    confirm(running.port, b"1", b"2", b"3")
    running.kill()
    running.environment = {"LEGATO_STORE_CHECKPOINT_MS": "0"}
    running.start()
    assert messages_in_file(running.store) == 3
    assert running.stop() == 0
    shutil.rmtree(running.store / "journal")
    running.environment = SELDOM
    running.start()
    assert Manager(AmqpPeer(running.port)).depth("q") == 3


def test_a_broker_whose_journal_is_gone_or_damaged_says_what_would_be_lost(running: Server) -> None:
    confirm(running.port, b"1", b"2", b"3")
    running.kill()
    first = running.store / "journal" / "000001"
    whole = first.read_bytes()
    first.rename(running.store / "aside")
    assert f"{first} is missing; it may hold commits that were confirmed" in ends_with(running)
    first.write_bytes(whole[:4200] + b"\xff" + whole[4201:])
    os.chmod(first, 0o600)
    assert re.search(r"is damaged: commit \d+ cannot be read, though [1-9]\d* commits? behind can", ends_with(running))
    first.write_bytes(whole)
    running.start()
    assert Manager(AmqpPeer(running.port)).depth("q") == 3


def ends_with(running: Server) -> str:
    """Why the broker does not start."""
    before = len(running.log.read_text())
    running.start()
    assert running.role == "ended"
    return running.log.read_text()[before:]
