"""Stage files are there as a whole or not at all; rows become runs and messages as they say."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from legato.amqp.codec.message import decode_message
from legato.bulk import stage_files
from legato.bulk.requests import StageOptions
from legato.bulk.stage_encoder import records_of
from legato.bulk.stage_files import (
    BlockRun,
    MessageRecord,
    Record,
    RunRecord,
    StageTicket,
    discard_stages,
    path_of,
    read_stage,
    remove_stages,
    stages_through,
    sweep,
    write_stage,
)
from legato.errors import StoreCorruptError, StoreError
from legato.store import directories
from legato.store.blocks import Block

RUN = BlockRun(RunRecord("q", 4, 2, 10, False, [7, 6]), [memoryview(b"a block"), memoryview(b"second")])
MESSAGE = MessageRecord("t", True, 4, 0, 0, b"", "", "ID:1", b"body")
TICKET = StageTicket("sink", 3, "a", 0.0)
NOW_US = 1_700_000_000_000_000


def remove_through(store: Path, batch: int) -> None:
    remove_stages(store, stages_through(store, "sink", batch))


def test_a_stage_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = path_of(tmp_path, "my sink/1", 7, "0-ab")
    assert write_stage(path, iter([RUN, MESSAGE])) == 3
    assert read_stage(path) == [RUN, MESSAGE]
    assert path.parent.parent == tmp_path / "stages"


def test_a_stage_that_breaks_off_is_not_there(tmp_path: Path) -> None:
    def records() -> Iterator[Record]:
        yield RUN
        raise ValueError("the rows ended")

    path = path_of(tmp_path, "sink", 0, "a")
    with pytest.raises(ValueError, match="ended"):
        write_stage(path, records())
    assert list(path.parent.iterdir()) == []
    with pytest.raises(StoreError, match="cannot be read"):
        read_stage(path)


def test_a_stage_that_is_not_whole_is_told(tmp_path: Path) -> None:
    path = path_of(tmp_path, "sink", 0, "a")
    write_stage(path, iter([RUN, MESSAGE, RUN]))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(StoreCorruptError):
            read_stage(path)


def test_a_run_of_many_blocks_is_written_as_it_is(tmp_path: Path) -> None:
    """More pieces than one call of the system takes."""
    blocks = [memoryview(b"%d" % number) for number in range(2_500)]
    run = BlockRun(RunRecord("q", 4, 2_500, 10_000, False, [len(block) for block in blocks]), blocks)
    path = path_of(tmp_path, "sink", 0, "a")
    write_stage(path, iter([run, MESSAGE]))
    assert read_stage(path) == [run, MESSAGE]


def test_what_is_published_or_given_up_goes_and_nothing_else(tmp_path: Path) -> None:
    for batch in range(4):
        write_stage(path_of(tmp_path, "sink", batch, "a"), iter([RUN]))
    write_stage(path_of(tmp_path, "sink", 3, "b"), iter([RUN]))
    write_stage(path_of(tmp_path, "other", 0, "a"), iter([RUN]))
    remove_through(tmp_path, 2)
    discard_stages(tmp_path, "sink", 3, ["b", "nothing"])
    assert [path.name for path in (tmp_path / "stages" / "sink").iterdir()] == ["000000000003-a.stage"]
    assert len(list((tmp_path / "stages" / "other").iterdir())) == 1


def test_sinks_that_never_came_back_are_swept(tmp_path: Path) -> None:
    path = path_of(tmp_path, "sink", 0, "a")
    write_stage(path, iter([RUN]))
    assert sweep(tmp_path, 3600) == 0
    make_old(path, path.parent)
    assert sweep(tmp_path, 3600) == 1
    assert not path.parent.exists()


def make_old(*paths: Path) -> None:
    old = time.time() - 7200
    for path in paths:
        os.utime(path, (old, old))


def unfinished(tmp_path: Path, batch: int, stage: str) -> Path:
    """What is left of a stage over which its process was killed."""
    path = path_of(tmp_path, "sink", batch, stage).with_suffix(".tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half of")
    return path


def test_what_killed_processes_left_goes_with_its_batch(tmp_path: Path) -> None:
    """It stayed as long as its sink came back: up to gigabytes at each failover."""
    left = [unfinished(tmp_path, batch, "a.b") for batch in (1, 2, 3, 10**12 + 1)]
    remove_through(tmp_path, 2)
    assert [path.exists() for path in left] == [False, False, True, True]
    assert not (tmp_path / stage_files.SPARE_DIRECTORY).exists(), "somebody may write to it still"
    remove_through(tmp_path, 10**12)
    assert [path.exists() for path in left] == [False, False, False, True]


def test_what_is_staged_later_for_a_published_batch_stays(tmp_path: Path) -> None:
    write_stage(path_of(tmp_path, "sink", 0, "a"), iter([RUN]))
    finished = unfinished(tmp_path, 0, "b")
    published = stages_through(tmp_path, "sink", 0)
    again, loser = path_of(tmp_path, "sink", 0, "c"), finished.rename(finished.with_suffix(".stage"))

    def records() -> Iterator[Record]:
        yield MESSAGE
        remove_stages(tmp_path, published)
        yield RUN

    write_stage(again, records())
    assert read_stage(again) == [MESSAGE, RUN]
    assert list(again.parent.iterdir()) == [again]
    assert not loser.exists(), "it was staged for the batch, and is whole now"


def test_of_a_sink_that_goes_on_only_old_files_are_swept(tmp_path: Path) -> None:
    old, older = unfinished(tmp_path, 1, "a"), path_of(tmp_path, "sink", 2, "b")
    write_stage(older, iter([RUN]))
    make_old(old, older)
    kept = [unfinished(tmp_path, 3, "c"), path_of(tmp_path, "sink", 3, "d")]
    write_stage(kept[1], iter([RUN]))
    assert sweep(tmp_path, 3600) == 2
    assert sorted(kept[0].parent.iterdir()) == sorted(kept)


def test_a_stage_that_becomes_whole_meanwhile_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upkeep of the store ended with an error: its log was not trimmed that time."""
    other, path = path_of(tmp_path, "another", 0, "a"), path_of(tmp_path, "sink", 0, "a")
    for each in (other, path):
        write_stage(each, iter([RUN]))
    make_old(other, path)
    stat = Path.stat

    def renamed_before(self: Path, **options: bool) -> os.stat_result:
        if self == path:
            path.unlink(missing_ok=True)
        return stat(self, **options)

    monkeypatch.setattr(Path, "stat", renamed_before)
    assert sweep(tmp_path, 3600) == 1
    assert not other.exists()


@pytest.mark.parametrize("has_spare", [False, True])
def test_a_sink_that_comes_back_as_its_directory_is_swept_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_spare: bool
) -> None:
    """The sweep came between the look at the directory and the file in it: no such file or directory."""
    path = path_of(tmp_path, "sink", 1, "a")
    write_stage(path_of(tmp_path, "sink", 0, "a"), iter([RUN]))
    remove_through(tmp_path, 0)
    if not has_spare:
        next((tmp_path / stage_files.SPARE_DIRECTORY).iterdir()).unlink()
    make_old(path.parent)
    swept: list[int] = []

    def make_directory(directory: Path) -> None:
        directories.make_directory(directory)
        if not swept:
            swept.append(sweep(tmp_path, 3600))
            assert not directory.exists()

    monkeypatch.setattr(stage_files, "make_directory", make_directory)
    write_stage(path, iter([RUN, MESSAGE]))
    assert read_stage(path) == [RUN, MESSAGE]


def test_a_file_that_is_written_over_is_not_old(tmp_path: Path) -> None:
    """It was as old as what was in it before, until the first row came: the sweep took it."""
    write_stage(path_of(tmp_path, "sink", 0, "a"), iter([RUN]))
    remove_through(tmp_path, 0)
    make_old(*(tmp_path / stage_files.SPARE_DIRECTORY).iterdir())

    def records() -> Iterator[Record]:
        assert sweep(tmp_path, 3600) == 0
        yield MESSAGE

    path = path_of(tmp_path, "sink", 1, "a")
    write_stage(path, records())
    assert read_stage(path) == [MESSAGE]


def test_the_files_of_published_batches_are_written_over(tmp_path: Path) -> None:
    first, second = path_of(tmp_path, "sink", 0, "a"), path_of(tmp_path, "other", 1, "b")
    write_stage(first, iter([RUN, MESSAGE, RUN]))
    file = first.stat().st_ino
    remove_through(tmp_path, 0)
    assert write_stage(second, iter([MESSAGE])) == 1
    assert second.stat().st_ino == file
    assert read_stage(second) == [MESSAGE], "what is behind its end is of the former stage"
    write_stage(first, iter([RUN]))
    assert read_stage(first) == [RUN], "there is no second file to be written over"


def test_a_stage_that_breaks_off_takes_the_file_with_it_that_it_wrote_over(tmp_path: Path) -> None:
    path = path_of(tmp_path, "sink", 0, "a")
    write_stage(path, iter([RUN, MESSAGE]))
    remove_through(tmp_path, 0)

    def records() -> Iterator[Record]:
        yield RUN
        raise ValueError("the rows ended")

    with pytest.raises(ValueError, match="ended"):
        write_stage(path_of(tmp_path, "sink", 1, "a"), records())
    assert [entry for entry in tmp_path.rglob("*") if entry.is_file()] == []


def test_no_more_is_kept_to_be_written_over_than_is_worth_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for stage in "abc":
        write_stage(path_of(tmp_path, "sink", 0, stage), iter([RUN]))
    size = path_of(tmp_path, "sink", 0, "a").stat().st_size
    monkeypatch.setattr(stage_files, "SPARE_BYTES_MAX", 2 * size)
    remove_through(tmp_path, 0)
    assert len(list((tmp_path / stage_files.SPARE_DIRECTORY).iterdir())) == 2
    make_old(*(tmp_path / stage_files.SPARE_DIRECTORY).iterdir(), tmp_path / stage_files.SPARE_DIRECTORY)
    assert sweep(tmp_path, 3600) == 2
    assert not (tmp_path / stage_files.SPARE_DIRECTORY).exists()


def test_files_that_cannot_be_kept_go(tmp_path: Path) -> None:
    (tmp_path / stage_files.SPARE_DIRECTORY).write_bytes(b"in its place")
    path = path_of(tmp_path, "sink", 0, "a")
    write_stage(path, iter([RUN]))
    remove_through(tmp_path, 0)
    assert not path.exists()


def test_rows_are_parted_by_destination_and_priority_in_order() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"body": ["1", "2", "3", "4"], "destination": ["a", "b", "a", None], "priority": pa.array([4, 4, 9, None])}
    )
    records = list(records_of(batch, StageOptions("rest"), TICKET, 0, NOW_US))
    assert all(isinstance(record, BlockRun) for record in records)
    runs = [record.record for record in records if isinstance(record, BlockRun)]
    found = [(run.destination, run.priority, run.count) for run in runs]
    assert found == [("a", 4, 1), ("b", 4, 1), ("a", 9, 1), ("rest", 4, 1)]


def ids_of(record: Record) -> list[str | None]:
    if isinstance(record, MessageRecord):
        return [record.message_id]
    assert isinstance(record, BlockRun)
    block = Block(1, 1, memoryview(b"".join(record.pieces)))
    return [decode_message(bytes(body)).properties.message_id for body in block.bodies(0, record.record.count)]


@pytest.mark.parametrize("topic", [False, True])
def test_no_two_messages_of_a_stage_have_the_same_id(topic: bool) -> None:
    """`orders.a` and `orders.b` each got a message `ID:t:0:s:0:4:0`."""
    destinations, priorities = ["orders.a", "orders.b", "orders.a"], pa.array([4, 4, 9])
    batch = pa.RecordBatch.from_pydict({"body": ["1", "2", "3"], "destination": destinations, "priority": priorities})
    options = StageOptions("rest", topic)
    records = [record for row in (0, 3) for record in records_of(batch, options, TICKET, row, NOW_US)]
    ids = [each for record in records for each in ids_of(record)]
    assert len(set(ids)) == len(ids) == 6


def test_rows_that_are_not_like_others_go_by_themselves() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"body": ["1", "2"], "delivery_delay_ms": pa.array([1000, None]), "duplicate_id": [None, "d"]}
    )
    first, second = records_of(batch, StageOptions("q"), TICKET, 0, NOW_US)
    assert isinstance(first, MessageRecord)
    assert isinstance(second, MessageRecord)
    assert (first.deliver_us, first.duplicate_id) == (NOW_US + 1_000_000, b"")
    assert (second.deliver_us, second.duplicate_id) == (0, b"d")
    assert first.message_id != second.message_id
    [news] = records_of(batch.slice(0, 1).select(["body"]), StageOptions("t", True), TICKET, 0, NOW_US)
    assert isinstance(news, MessageRecord)
    assert news.topic


def test_expiring_rows_say_so_in_their_blocks() -> None:
    batch = pa.RecordBatch.from_pydict({"body": ["1", "2"], "time_to_live_ms": pa.array([5, None])})
    [run] = records_of(batch, StageOptions("q"), TICKET, 0, NOW_US)
    assert isinstance(run, BlockRun)
    assert Block(1, 1, memoryview(b"".join(run.pieces))).expiries == (NOW_US + 5000, 0)
