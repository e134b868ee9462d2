"""The journal gives back what was appended; a torn end is cut off, and anything else that is not as written is told."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.errors import StoreCorruptError, StoreError
from legato.store.journal import SEGMENTS, Journal, Place, create_journal, remove_journal
from legato.store.journal_records import (
    HEAD_BYTES,
    HEADER_BYTES,
    NO_DIGEST,
    RECORD_MAGIC,
    needed_records,
    record_size,
    segment_path,
)
from tests.support.examples import examples
from tests.support.small_disk import SmallDisk, small_disk

IDENTITY = bytes(range(16))
SEGMENT_BYTES = HEADER_BYTES + 4096
START = Place(0, 0, NO_DIGEST)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    create_journal(tmp_path / "journal", IDENTITY, SEGMENT_BYTES, sync=False)
    return tmp_path / "journal"


def opened(directory: Path, after: Place = START) -> Journal:
    return Journal(directory, IDENTITY, after, sync=False)


def payload(number: int, size: int = 100) -> bytes:
    return b"%d;" % number + bytes([number % 251]) * size


def fill(journal: Journal, count: int, size: int = 100) -> list[Place]:
    return [journal.append(1, payload(journal.last.number + 1, size)) for _ in range(count)]


def found(directory: Path, after: Place = START) -> list[int]:
    """Numbers of what a new process finds, each with its payload."""
    journal = opened(directory, after)
    try:
        numbers = []
        for place, read in journal.replay(after):
            assert read.startswith(b"%d;" % place.number)
            numbers.append(place.number)
        return numbers
    finally:
        journal.close()


def worn(directory: Path, rounds: int) -> tuple[Journal, Place, list[Place]]:
    """A journal that was gone round in, the last commit in the store's file, and those behind it."""
    journal = opened(directory)
    for _ in range(rounds):
        while journal.last.number == 0 or journal._current is not journal._segments[-1]:
            fill(journal, 1, 150)
        journal.release(journal.last.number)
        fill(journal, 30, 150)
        journal.release(journal.last.number)
    after = journal.last
    return journal, after, fill(journal, 12, 90)


def bytes_of(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(directory.iterdir())}


def test_what_was_appended_is_found_by_the_next_process_from_any_place_on(directory: Path) -> None:
    journal = opened(directory)
    places = fill(journal, 20)
    journal.close()
    assert [place.number for place in places] == list(range(1, 21))
    for index, place in enumerate([START, *places]):
        assert found(directory, place) == list(range(index + 1, 21))


def test_appending_goes_on_behind_what_the_former_process_wrote(directory: Path) -> None:
    first = opened(directory)
    fill(first, 3)
    first.close()
    second = opened(directory)
    fill(second, 3)
    second.close()
    assert found(directory) == [1, 2, 3, 4, 5, 6]


def test_a_segment_is_used_again_when_its_commits_are_in_the_stores_file_and_not_before(directory: Path) -> None:
    journal = opened(directory)
    count = 0
    while journal.fits(1000):
        fill(journal, 1, 1000 - 10)
        count += 1
    assert count == SEGMENTS * (4096 // record_size(1000))
    with pytest.raises(StoreError, match="no room"):
        journal.append(1, payload(0, 1000))
    assert found(directory) == list(range(1, count + 1)), "nothing was overwritten"
    journal.release(2)
    assert not journal.fits(1000), "the third record of that segment is still needed"
    journal.release(3)
    assert journal.fits(1000)
    third = next(place for place, _ in journal.replay(START) if place.number == 3)
    fill(journal, 1, 900)
    journal.close()
    assert found(directory, third) == list(range(4, count + 2))


def test_a_light_load_stays_in_one_segment(directory: Path) -> None:
    journal = opened(directory)
    for _ in range(300):
        fill(journal, 1)
        journal.release(journal.last.number)
    assert segment_path(directory, 2).stat().st_size == HEADER_BYTES, "it has no place on the disk yet"
    assert segment_path(directory, 1).stat().st_blocks * 512 >= SEGMENT_BYTES, "all of it has"


def test_a_record_as_large_as_a_segment_fits_and_a_larger_one_does_not(directory: Path) -> None:
    journal = opened(directory)
    largest = SEGMENT_BYTES - HEADER_BYTES - HEAD_BYTES
    assert journal.fits(largest)
    assert not journal.fits(largest + 1)
    fill(journal, 1)
    journal.append(1, b"2;" + bytes(largest - 2))
    assert found(directory) == [1, 2]


@pytest.mark.parametrize("rounds", [0, 1, 2, 3])
def test_each_byte_of_the_last_record_damaged_leaves_those_before_it(directory: Path, rounds: int) -> None:
    journal, after, places = worn(directory, rounds)
    path, end = journal._current.path, journal._current.end
    journal.close()
    whole = path.read_bytes()
    size = HEAD_BYTES + len(payload(places[-1].number, 90))
    begin = end - record_size(len(payload(places[-1].number, 90)))
    before = [place.number for place in places[:-1]]
    for position in range(begin, begin + size):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        assert found(directory, after) == before, f"byte {position - begin}"


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_writing_goes_on_behind_a_torn_end(directory: Path, rounds: int) -> None:
    journal, after, places = worn(directory, rounds)
    path, end = journal._current.path, journal._current.end
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: end - 9] + bytes(9) + whole[end:])
    again = opened(directory, after)
    fill(again, 2)
    again.close()
    last = places[-1].number
    assert found(directory, after) == [*range(after.number + 1, last), last, last + 1]


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a_cut_at_every_512_bytes_leaves_a_prefix(directory: Path, rounds: int) -> None:
    """What is behind the cut is as it was before these records were written, as after a power cut."""
    journal = opened(directory)
    after = worn(directory, rounds)[1] if rounds else START
    journal.close()
    old = bytes_of(directory)
    writing = opened(directory, after)
    if segment_path(directory, 1).stat().st_size == HEADER_BYTES:
        fill(writing, 1)
    fill(writing, 14, 90)
    path, end = writing._current.path, writing._current.end
    writing.close()
    whole, stale = path.read_bytes(), old[path].ljust(SEGMENT_BYTES, b"\0")
    seen = set()
    for cut in range(HEADER_BYTES, end, 512):
        path.write_bytes(whole[:cut] + stale[cut:])
        numbers = found(directory, after)
        assert numbers == list(range(after.number + 1, after.number + 1 + len(numbers)))
        seen.add(len(numbers))
    assert len(seen) > 3


def test_a_record_damaged_before_whole_ones_is_refused_with_what_is_lost(directory: Path) -> None:
    journal, after, places = worn(directory, 2)
    path, end = journal._current.path, journal._current.end
    journal.close()
    whole = path.read_bytes()
    size = record_size(len(payload(places[-1].number, 90)))
    lost = places[-3].number
    for position in range(end - 3 * size, end - 2 * size - 8):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(StoreCorruptError) as refused:
            opened(directory, after)
        assert f"commit {lost} cannot be read, though 2 commits behind can" in str(refused.value)
        assert f"holds everything up to commit {after.number}" in str(refused.value)
        assert f"commits {lost} to {lost + 2}, which may have been confirmed, would be lost" in str(refused.value)


def test_a_whole_record_of_another_history_is_refused(directory: Path, tmp_path: Path) -> None:
    """The file of the store is of one day and its journal of another."""
    journal = opened(directory)
    places = fill(journal, 5)
    journal.close()
    with pytest.raises(StoreCorruptError, match="commit 3 does not continue"):
        found(directory, Place(1, 2, b"of another chain"))
    with pytest.raises(StoreCorruptError, match="commit 3 does not continue"):
        found(directory, places[1]._replace(epoch=2))


def test_a_missing_segment_is_refused(directory: Path) -> None:
    journal = opened(directory)
    while journal._current is not journal._segments[1]:
        fill(journal, 1)
    journal.close()
    for index in range(1, SEGMENTS + 1):
        path = segment_path(directory, index)
        aside = path.rename(directory.with_name("aside"))
        with pytest.raises(StoreCorruptError, match=f"{path} is missing"):
            opened(directory)
        aside.rename(path)
    assert len(found(directory)) == journal.last.number


def test_segments_under_each_others_names_are_refused(directory: Path) -> None:
    first, second = segment_path(directory, 1), segment_path(directory, 2)
    aside = first.rename(directory / "aside")
    second.rename(first)
    aside.rename(second)
    with pytest.raises(StoreCorruptError, match="000001 is segment 2 of its journal"):
        opened(directory)


def test_a_journal_of_another_store_is_refused(directory: Path, tmp_path: Path) -> None:
    journal = opened(directory)
    fill(journal, 3)
    journal.close()
    with pytest.raises(StoreCorruptError, match="another store's journal"):
        Journal(directory, bytes(16), START)
    create_journal(tmp_path / "other", bytes(16), SEGMENT_BYTES, sync=False)
    shutil.copy(segment_path(tmp_path / "other", 2), segment_path(directory, 2))
    with pytest.raises(StoreCorruptError, match="000002 is of another store's journal"):
        opened(directory)


def test_a_damaged_header_is_refused(directory: Path) -> None:
    path = segment_path(directory, 1)
    whole = path.read_bytes()
    for position in range(56):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(StoreCorruptError):
            opened(directory)
    path.write_bytes(whole[:20])
    with pytest.raises(StoreCorruptError, match="no segment of a journal"):
        opened(directory)


def test_a_message_that_looks_like_a_record_is_none(directory: Path, tmp_path: Path) -> None:
    """A client sends the bytes of a record with a higher number, of a journal that it made itself."""
    create_journal(tmp_path / "forged", bytes(16), SEGMENT_BYTES, sync=False)
    forging = Journal(tmp_path / "forged", bytes(16), Place(1, 1_000, NO_DIGEST), sync=False)
    fill(forging, 1)
    forged = segment_path(tmp_path / "forged", 1).read_bytes()[HEADER_BYTES:][:200]
    assert forged.startswith(RECORD_MAGIC)
    journal = opened(directory)
    journal.append(1, b"1;" + bytes(6) + forged)
    journal.append(1, b"2;" + RECORD_MAGIC * 40)
    fill(journal, 1)
    journal.close()
    assert found(directory) == [1, 2, 3]


def test_a_killed_process_leaves_a_segment_that_is_filled_again(directory: Path) -> None:
    """It died while it wrote the zeroes."""
    path = segment_path(directory, 1)
    os.truncate(path, SEGMENT_BYTES - 1)
    journal = opened(directory)
    fill(journal, 3)
    assert path.stat().st_size == SEGMENT_BYTES
    journal.close()
    assert found(directory) == [1, 2, 3]


def test_a_journal_that_lost_its_end_behind_the_process_is_not_replayed(directory: Path) -> None:
    journal = opened(directory)
    fill(journal, 3)
    segment_path(directory, 1).write_bytes(
        segment_path(directory, 1).read_bytes()[: HEADER_BYTES + 50].ljust(SEGMENT_BYTES, b"\0")
    )
    with pytest.raises(StoreCorruptError, match="commit 3 was appended"):
        list(journal.replay(START))


def test_a_removed_journal_leaves_nothing(directory: Path) -> None:
    remove_journal(directory)
    assert not directory.exists()
    remove_journal(directory)
    create_journal(directory, IDENTITY, SEGMENT_BYTES, sync=False)


class Failing:
    """The disk refuses the next writes, or to have them durable."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, times: int, code: int = errno.EIO) -> None:
        real = getattr(os, name)
        self.left = times

        def failing(*arguments: object) -> object:
            if self.left:
                self.left -= 1
                raise OSError(code, os.strerror(code))
            return real(*arguments)

        patch.setattr(os, name, failing)


@pytest.mark.parametrize("name", ["pwritev", "fdatasync"])
def test_an_append_that_failed_leaves_nothing_and_the_next_one_takes_its_number(
    directory: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    journal = Journal(directory, IDENTITY, START)
    fill(journal, 2)
    Failing(monkeypatch, name, 1)
    with pytest.raises(OSError, match="Input/output"):
        journal.append(1, b"3; refused")
    assert not journal.failed
    assert found(directory) == [1, 2]
    assert journal.append(1, b"3; taken").number == 3
    journal.close()
    assert found(directory) == [1, 2, 3]


def test_a_journal_takes_nothing_more_when_a_failed_append_cannot_be_undone(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(directory, IDENTITY, START)
    fill(journal, 2)
    Failing(monkeypatch, "fdatasync", 2)
    with pytest.raises(OSError, match="Input/output"):
        journal.append(1, b"3; in doubt")
    assert journal.failed
    assert found(directory, journal.last) == [], "whether it can be read or not"
    assert journal.last.number == 3
    assert not journal.fits(1)
    with pytest.raises(StoreError):
        journal.append(1, b"3; again")


def test_a_write_that_the_system_cuts_short_is_ended(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda file, parts, begin: real(file, [b"".join(parts)[:70]], begin))
    journal = opened(directory)
    fill(journal, 3)
    journal.close()
    assert found(directory) == [1, 2, 3]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 4 << 20) as disk:
        yield disk


def test_on_a_full_disk_a_new_segment_is_refused_and_the_others_are_used(disk: SmallDisk) -> None:
    directory, size = disk.path / "journal", HEADER_BYTES + (64 << 10)
    create_journal(directory, IDENTITY, size)
    journal = Journal(directory, IDENTITY, START)
    fill(journal, 60, 1000)
    disk.fill()
    count = journal.last.number
    with pytest.raises(OSError, match="No space left"):
        fill(journal, 10, 1000)
    count = journal.last.number
    assert found(directory) == list(range(1, count + 1))
    assert not journal.failed
    assert segment_path(directory, 2).stat().st_size == HEADER_BYTES, "it gave back what it had"
    last = journal.last
    journal.release(count)
    fill(journal, 10, 1000)
    assert found(directory, last) == list(range(count + 1, count + 11))
    disk.empty()
    fill(journal, 60, 1000)
    journal.close()


def test_a_journal_cannot_be_made_on_a_full_disk(disk: SmallDisk) -> None:
    disk.fill()
    with pytest.raises(OSError, match="No space left"):
        create_journal(disk.path / "journal", IDENTITY, SEGMENT_BYTES)


@settings(max_examples=examples(200), deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=40),
    releases=st.lists(st.integers(0, 5), min_size=40, max_size=40),
    reopened=st.sets(st.integers(0, 39)),
)
def test_whatever_is_appended_and_released_the_rest_is_found(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], releases: list[int], reopened: set[int]
) -> None:
    directory = tmp_path_factory.mktemp("journal") / "journal"
    create_journal(directory, IDENTITY, SEGMENT_BYTES, sync=False)
    places = [START]
    released = 0
    journal = opened(directory)
    for index, size in enumerate(sizes):
        data = b"%d;" % (index + 1) + bytes(size)
        if not journal.fits(len(data)):
            released = len(places) - 1
            journal.release(released)
        places.append(journal.append(1 + index // 7, data))
        released = max(released, len(places) - 1 - releases[index])
        journal.release(released)
        if index in reopened:
            journal.close()
            journal = opened(directory, places[released])
        after = places[released]
        assert [place for place, _ in journal.replay(after)] == places[released + 1 :]
        assert [record.place for record in needed_records(directory, IDENTITY, after)] == places[released + 1 :]
    journal.close()
    shutil.rmtree(directory)
