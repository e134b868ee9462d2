"""The checker of drills on a replicated log finds what is planted, and takes true histories for true."""

from collections.abc import Callable

import pytest

from legato.replication.log import Position, Record
from tests.support.log_history import Entry, History, check

ENTRIES = [Entry(1, "a", 0), Entry(1, "a", 1), Entry(2, "b", 0), Entry(2, "b", 1)]


def records(entries: list[Entry]) -> list[Record]:
    return [Record(Position(number, bytes(16)), entry.encode()) for number, entry in enumerate(entries, 1)]


def history(entries: list[Entry]) -> History:
    pairs = [(number, entry.encode()) for number, entry in enumerate(entries, 1)]
    return History(acknowledged=list(pairs), followed={"follower": list(pairs)})


def test_a_true_history_is_taken_for_true() -> None:
    assert check(history(ENTRIES), records(ENTRIES)) == []


def lose(told: History, log: list[Record]) -> None:
    del log[3]


def swap(told: History, log: list[Record]) -> None:
    told.followed["follower"][1:3] = reversed(told.followed["follower"][1:3])


def skip(told: History, log: list[Record]) -> None:
    del told.followed["follower"][2]


def fall_behind(told: History, log: list[Record]) -> None:
    del told.followed["follower"][3]


def store_twice(told: History, log: list[Record]) -> None:
    log.append(Record(Position(5, bytes(16)), log[3].data))


def accept_a_fenced_one(told: History, log: list[Record]) -> None:
    late = Entry(1, "a", 2).encode()
    log.append(Record(Position(5, bytes(16)), late))
    told.refused.append(late)


def acknowledge_to_both(told: History, log: list[Record]) -> None:
    told.acknowledged.append((3, Entry(2, "a", 0).encode()))


def skip_an_epoch(told: History, log: list[Record]) -> None:
    log.append(Record(Position(5, bytes(16)), Entry(4, "a", 0).encode()))


def share_an_epoch(told: History, log: list[Record]) -> None:
    log.append(Record(Position(5, bytes(16)), Entry(2, "a", 2).encode()))


@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        (lose, "record 4 was acknowledged and is not there"),
        (swap, "follower took something else than record 2"),
        (skip, "follower took something else than record 3"),
        (fall_behind, "follower took 3 of 4 records"),
        (store_twice, "a record is there 2 times"),
        (accept_a_fenced_one, "a record was refused and is there"),
        (acknowledge_to_both, "record 3 was acknowledged 2 times"),
        (skip_an_epoch, "epoch 4, a, 0 follows epoch 2/1"),
        (share_an_epoch, "epoch 2, a, 2 follows epoch 2/1"),
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[History, list[Record]], None], sentence: str) -> None:
    told, log = history(ENTRIES), records(ENTRIES)
    plant(told, log)
    assert any(sentence in found for found in check(told, log))
