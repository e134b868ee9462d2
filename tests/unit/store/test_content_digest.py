"""The digest by which replicas are compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from legato.cli.main import app
from legato.core.facts import AnyFact, Kind, MessagePublished, MessageTaken, QueueCreated, QueueDeleted
from legato.core.records import Batch
from legato.store.content_digest import ContentDigest, content_digest
from legato.store.lmdb import LmdbStore
from tests.conformance.store import NOW_US, batch_of, consumed, stored
from tests.conformance.store_duplicates import kept
from tests.conformance.store_larges import PARTS, TOPIC, large_number, stored_stub, stub


def made(directory: Path, *, other: bool = False, prunes: bool = False) -> ContentDigest:
    """A store with a bit of everything; with another message, or pruned."""
    store = LmdbStore(directory, sync=False)
    epoch = store.begin_epoch("b", NOW_US).epoch
    names = [QueueCreated(1, "q"), QueueCreated(2, "gone"), QueueCreated(3, "t", Kind.TOPIC)]
    store.commit(batch_of(epoch, *names, QueueCreated(4, "s", Kind.SUBSCRIPTION, 3)))
    store.commit(batch_of(epoch, stored(1), stored(2), stored(5, queue=2), MessagePublished(3, 1, 20, "ID", [4])))
    store.commit(batch_of(epoch, consumed(1), MessageTaken(1, 1, "me", "link"), QueueDeleted(2, "gone", 1)))
    store.commit(batch_of(epoch, stored(4 if other else 3)))
    if prunes:
        assert store.prune(NOW_US)
        assert store.trim_log(5, 10) == 5, "as a primary whose ledger has all"
    store.close()
    return content_digest(directory)


def test_what_a_store_forgets_by_itself_does_not_count(tmp_path: Path) -> None:
    assert made(tmp_path / "a") == made(tmp_path / "b", prunes=True)


def test_another_message_is_another_content(tmp_path: Path) -> None:
    one, other = made(tmp_path / "a"), made(tmp_path / "b", other=True)
    assert (one.commit, one.epoch) == (other.commit, other.epoch)
    assert one.digest != other.digest


def made_with(directory: Path, *facts: AnyFact, parts: tuple[bytes, ...] = ()) -> ContentDigest:
    """A store with a large message whose body is of these parts, and what facts say besides."""
    store = LmdbStore(directory, sync=False)
    epoch = store.begin_epoch("b", NOW_US).epoch
    store.commit(batch_of(epoch, QueueCreated(1, "q"), QueueCreated(TOPIC, "topic://t", Kind.TOPIC)))
    large = large_number(epoch)
    chunks = [(large, index, part) for index, part in enumerate(parts)]
    store.commit(Batch(epoch, NOW_US, [stored_stub(1), *facts], [stub(large)], chunks, [large]))
    store.close()
    return content_digest(directory)


def test_bodies_of_large_messages_count(tmp_path: Path) -> None:
    """Of these only the stub did: without a body, or with another one, a store was said to be the same."""
    bodies: list[tuple[bytes, ...]] = [PARTS, (), PARTS[:2], (*PARTS[:2], b"d")]
    found = [made_with(tmp_path / str(number), parts=parts) for number, parts in enumerate(bodies)]
    assert len({each.digest for each in found}) == len(bodies)
    assert made_with(tmp_path / "again", parts=PARTS) == found[0]


@pytest.mark.parametrize("queue", [1, TOPIC])
def test_each_duplicate_id_counts(tmp_path: Path, queue: int) -> None:
    names = ["abc", "axc", "abx"]
    found = [made_with(tmp_path / name, *(kept(each, queue=queue) for each in name)) for name in names]
    assert len({each.digest for each in found}) == len(names)
    assert made_with(tmp_path / "again", *(kept(each, queue=queue) for each in names[0])) == found[0]


def test_the_command_says_whether_stores_differ(tmp_path: Path) -> None:
    made(tmp_path / "a")
    made(tmp_path / "b")
    made(tmp_path / "c", other=True)
    same = CliRunner().invoke(app, ["replica", "verify", str(tmp_path / "a"), str(tmp_path / "b")])
    assert (same.exit_code, "commit 5 of epoch 1, content" in same.output) == (0, True)
    differ = CliRunner().invoke(app, ["replica", "verify", str(tmp_path / "a"), str(tmp_path / "c")])
    assert (differ.exit_code, "stores at the same commit differ" in differ.output) == (1, True)
    status = CliRunner().invoke(app, ["replica", "status", str(tmp_path / "a")])
    assert "its last commit came from no log" in status.output
