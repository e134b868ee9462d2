"""What connections hold in memory: the mark, and who is not read from above it."""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.server.config.machine_memory import _limits_of_groups, memory_of_machine, share_of_memory
from legato.server.limits.memory_mark import HOLDER_BYTES_MIN, MemoryMark

MIB = 1 << 20
RELIEF_S = 10.0


class Held:
    """Connections and what they hold, under a mark of 100 MiB."""

    def __init__(self, **mib: int) -> None:
        self.mib = dict(mib)
        self.told: list[str] = []
        self.mark = MemoryMark[str](100 * MIB, RELIEF_S, self.told.append)
        self.s = 0.0

    def review(self) -> tuple[list[str], list[str], str | None]:
        """Who is to be stopped, who may go on, and who is cut off."""
        holders = [(name, mib * MIB) for name, mib in self.mib.items()]
        measures = self.mark.review(sum(held for _, held in holders), lambda: holders, self.s)
        return measures.stop, measures.go_on, measures.cut_off


def test_nobody_is_stopped_below_the_mark() -> None:
    held = Held(ann=60, bob=40)
    assert held.review() == ([], [], None)
    assert held.told == []


def test_above_the_mark_those_who_hold_most_are_stopped_first() -> None:
    held = Held(small=1, ann=50, bob=30, cid=25)
    assert held.review() == (["ann", "bob"], [], None)
    assert held.review() == ([], [], None)
    held.mib["cid"] = 30
    assert held.review() == (["cid"], [], None)
    assert held.mark.is_above


def test_whoever_holds_little_is_always_read_from() -> None:
    held = Held(ann=200)
    held.mib["tiny"] = 0
    assert held.review()[0] == ["ann"]
    held.mib["ann"] = 300
    assert held.review()[0] == []
    assert HOLDER_BYTES_MIN < MIB


def test_below_the_mark_all_are_read_from_again_and_the_log_says_each_once() -> None:
    held = Held(ann=90, bob=30)
    held.review()
    held.mib["ann"] = 65
    assert held.review() == ([], [], None), "not before there is some room"
    held.mib["ann"] = 50
    assert held.review() == ([], ["ann"], None)
    assert [line.split(":")[0] for line in held.told] == [
        "connections hold 120 MiB, more than limits.memory (100 MiB)",
        "connections hold 80.0 MiB",
    ]


def test_without_relief_whoever_holds_most_is_cut_off_one_after_the_other() -> None:
    held = Held(ann=90, bob=80, cid=1)
    held.review()
    held.mib["bob"] += 10
    held.review()
    held.s = RELIEF_S - 0.1
    assert held.review()[2] is None
    held.s = RELIEF_S
    assert held.review()[2] == "ann"
    del held.mib["ann"]
    held.mib["bob"] = 120
    held.s += RELIEF_S / 2
    assert held.review()[2] is None
    held.s += RELIEF_S
    assert held.review()[2] == "bob"


def test_who_is_gone_is_not_told_to_go_on() -> None:
    held = Held(ann=120, bob=1)
    held.review()
    del held.mib["ann"]
    assert held.review() == ([], ["ann"], None) or held.mark.stopped == {}


def test_the_mark_is_bytes_or_a_share() -> None:
    assert share_of_memory("40%", 1000) == 400
    assert share_of_memory(5000, 1000) == 5000
    assert share_of_memory("5000", 1000) == 5000
    assert share_of_memory(0, 1000) == 0
    for wrong in ("much", "-1", "140%", "%", -1):
        with pytest.raises(ValueError, match=r"."):
            share_of_memory(wrong, 1000)


def test_the_lowest_limit_of_the_control_groups_counts(tmp_path: Path) -> None:
    group = tmp_path / "a" / "b"
    group.mkdir(parents=True)
    (tmp_path / "a" / "memory.max").write_text("5000\n")
    (group / "memory.max").write_text("max\n")
    own = tmp_path / "own"
    own.write_text("0::/a/b\n")
    assert _limits_of_groups(tmp_path, own) == [5000]
    assert _limits_of_groups(tmp_path, tmp_path / "none") == []
    assert memory_of_machine() > 0
