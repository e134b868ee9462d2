"""The independent reading of a log's stream, and what is said of an audit: true ones are taken for true, others not."""

from collections.abc import Callable
from typing import Any

import pytest

from legato.core.facts import MessageStored
from legato.core.records import Batch
from legato.replication.envelopes import group_key, seal
from legato.store.commit_records import Beat, encode_beat, encode_commit, encode_epoch
from tests.stress.machine_accounts import StreamCount, faults_of_audit, faults_of_stream

KEY = group_key("chaos")


def commit(epoch: int, position: int, *numbers: int) -> bytes:
    bodies = [
        b"\x00Sp\xc0\x01\x00" + b"\x00Sw\xa1" + bytes([len(text)]) + text for text in (b"1:%d" % n for n in numbers)
    ]
    facts = [MessageStored(1, number, 9, "id") for number in numbers]
    return encode_commit(Batch(epoch, 0, list(facts), bodies), position)[1]


def began(epoch: int, position: int) -> bytes:
    return encode_epoch(epoch, position, "one", 0)[1]


def messages(*records: bytes, message_bytes_max: int = 1 << 20) -> list[bytes]:
    made: list[bytes] = []
    before = bytes(16)
    for claim, record in enumerate(records):
        for message, digest in seal(KEY, claim.to_bytes(8), record, before, message_bytes_max):
            made.append(message)
            before = digest
    return made


def count(stream: list[bytes]) -> StreamCount:
    found = StreamCount()
    for message in stream:
        found.feed(message)
    return found


def faults(stream: list[bytes], confirmed: list[int], refused: list[int]) -> list[str]:
    return list(faults_of_stream(count(stream), [(1, each) for each in confirmed], [(1, each) for each in refused]))


TRUE = [began(1, 1), commit(1, 2, 1, 2), encode_beat(Beat(1, 2, 0)), began(2, 3), commit(2, 4, 3)]


@pytest.mark.parametrize("message_bytes_max", [1 << 20, 200])
def test_a_true_stream_is_taken_for_true(message_bytes_max: int) -> None:
    stream = messages(*TRUE, message_bytes_max=message_bytes_max)
    assert count(stream).stored == {(1, 1): 1, (1, 2): 1, (1, 3): 1}
    assert faults(stream, [1, 2, 3], [4]) == []


def test_what_is_lost_false_or_there_twice_is_found() -> None:
    stream = messages(*TRUE, commit(2, 5, 3))
    [lost, false, twice] = faults(stream, [1, 2, 3, 4], [2])
    assert lost == "the stream lacks 1 confirmed messages, such as [(1, 4)]"
    assert false == "the stream has 1 refused messages, such as [(1, 2)]"
    assert twice == "the stream has 1 messages twice, such as [(1, 3)]"


def test_what_a_deposed_primary_appends_is_void() -> None:
    late = messages(commit(1, 3, 9))[0]  # behind nothing, which is not where it is
    of_a_former_epoch = [*TRUE, commit(1, 5, 9), commit(2, 5, 4)]
    found = count([*messages(*of_a_former_epoch), late])
    assert (set(found.stored), found.voided) == ({(1, 1), (1, 2), (1, 3), (1, 4)}, 2)


def test_damage_and_gaps_are_told() -> None:
    damaged = messages(*TRUE)
    damaged[1] = damaged[1][:-1] + b"\xff"
    with pytest.raises(ValueError, match="damaged"):
        count(damaged)
    with pytest.raises(ValueError, match="commit 4 follows commit 2"):
        count(messages(began(1, 1), commit(1, 2, 1), commit(1, 4, 2)))


def lose(told: dict[str, Any]) -> None:
    told["queues"][0] |= {"consumed": 2, "lost": 1}


def leave(told: dict[str, Any]) -> None:
    told["queues"][0] |= {"consumed": 2, "waiting": 1}


def offend(told: dict[str, Any]) -> None:
    told["checks"][0]["count"] = 1


@pytest.mark.parametrize("plant", [lose, leave, offend])
def test_what_an_audit_says_is_heard(plant: Callable[[dict[str, Any]], None]) -> None:
    queue = {"name": "q", "stored": 3, "consumed": 3, "waiting": 0, "lost": 0, "duplicated": 0}
    told = {"queues": [queue], "checks": [{"sentence": "Nothing is lost", "count": 0}]}
    assert list(faults_of_audit(told, "q", 3)) == []
    plant(told)
    assert len(list(faults_of_audit(told, "q", 3))) == 1
