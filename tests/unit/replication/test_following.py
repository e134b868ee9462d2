"""Records of a log as they come."""

from collections.abc import Sequence

import pytest

from legato.replication import chained_following
from legato.replication.engine import Message
from legato.replication.log import BEGINNING, Position, Record
from legato.replication.memory import MemoryServers, MemoryWatch

RECORDS = 400
RECORD_BYTES = 1_000


@pytest.mark.parametrize("silent", [True, False])
def test_who_is_far_behind_reads_no_more_than_it_can_hold(silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a log, which may be larger than the memory, was read before anything was applied."""
    servers = MemoryServers()
    log = servers.log("g")
    claim = log.claim(b"epoch", BEGINNING)
    for number in range(RECORDS):
        claim.append(number.to_bytes(4) * (RECORD_BYTES // 4))
    take = MemoryWatch.take

    def lossy(watch: MemoryWatch, timeout_s: float) -> Sequence[Message]:
        """Nothing comes, or only the last, as where a connection was lost."""
        came = take(watch, 0)
        return [] if silent else came[-1:]

    monkeypatch.setattr(MemoryWatch, "take", lossy)
    monkeypatch.setattr(chained_following, "FILL_BYTES", 20 * RECORD_BYTES)
    following = log.follow(BEGINNING, silence_s=0.0)
    taken: list[Record] = []
    most = 0
    while len(taken) <= RECORDS:
        taken += following.take(60.0, 5 * RECORD_BYTES)
        most = max(most, len(following._ready))
    assert most <= 2 * 20
    assert [record.position.sequence for record in taken] == list(range(1, RECORDS + 2))
    assert taken[-1].position == following.end != Position(0, b"")
    following.close()
