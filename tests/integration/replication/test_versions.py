"""R11: two versions of Legato beside each other, in one group.

A replica applies what it can read as its primary does, or it stops before it with a sentence, and goes on there when it
is upgraded. The other version is a copy of the sources with a few lines changed, run by an interpreter of its own.
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import legato
from legato.cli.status import ask
from legato.client import ConnectionFactory
from legato.core.facts import QueueCreated
from legato.errors import StoreError, StoreFormatError
from legato.replication.log import BEGINNING, Position, Record
from legato.replication.memory import MemoryServers
from legato.replication.replica import Replica
from legato.replication.versions import (
    EPOCHS_KEPT,
    EpochVersion,
    EpochVersions,
    refuse_other_version,
)
from legato.store.backup_files import VERSIONS_NAME, copy_versions
from legato.store.commit_records import Beat, encode_beat, encode_commit, encode_epoch, rules
from legato.store.content_digest import content_digest
from legato.store.lmdb import LmdbStore
from tests.conformance.store import NOW_US, batch_of, stored, waiting
from tests.support.forked_process import run_legato
from tests.support.replicated import Group, commits_of, eventually, received
from tests.support.server import Server

SOURCES = Path(legato.__file__).parent
LATER = "99.1.0"
OTHER_PROGRAM = "legato.cli.__main__"
"""A program by another name is started by an interpreter of its own, with what is on its path."""


def later_version(directory: Path, *changes: tuple[str, str, str]) -> Path:
    """The sources of a later version: of this one, but for lines of files that read otherwise."""
    tree = directory / "later"
    # With what Python compiled of it, which is right for all files but those that are changed.
    shutil.copytree(SOURCES, tree / "legato")
    for name, former, new in (("__init__.py", legato.__version__, LATER), *changes):
        file = tree / "legato" / name
        text = file.read_text()
        assert former in text, f"{name} has no {former}"
        file.write_text(text.replace(former, new))
    return tree


def upgrade(broker: Server, tree: Path) -> None:
    """From its next start on it runs another version."""
    broker.program = OTHER_PROGRAM
    broker.environment["PYTHONPATH"] = os.pathsep.join([str(tree), os.environ.get("PYTHONPATH", "")])


def backups_of(primary: Server) -> list[dict[str, Any]]:
    """What its status says of them."""
    found: list[dict[str, Any]] = ask(f"amqp://127.0.0.1:{primary.port}")["replication"]["backups"]
    return found


class Sending:
    """A client that sends numbered messages until it is told to stop."""

    def __init__(self, url: str) -> None:
        self.confirmed: list[str] = []
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(url,), daemon=True)
        self._thread.start()

    def _run(self, url: str) -> None:
        try:
            with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
                producer = session.create_producer(session.create_queue("q"))
                for number in itertools.count():
                    if self._stop.wait(0.01):
                        return
                    producer.send(session.create_text_message(str(number)))
                    self.confirmed.append(str(number))
        except BaseException as error:
            self._failure = error

    def wait_for_more(self) -> None:
        before = len(self.confirmed)
        eventually(lambda: len(self.confirmed) > before or self._failure is not None, "nothing is confirmed")
        assert self._failure is None

    def end(self) -> list[str]:
        self._stop.set()
        self._thread.join(60.0)
        assert self._failure is None
        return self.confirmed


def assert_same_content(group: Group) -> None:
    """All stores come to the same commit, with the same content."""
    eventually(
        lambda: len({content_digest(broker.store) for broker in group.brokers.values()}) == 1,
        "the stores do not come to have the same",
    )


LEASE_S = "30"
"""A lease that a stalled machine does not miss."""


def test_a_group_is_upgraded_broker_by_broker_while_clients_are_served(group: Group, tmp_path: Path) -> None:
    """Backups first. The former primary cannot apply what the later one commits, and says so, until it is upgraded."""
    tree = later_version(tmp_path, ("store/commit_records.py", "_FACTS_KNOWN = max(", "_FACTS_KNOWN = 1 + max("))
    first = group.start("a", "active", LEGATO_REPLICATION_LEASE_S=LEASE_S)
    second = group.start("b", "backup", LEGATO_REPLICATION_LEASE_S=LEASE_S)
    sending = Sending(group.url)
    sending.wait_for_more()
    assert second.stop() == 0
    upgrade(second, tree)
    second.start().wait_for_role("backup")
    sending.wait_for_more()
    before = commits_of(first)
    eventually(lambda: commits_of(second) > before, "the later version does not follow the former")
    eventually(
        lambda: "heartbeats of epoch 1 from" in second.log.read_text().partition(f"Legato {LATER}")[2],
        "it does not find the primary that is always busy",
    )
    done = run_legato("switchover", "--url", group.url)
    assert done.returncode == 0, done.stderr
    second.wait_for_role("active epoch=2")
    first.wait_for_role("ended")
    assert first.wait() == 1
    said = f"the primary of epoch 2 runs Legato {LATER}"
    assert said in first.log.read_text()
    assert "upgrade this broker" in first.log.read_text()
    eventually(
        lambda: ["upgrade this broker" in each["trouble"] for each in backups_of(second)] == [True],
        "the primary does not say it, too",
    )
    sending.wait_for_more()
    before = commits_of(first)
    upgrade(first, tree)
    first.start().wait_for_role("backup")
    sending.wait_for_more()
    eventually(lambda: commits_of(first) > before, "it does not go on after its upgrade")
    confirmed = sending.end()
    assert received(group.url) == confirmed
    assert_same_content(group)


def test_a_replica_stops_at_a_record_of_a_later_format_and_goes_on_when_it_is_upgraded(
    group: Group, tmp_path: Path
) -> None:
    """A later version writes commits in another form, and its rules do not say so."""
    tree = later_version(tmp_path, ("store/commit_records.py", "array_like=True, tag=1", "array_like=True, tag=9"))
    first = group.add("a", LEGATO_REPLICATION_LEASE_S=LEASE_S)
    upgrade(first, tree)
    first.start().wait_for_role("active")
    second = group.start("b", "backup", LEGATO_REPLICATION_LEASE_S=LEASE_S)
    sending = Sending(group.url)
    sending.wait_for_more()
    second.wait_for_role("ended")
    assert second.wait() == 1
    assert f"was written by Legato {LATER}, and this version ({legato.__version__}) cannot read it" in (
        second.log.read_text()
    )
    sending.wait_for_more()
    upgrade(second, tree)
    second.start().wait_for_role("backup")
    confirmed = sending.end()
    assert received(group.url) == confirmed
    assert_same_content(group)


def records(*data: bytes) -> list[Record]:
    """What a log has of these records."""
    log = MemoryServers().log("g")
    claim = log.claim(data[0], BEGINNING)
    for each in data[1:]:
        claim.append(each)
    return list(log.read(BEGINNING).records)


@pytest.mark.parametrize("together", [True, False])
def test_what_comes_before_a_record_that_cannot_be_read_is_applied_and_nothing_behind_it(
    tmp_path: Path, together: bool
) -> None:
    commit = encode_commit(batch_of(1, QueueCreated(1, "q"), stored(1)), 2)[1]
    longer = encode_commit(batch_of(1, stored(2)), 3)[1]
    longer = bytes([longer[0] + 1]) + longer[1:] + b"\x01"  # one field more, behind those that are known
    behind = encode_commit(batch_of(1, stored(3)), 4)[1]
    found = records(encode_epoch(1, 1, "a", NOW_US)[1], commit, longer, encode_beat(Beat(1, 3, NOW_US)), behind)
    store = LmdbStore(tmp_path / "store", sync=False)
    replica = Replica(store)
    with pytest.raises(StoreFormatError, match=r"record 3 of the log was written by a later version .* upgrade"):
        replica.apply_all(found) if together else [replica.apply(record) for record in found]
    assert (replica.commits, replica.position, waiting(store)) == (2, found[1].position, [1])
    store.close()


def test_a_longer_beat_changes_nothing_and_is_taken(tmp_path: Path) -> None:
    beat = encode_beat(Beat(1, 1, NOW_US))
    found = records(encode_epoch(1, 1, "a", NOW_US)[1], bytes([beat[0] + 1]) + beat[1:] + b"\x01")
    store = LmdbStore(tmp_path / "store", sync=False)
    replica = Replica(store)
    replica.apply_all(found)
    assert replica.position == found[1].position
    store.close()


def said(version: str = legato.__version__, epoch: int = 1, **other: int) -> EpochVersion:
    known = {name.replace(" ", "_"): name for name in rules()}
    return EpochVersion(epoch, version, rules() | {known[name]: value for name, value in other.items()})


def test_rules_of_other_versions() -> None:
    refuse_other_version(said())
    refuse_other_version(said("0.0.1", facts_known=3))
    refuse_other_version(EpochVersion(1, "0.0.1", {}))
    for later in (said(LATER, facts_known=999), said(LATER, takers_kept=1), said(format=999)):
        with pytest.raises(StoreFormatError, match="upgrade this broker"):
            refuse_other_version(later)
    for former in (said("0.0.1", takers_kept=1), said("0.0.1", facts_known=3, format=1), said(format=1)):
        with pytest.raises(StoreFormatError, match="stop all brokers of the group before you upgrade them"):
            refuse_other_version(former)


def test_a_broker_that_was_upgraded_in_the_middle_of_an_epoch_knows_by_which_rules_it_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record that said so is behind it, and may be forgotten by the log."""
    epoch, first, second = (
        encode_epoch(1, 1, "a", NOW_US)[1],
        encode_commit(batch_of(1, QueueCreated(1, "q"), stored(1)), 2)[1],
        encode_commit(batch_of(1, stored(2)), 3)[1],
    )
    found = records(epoch, first, second)
    store = LmdbStore(tmp_path / "store", sync=False)
    Replica(store, EpochVersions(store.path)).apply_all(found[:2])
    assert (store.path / VERSIONS_NAME).exists()
    with monkeypatch.context() as upgraded:
        upgraded.setattr("legato.limits.TAKEN_MESSAGES", 7)
        for _ in range(2):
            with pytest.raises(StoreError, match="takers kept"):
                Replica(store, EpochVersions(store.path)).apply_all(found[2:])
        assert waiting(store) == [1]
        Replica(store).apply_all([])
    again = Replica(store, EpochVersions(store.path))
    again.apply_all(found[2:])
    assert waiting(store) == [1, 2]
    store.close()


def test_the_versions_of_the_last_epochs_are_kept_and_copied(tmp_path: Path) -> None:
    (directory := tmp_path / "store").mkdir()
    versions = EpochVersions(directory)
    for number in range(1, 2 * EPOCHS_KEPT):
        versions.note(encode_epoch(number, number, "a", NOW_US)[0])
    again = EpochVersions(directory)
    assert again.of(1) is None
    assert again.of(2 * EPOCHS_KEPT - 1) == said(epoch=2 * EPOCHS_KEPT - 1)
    (other := tmp_path / "copy").mkdir()
    copy_versions(directory, other)
    assert EpochVersions(other).of(2 * EPOCHS_KEPT - 1) == said(epoch=2 * EPOCHS_KEPT - 1)
    (directory / VERSIONS_NAME).write_text("{")
    assert EpochVersions(directory).of(2 * EPOCHS_KEPT - 1) is None
    (directory / VERSIONS_NAME).unlink()
    copy_versions(directory, other)
    assert EpochVersions(other).of(2 * EPOCHS_KEPT - 1) is None


def test_the_copies_of_administrators_have_the_versions_too(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "a", sync=False)
    Replica(store, EpochVersions(store.path)).apply_all(records(encode_epoch(1, 1, "a", NOW_US)[1]))
    store.close()
    for arguments in (
        ("store", "backup", "a", "b"),
        ("store", "restore", "b", "c"),
        ("store", "verify", "b"),
        ("replica", "seed", "d", "--from", "a"),
        ("replica", "seed", "e", "--from", "b"),
    ):
        done = run_legato(*(str(tmp_path / each) if len(each) == 1 else each for each in arguments))
        assert done.returncode == 0, done.stderr
    for name in "bcde":
        assert EpochVersions(tmp_path / name).of(1) == said()
        assert (tmp_path / name / VERSIONS_NAME).stat().st_mode & 0o077 == 0, "brokers refuse what others can read"


def test_a_position_of_the_log_is_named_whose_record_cannot_be_read(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store", sync=False)
    with pytest.raises(StoreFormatError, match=r"record 4711 of the log .* cannot read it"):
        Replica(store).apply(Record(Position(4711, b"d" * 16), b"\x92\x4d\x01"))
    store.close()
