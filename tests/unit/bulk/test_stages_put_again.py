"""A stage that is put again while its first attempt is not over at the broker: its connection alone was lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.bulk.stage_files import (
    MessageRecord,
    Record,
    path_of,
    read_stage,
    remove_stages,
    stages_through,
    write_stage,
)

FIRST = MessageRecord("t", True, 4, 0, 0, b"", "", "ID:first", b"first")
SECOND = MessageRecord("t", True, 4, 0, 0, b"", "", "ID:second", b"second, and longer")


class FirstAttempt:
    """An attempt that has written its first record, and goes on when it is told to."""

    def __init__(self, path: Path, *, breaks_off: bool) -> None:
        self._path = path
        self._breaks_off = breaks_off
        self._has_begun, self._goes_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()
        assert self._has_begun.wait(60)

    def end(self) -> None:
        """It goes on to its end."""
        self._goes_on.set()
        self._thread.join()

    def _write(self) -> None:
        try:
            write_stage(self._path, self._records())
        except ConnectionError:
            assert self._breaks_off

    def _records(self) -> Iterator[Record]:
        yield FIRST
        self._has_begun.set()
        assert self._goes_on.wait(60)
        if self._breaks_off:
            raise ConnectionError
        yield FIRST


@pytest.mark.parametrize("breaks_off", [True, False])
@pytest.mark.parametrize("has_spare", [True, False])
def test_it_is_whole_though_the_first_attempt_ends_meanwhile(tmp_path: Path, breaks_off: bool, has_spare: bool) -> None:
    """`The broker's disk: No such file or directory` failed the task; or a half of it was there as a whole."""
    path = path_of(tmp_path, "sink", 1, "a")
    if has_spare:
        write_stage(path_of(tmp_path, "sink", 0, "a"), iter([FIRST]))
        remove_stages(tmp_path, stages_through(tmp_path, "sink", 0))
    first = FirstAttempt(path, breaks_off=breaks_off)

    def records() -> Iterator[Record]:
        yield SECOND
        first.end()
        if not breaks_off:
            assert read_stage(path) == [FIRST, FIRST], "as a whole or not at all"
        yield SECOND

    write_stage(path, records())
    assert read_stage(path) == [SECOND, SECOND]
    assert list(path.parent.iterdir()) == [path]


def test_it_stays_as_it_is_though_the_first_attempt_goes_on_behind_it(tmp_path: Path) -> None:
    """One of a former primary's process that had been stopped wrote into the second one's file."""
    path = path_of(tmp_path, "sink", 1, "a")
    first = FirstAttempt(path, breaks_off=True)
    write_stage(path, iter([SECOND, SECOND]))
    first.end()
    assert read_stage(path) == [SECOND, SECOND]


def test_what_both_attempts_left_goes_with_its_batch(tmp_path: Path) -> None:
    path = path_of(tmp_path, "sink", 1, "a.b")
    first = FirstAttempt(path, breaks_off=False)
    found = stages_through(tmp_path, "sink", 1)
    first.end()
    remove_stages(tmp_path, found)
    assert list(path.parent.iterdir()) == []
