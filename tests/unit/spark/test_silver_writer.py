"""Silver as tasks write it that read segments by themselves, against one message after the other. No Spark, no JVM."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.core.facts import (
    AnyFact,
    EpochBegan,
    LogRecord,
    MessageConsumed,
    MessageDeadLettered,
    MessageDelivered,
    MessageMoved,
    MessagePresented,
    MessageReturned,
    MessageStored,
)
from legato.core.lanes import LANE_SHIFT
from legato.errors import StoreCorruptError
from legato.ids import make_txn_id, txn_counter
from legato.spark.ledger.fact_schema import facts_table
from legato.spark.ledger.segments import write_rows, write_segment
from legato.spark.runtime.worker_processes import here
from legato.spark.summaries import silver_writer
from legato.spark.summaries.message_summary_numpy import Tallies, add_up, messages_of, read_segment, tallied
from legato.spark.summaries.silver_writer import find_doubtful_tasks, ranges_of, write_silver
from tests.support.examples import examples
from tests.support.flipped_bits import flipped_bits

QUEUES, SEQS = st.sampled_from([1, 2, 70_000]), st.sampled_from([1, 2, 3, 4, (1 << LANE_SHIFT) + 1, 1 << 44])
TXNS = st.one_of(
    st.just(b""),
    st.builds(
        lambda counter, group: bytes(make_txn_id(1, counter, group)),
        st.integers(1, 1 << 62),
        st.sampled_from((b"", b"of group")),
    ),
)
TIMES = st.integers(1, 1 << 50)

FACTS: st.SearchStrategy[AnyFact] = st.one_of(
    st.builds(MessageStored, QUEUES, SEQS, st.just(9), st.just("ID:x"), st.integers(0, 3), st.just(1), TXNS),
    st.builds(MessageConsumed, QUEUES, SEQS, st.just(1), TIMES, st.integers(1, 3), TXNS),
    st.builds(MessageDeadLettered, QUEUES, SEQS, st.just(1), st.just("poison"), st.just(9), st.just(1)),
    st.builds(MessageMoved, QUEUES, SEQS, st.just("expired")),
    st.builds(
        MessageReturned,
        *(QUEUES, SEQS, st.integers(1, 3), st.booleans(), st.just(1)),
        st.sampled_from(["rollback", "claimed", "carried"]),
    ),
    st.builds(MessagePresented, QUEUES, SEQS, st.just(1)),
    st.builds(MessageDelivered, QUEUES, SEQS, st.just(1), st.just(1), st.booleans(), TIMES),
    st.just(EpochBegan("a")),
)
TOLD = (
    *(MessageStored, MessageConsumed, MessageDeadLettered, MessageMoved),
    *(MessageReturned, MessagePresented, MessageDelivered),
)
RECORDS = st.lists(st.builds(LogRecord, st.integers(1, 3), TIMES, st.lists(FACTS, max_size=6)), min_size=1, max_size=4)
SEGMENTS = st.lists(RECORDS, min_size=1, max_size=6)


@dataclass
class Message:
    """What one message comes to, said the long way."""

    facts: list[tuple[int, int, LogRecord, Any]] = field(default_factory=list)

    def _of(self, *kinds: type[AnyFact]) -> list[tuple[int, int, LogRecord, Any]]:
        return [told for told in self.facts if isinstance(told[3], kinds)]

    @property
    def is_open(self) -> bool:
        return not self._of(MessageStored) or not self._of(MessageConsumed, MessageDeadLettered, MessageMoved)

    def row(self) -> dict[str, Any]:
        stored, consumed, returned = self._of(MessageStored), self._of(MessageConsumed), self._of(MessageReturned)
        left = self._of(MessageConsumed, MessageDeadLettered, MessageMoved)
        delivered = [fact.delivered_us for _, _, _, fact in self._of(MessageConsumed, MessageDelivered)]
        epochs = [record.epoch for _, _, record, _ in self.facts]
        causes = [fact.cause for _, _, _, fact in returned]

        def places(told: Sequence[tuple[int, int, LogRecord, Any]]) -> list[int]:
            return [position << 20 | ordinal for position, ordinal, _, _ in told]

        def txns(told: Sequence[tuple[int, int, LogRecord, Any]]) -> list[int]:
            return [txn_counter(fact.txn) for _, _, _, fact in told if fact.txn]

        return {
            "stored_count": len(stored),
            "consumed_count": len(consumed),
            "dead_count": len(self._of(MessageDeadLettered)),
            "moved_count": len(self._of(MessageMoved)),
            "left_count": len(left),
            "returned_count": causes.count("rollback"),
            "presented_count": len(self._of(MessagePresented)),
            "claimed": causes.count("claimed"),
            "stored_us": min((record.time_us for _, _, record, _ in stored), default=None),
            "left_us": max((record.time_us for _, _, record, _ in left), default=None),
            "first_delivered_us": min(delivered, default=None),
            "delivered_us": max(delivered, default=None),
            "stored_place": min(places(stored), default=None),
            "left_place": max(places(left), default=None),
            "attempt": max((fact.attempt for _, _, _, fact in consumed), default=None),
            "returned_attempt": max((fact.count for _, _, _, fact in returned), default=None),
            "first_epoch": min(epochs),
            "last_epoch": max(epochs),
            "producer": max((fact.producer for _, _, _, fact in stored if fact.producer), default=None),
            "sent_txn": max(txns(stored), default=None),
            "consumed_txn": max(txns(consumed), default=None),
        }


Row = tuple[tuple[str, Any], ...]


def expected(portions: Sequence[Sequence[Sequence[tuple[int, LogRecord]]]]) -> list[list[tuple[bool, Row]]]:
    """Of each portion, whether a message is open after it, and its row."""
    silver: list[list[tuple[bool, Row]]] = []
    messages: dict[tuple[int, int], Message] = {}
    for segments in portions:
        for position, record in (each for segment in segments for each in segment):
            for ordinal, fact in enumerate(record.facts):
                if isinstance(fact, TOLD):
                    message = messages.setdefault((fact.queue, fact.seq), Message())
                    message.facts.append((position, ordinal, record, fact))
        silver.append([(message.is_open, _row(*key, message.row())) for key, message in messages.items()])
        messages = {key: message for key, message in messages.items() if message.is_open}
    return silver


def _row(queue: int, seq: int, said: dict[str, Any]) -> Row:
    return tuple(sorted({"queue": queue, "seq": seq, **said}.items()))


def written(portion: Path) -> list[tuple[bool, Row]]:
    """What a portion's silver says."""
    return [
        (directory == silver_writer.OPEN, tuple(sorted(row.items())))
        for directory in (silver_writer.CLOSED, silver_writer.OPEN)
        for row in ds.dataset(portion / directory, format="parquet", partitioning=None).to_table().to_pylist()
    ]


def numbered(portions: Sequence[Sequence[Sequence[LogRecord]]]) -> list[list[list[tuple[int, LogRecord]]]]:
    """The records with their positions."""
    position = iter(range(1, 1 << 20))
    return [[[(next(position), record) for record in segment] for segment in segments] for segments in portions]


def in_portions(directory: Path, portions: Sequence[Sequence[Sequence[tuple[int, LogRecord]]]]) -> Iterator[Path]:
    """The silver of each portion."""
    before: list[Path] = []
    for number, segments in enumerate(portions):
        files = [directory / write_segment(directory, segment).file_name for segment in segments]
        portion = directory / f"batch={number}"
        write_silver(files, before, portion, here)
        before = sorted((portion / silver_writer.OPEN).glob("*.parquet"))
        yield portion


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(SEGMENTS, min_size=1, max_size=3), st.integers(1, 3), st.sampled_from([2, 1_000_000]))
def test_however_a_ledger_is_cut_each_message_is_what_its_facts_say(
    portions: list[list[list[LogRecord]]], per_task: int, loose_per_task: int
) -> None:
    records = numbered(portions)
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as directory:
        patch.setattr(silver_writer, "SEGMENTS_PER_TASK", per_task)
        patch.setattr(silver_writer, "UNMATCHED_PER_TASK", loose_per_task)
        found = [written(portion) for portion in in_portions(Path(directory), records)]
    assert [sorted(silver, key=repr) for silver in found] == [sorted(silver, key=repr) for silver in expected(records)]


def closed(seq: int) -> list[AnyFact]:
    return [MessageStored(1, seq, 9, "ID:x"), MessageConsumed(1, seq, 1, 5, 1)]


def test_messages_that_are_whole_in_one_task_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks for them again, and what one task stores and the next one consumes raises no suspicion."""
    monkeypatch.setattr(silver_writer, "SEGMENTS_PER_TASK", 1)
    segments = [
        [(1, LogRecord(1, 1, [*closed(1), *closed(2), MessageStored(1, 3, 9, "ID:x")]))],
        [(2, LogRecord(1, 2, [MessageConsumed(1, 3, 1, 5, 1), *closed(4)]))],
    ]
    asked: list[Path] = []
    read = silver_writer._read

    def noted(path: Path, columns: Sequence[str] | None = None) -> Any:
        asked.append(path)
        return read(path, columns)

    monkeypatch.setattr(silver_writer, "_read", noted)
    [portion] = in_portions(tmp_path, [segments])
    assert {path.parent.name for path in asked} == {"_unmatched"}
    assert sorted(path.name for path in portion.rglob("*")) == [
        *("open=false", "open=true", "part-00000.parquet", "part-00001.parquet", "part-loose-00000.parquet"),
    ]


def test_what_was_half_written_before_a_crash_is_replaced(tmp_path: Path) -> None:
    portion = tmp_path / "batch=0"
    (portion / "open=false").mkdir(parents=True)
    (portion / "open=false" / "part-00007.parquet").write_bytes(b"of a task that is no more")
    segment = write_segment(tmp_path, [(1, LogRecord(1, 1, closed(1)))])
    write_silver([tmp_path / segment.file_name], [], portion, here)
    assert [path.name for path in portion.rglob("*.parquet")] == ["part-00000.parquet"]


def test_no_flipped_bit_changes_what_is_open(tmp_path: Path) -> None:
    """What a disk has changed ends a run that adds to it, and names the file."""
    stored: list[AnyFact] = [MessageStored(1, seq, 9, "ID:x", 1, seq, b"") for seq in range(1, 50)]
    segment = tmp_path / write_segment(tmp_path, [(1, LogRecord(1, 1_000, stored))]).file_name
    write_silver([segment], [], tmp_path / "first", here)
    other = tmp_path / write_segment(tmp_path, [(2, LogRecord(1, 2_000, [EpochBegan("a")]))]).file_name
    (file,) = (tmp_path / "first" / silver_writer.OPEN).glob("*.parquet")
    whole = file.read_bytes()
    write_silver([other], [file], tmp_path / "next", here)
    expected = written(tmp_path / "next")
    refused = []
    for changed in flipped_bits(whole, 30):
        file.write_bytes(changed)
        try:
            write_silver([other], [file], tmp_path / "next", here)
            assert written(tmp_path / "next") == expected
        except StoreCorruptError as error:
            refused.append(str(error))
    assert refused
    assert all(str(file) in sentence for sentence in refused)


def test_suspicion_falls_on_whom_others_tell_of() -> None:
    """By their places: one range within another, and what is unmatched elsewhere within a range."""
    nothing = ranges_of(keys())
    first, second = ranges_of(keys((1, 10), (1, 20))), ranges_of(keys((1, 15), (2, 1)))
    assert find_doubtful_tasks([first, nothing, second], [unmatched(), unmatched(), unmatched()]) == [0, 2]
    apart = ranges_of(keys((1, 30), (2, 1)))
    assert find_doubtful_tasks([first, apart], [unmatched((1, 15)), unmatched()]) == [], "its own"
    assert find_doubtful_tasks([first, apart], [unmatched(), unmatched((1, 15))]) == [0]
    assert find_doubtful_tasks([first, apart], [unmatched(), unmatched(), unmatched((2, 1))]) == [1], (
        "of a former portion"
    )
    assert (
        find_doubtful_tasks([first, apart], [unmatched((1, 40), (1, 9), (2, 2), (3, 1)), unmatched((1, 21), (1, 29))])
        == []
    )


def keys(*places: tuple[int, int]) -> Tallies:
    return add_up([unmatched(*places)._asdict()])


def unmatched(*places: tuple[int, int]) -> silver_writer.Keys:
    return silver_writer.Keys(*(np.array([place[column] for place in places], np.int64) for column in (0, 1)))


def test_rows_say_all_that_their_tallies_did(tmp_path: Path) -> None:
    records = [
        LogRecord(1, 1, [*closed(1), MessageReturned(1, 2, 2, False, 1, "claimed"), MessagePresented(1, 2, 1)]),
        LogRecord(2, 2, [MessageReturned(1, 2, 2, False, 1, "rollback"), MessageMoved(1, 3, "expired")]),
    ]
    span = write_segment(tmp_path, list(enumerate(records, 1)))
    tallies = add_up(read_segment(tmp_path / span.file_name))
    again = tallied(messages_of(tallies))
    assert {name: column.tolist() for name, column in again.items()} == {
        name: column.tolist() for name, column in tallies.items()
    }


def test_segments_with_a_row_group_for_each_kind_and_those_that_do_not_number_kinds_say_the_same(
    tmp_path: Path,
) -> None:
    records = [(1, LogRecord(1, 1, [EpochBegan("a"), *closed(1), *closed(2), MessagePresented(1, 2, 1)]))]
    table = facts_table(records)
    pq.write_table(table, tmp_path / "one.parquet")
    with pq.ParquetWriter(tmp_path / "each.parquet", table.schema) as writer:
        for row in range(len(table)):
            writer.write_table(table.slice(row, 1))
    write_rows(table.drop_columns(["tag"]), tmp_path / "former.parquet")
    one, *others = (
        messages_of(add_up(read_segment(tmp_path / f"{name}.parquet"))).to_pylist()
        for name in ("one", "each", "former")
    )
    assert len(one) == 2
    assert others == [one, one]
