"""Ranges of a queue as Arrow frames hold what the store has, whatever the blocks look like."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from legato.amqp.codec.stubs import Stub, make_stub
from legato.bulk import frames as bulk
from legato.bulk.frames import BARE_SCHEMA, OMITTED, SCHEMA, frames
from legato.bulk.requests import omitted_of
from legato.core.facts import AnyFact, Kind, MessagePublished, MessageReturned, MessageStored, QueueCreated
from legato.core.records import Batch
from legato.store.lmdb import LmdbStore
from tests.conformance.store import NOW_US, batch_of, body_of, consumed, stored


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    store = LmdbStore(tmp_path / "store", sync=False)
    epoch = store.begin_epoch("broker", NOW_US).epoch
    store.commit(
        batch_of(
            epoch,
            QueueCreated(1, "q"),
            QueueCreated(2, "topic://t", Kind.TOPIC),
            QueueCreated(3, "subscription:///s", Kind.SUBSCRIPTION, 2),
        )
    )
    yield store
    store.close()


def read(store: LmdbStore, after: int, through: int, queue: int = 1) -> list[tuple[int, bytes]]:
    rows = []
    for frame in frames(store, queue, after, through):
        assert frame.schema == SCHEMA
        frame.validate(full=True)
        rows += [(row["seq"], row["message"]) for row in frame.to_pylist()]
    return rows


@pytest.mark.parametrize(("after", "through"), [(0, 1000), (0, 1), (5, 700), (999, 1000), (1000, 1000), (0, 5000)])
def test_a_range_has_its_messages_in_order(store: LmdbStore, after: int, through: int) -> None:
    store.commit(batch_of(1, *[stored(seq, size=24) for seq in range(1, 601)]))
    store.commit(batch_of(1, *[stored(seq, size=2000) for seq in range(601, 1001)]))
    store.commit(batch_of(1, consumed(1), consumed(300), consumed(1000)))
    expected = [seq for seq in range(2, 1000) if seq != 300 and after < seq <= through]
    assert [seq for seq, _ in read(store, after, through)] == expected
    assert all(body == body_of(seq, 24 if seq <= 600 else 2000) for seq, body in read(store, after, through))


def test_a_range_of_many_frames_has_no_gap(store: LmdbStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.commit(batch_of(1, *[stored(seq, size=200) for seq in range(1, 1001)]))
    monkeypatch.setattr(bulk, "FRAME_BYTES", 10_000)
    assert len(list(frames(store, 1, 0, 1000))) > 10
    assert [seq for seq, _ in read(store, 0, 1000)] == list(range(1, 1001))


def test_copies_of_what_a_topic_keeps_have_their_bodies(store: LmdbStore) -> None:
    store.commit(batch_of(1, *[MessagePublished(2, seq, 20, "", [3]) for seq in range(1, 11)]))
    assert read(store, 3, 8, queue=3) == [(seq, body_of(seq)) for seq in range(4, 9)]


def test_failed_deliveries_are_counted(store: LmdbStore) -> None:
    store.commit(batch_of(1, *[stored(seq) for seq in range(1, 4)]))
    store.commit(batch_of(1, MessageReturned(1, 2, 3, True, 1, "rollback")))
    [frame] = frames(store, 1, 0, 3)
    assert frame.column("failed_deliveries").to_pylist() == [0, 3, 0]
    assert frame.column("flagged").to_pylist() == [False, True, False]


def test_a_large_message_is_whole(store: LmdbStore) -> None:
    stub = make_stub(b"head", Stub(1 << 32, 6))
    batch = Batch(1, NOW_US, [MessageStored(1, 1, len(stub), "")], [stub], [(1 << 32, 0, b"abc"), (1 << 32, 1, b"def")])
    batch.ended = [1 << 32]
    store.commit(batch)
    store.commit(batch_of(1, stored(2)))
    assert read(store, 0, 2) == [(1, b"headabcdef"), (2, body_of(2))]


def test_a_body_that_is_too_large_for_a_row_is_left_out(store: LmdbStore) -> None:
    """One message of more than 256 MiB ended every read of its queue."""
    huge = Stub(1 << 32, (300 << 20) + 8)
    opening = b"\x00\x53\x75\xb0" + (300 << 20).to_bytes(4, "big")
    stubs = [make_stub(b"head", huge), make_stub(b"head", Stub(2 << 32, 6))]
    facts: list[AnyFact] = [MessageStored(1, seq, len(stub), "") for seq, stub in enumerate(stubs, 1)]
    batch = Batch(1, NOW_US, facts, stubs, [(1 << 32, 0, opening), (2 << 32, 0, b"abcdef")])
    batch.ended = [1 << 32, 2 << 32]
    store.commit(batch)
    store.commit(batch_of(1, stored(3)))
    [frame] = frames(store, 1, 0, 3)
    assert frame.column("message").to_pylist() == [b"head", b"headabcdef", body_of(3)]
    assert omitted_of(frame.schema.metadata[OMITTED]) == {0: 300 << 20}
    [frame] = frames(store, 1, 0, 3, body_bytes_max=0)
    assert omitted_of(frame.schema.metadata[OMITTED]) == {0: 300 << 20, 1: 6}
    [frame] = frames(store, 1, 1, 3)
    assert frame.schema == SCHEMA
    assert not frame.schema.metadata


def test_large_messages_that_are_neighbours_do_not_come_in_one_frame(
    store: LmdbStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All stubs within 4 MiB made one frame, whatever they stood for."""
    monkeypatch.setattr(bulk, "FRAME_BYTES", 1000)
    for seq in range(1, 6):
        stub = make_stub(b"head", Stub(seq << 32, 600))
        facts: list[AnyFact] = [MessageStored(1, seq, len(stub), "")]
        batch = Batch(1, NOW_US, facts, [stub], [(seq << 32, 0, b"x" * 600)])
        batch.ended = [seq << 32]
        store.commit(batch)
    found = list(frames(store, 1, 0, 5))
    assert [frame.num_rows for frame in found] == [1] * 5
    assert [frame.column("seq")[0].as_py() for frame in found] == [1, 2, 3, 4, 5]


def test_a_range_of_another_queue_or_of_nothing_is_empty(store: LmdbStore) -> None:
    assert read(store, 0, 100) == []
    assert read(store, 0, 100, queue=77) == []


def test_without_messages_a_range_has_the_same_rows(store: LmdbStore) -> None:
    store.commit(batch_of(1, *[stored(seq) for seq in range(1, 301)], consumed(7)))
    store.commit(batch_of(1, *[MessagePublished(2, seq, 20, "", [3]) for seq in range(1, 4)]))
    store.commit(batch_of(1, MessageReturned(1, 2, 3, True, 1, "rollback")))
    for queue in (1, 3):
        whole = pa.Table.from_batches(frames(store, queue, 1, 200), SCHEMA)
        bare = pa.Table.from_batches(frames(store, queue, 1, 200, bare=True), BARE_SCHEMA)
        assert whole.num_rows
        assert bare.drop_columns("expires").equals(whole.drop_columns("message"))


def test_without_messages_it_is_known_which_expire(store: LmdbStore) -> None:
    facts = [MessageStored(1, seq, 20, "", expires_us=NOW_US + 5 if seq == 2 else 0) for seq in (1, 2, 3)]
    store.commit(batch_of(1, *facts))
    [frame] = frames(store, 1, 0, 3, bare=True)
    assert frame.column("expires").cast(pa.int64()).to_pylist() == [None, NOW_US + 5, None]
