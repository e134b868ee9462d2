"""What every replicated log must do. A log's own test module inherits `LogTests` and gives it a fixture `new_log`."""

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from legato.clock import elapsed_s
from legato.errors import FencedError, LogDivergedError, LogError, LogTrimmedError, LogUnavailableError
from legato.replication.log import BEGINNING, Claim, Following, LogHealth, Position, Reading, Record, ReplicatedLog

ARRIVAL_S = 60.0
"""A record is there long before; a log that loses it fails the test then."""


def read_all(log: ReplicatedLog, after: Position = BEGINNING) -> list[Record]:
    """All records behind a position."""
    records: list[Record] = []
    reading = Reading((), after, False)
    while not reading.drained:
        reading = log.read(reading.end)
        records.extend(reading.records)
    return records


def take(following: Following, count: int) -> list[Record]:
    """So many records as they come."""
    records: list[Record] = []
    until_s = time.monotonic() + ARRIVAL_S
    while len(records) < count and time.monotonic() < until_s:
        records.extend(following.take(1.0))
    return records


def data_of(records: Sequence[Record]) -> list[bytes]:
    """What is in them."""
    return [record.data for record in records]


def claim(log: ReplicatedLog, record: bytes = b"epoch") -> Claim:
    """A claim behind everything."""
    return log.claim(record, log.read(BEGINNING, limit_bytes=1 << 30).end)


def health_when(log: ReplicatedLog, holds: Callable[[LogHealth], bool]) -> LogHealth:
    """The state of a log once something holds: servers that are busy answer late, and are asked again."""
    until_s = time.monotonic() + ARRIVAL_S
    while not holds(health := log.health()):
        assert time.monotonic() < until_s, health
    return health


def is_proved(health: LogHealth) -> bool:
    """Whether each server said that it writes to disk before it acknowledges."""
    return health.sync_proved


class LogTests:
    """The promises of `ReplicatedLog`. `new_log()` is one more broker's object for the same empty log."""

    def test_a_new_log_is_empty(self, new_log: Callable[[], ReplicatedLog]) -> None:
        log = new_log()
        assert log.last() == 0
        assert log.read(BEGINNING) == Reading([], BEGINNING, True)

    def test_records_are_read_in_order_by_all(self, new_log: Callable[[], ReplicatedLog]) -> None:
        writer = claim(new_log())
        appended = [writer.append(b"one"), writer.append(b""), writer.append(b"three")]
        records = read_all(new_log())
        assert data_of(records) == [b"epoch", b"one", b"", b"three"]
        assert [record.position for record in records] == [writer.began.position, *(one.position for one in appended)]
        assert writer.position == records[-1].position

    def test_a_reader_goes_on_where_it_was(self, new_log: Callable[[], ReplicatedLog]) -> None:
        writer = claim(new_log())
        place = writer.append(b"one").position
        writer.append(b"two")
        assert data_of(read_all(new_log(), place)) == [b"two"]

    def test_a_reading_stops_at_its_limit_and_says_that_there_is_more(
        self, new_log: Callable[[], ReplicatedLog]
    ) -> None:
        log = new_log()
        writer = claim(log, bytes(1000))
        for number in range(5):
            writer.append(bytes([number]) * 1000)
        first = log.read(BEGINNING, limit_bytes=2500)
        assert 1 <= len(first.records) < 6
        assert not first.drained
        assert first.end == first.records[-1].position
        assert len(read_all(log, first.end)) == 6 - len(first.records)

    def test_a_claim_behind_which_there_is_something_is_refused(self, new_log: Callable[[], ReplicatedLog]) -> None:
        log, other = new_log(), new_log()
        drained = other.read(BEGINNING)
        claim(log).append(b"one")
        with pytest.raises(FencedError):
            other.claim(b"mine", drained.end)
        assert data_of(read_all(other)) == [b"epoch", b"one"]

    def test_whoever_was_claimed_from_appends_no_more(self, new_log: Callable[[], ReplicatedLog]) -> None:
        former, other = claim(new_log()), new_log()
        former.append(b"one")
        later = claim(other, b"later")
        with pytest.raises(FencedError):
            former.append(b"two")
        with pytest.raises(FencedError):
            former.append(b"three")
        later.append(b"four")
        assert data_of(read_all(other)) == [b"epoch", b"one", b"later", b"four"]

    def test_a_log_is_claimed_again_by_the_same_broker(self, new_log: Callable[[], ReplicatedLog]) -> None:
        log = new_log()
        first = claim(log)
        again = claim(log, b"again")
        with pytest.raises(FencedError):
            first.append(b"late")
        again.append(b"one")
        assert data_of(read_all(log)) == [b"epoch", b"again", b"one"]

    def test_of_many_that_claim_at_once_one_wins(self, new_log: Callable[[], ReplicatedLog]) -> None:
        logs = [new_log() for _ in range(4)]
        drained = [log.read(BEGINNING).end for log in logs]
        start = threading.Barrier(len(logs))
        won: list[bytes] = []
        lost: list[bytes] = []

        def contend(number: int) -> None:
            mine = b"epoch %d" % number
            start.wait()
            try:
                logs[number].claim(mine, drained[number])
                won.append(mine)
            except FencedError:
                lost.append(mine)

        threads = [threading.Thread(target=contend, args=(number,)) for number in range(len(logs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert len(lost) == 3
        assert data_of(read_all(logs[0])) == won

    def test_an_append_is_submitted_and_waited_for_later(self, new_log: Callable[[], ReplicatedLog]) -> None:
        log = new_log()
        writer = claim(log)
        before_s = elapsed_s()
        appended = writer.submit(b"one").result()
        assert before_s <= appended.sent_s <= elapsed_s()
        assert writer.held_s == appended.sent_s
        assert appended.position == writer.position
        assert data_of(read_all(log)) == [b"epoch", b"one"]

    def test_a_closed_claim_appends_nothing(self, new_log: Callable[[], ReplicatedLog]) -> None:
        log = new_log()
        writer = claim(log)
        writer.close()
        with pytest.raises(LogUnavailableError):
            writer.append(b"late")
        with pytest.raises(LogUnavailableError):
            writer.submit(b"later").result()
        assert data_of(read_all(log)) == [b"epoch"]

    def test_a_follower_gets_what_is_there_and_what_comes(self, new_log: Callable[[], ReplicatedLog]) -> None:
        writer = claim(new_log())
        writer.append(b"one")
        following = new_log().follow(BEGINNING)
        assert data_of(take(following, 2)) == [b"epoch", b"one"]
        for number in range(20):
            writer.append(b"%d" % number)
        records = take(following, 20)
        assert data_of(records) == [b"%d" % number for number in range(20)]
        assert following.end == records[-1].position == writer.position
        assert following.take(0.0) == []
        following.close()

    def test_a_follower_goes_on_where_another_was(self, new_log: Callable[[], ReplicatedLog]) -> None:
        writer = claim(new_log())
        for number in range(5):
            writer.append(b"%d" % number)
        first = new_log().follow(BEGINNING)
        while first.end.sequence < 3:
            first.take(1.0, limit_bytes=1)
        first.close()
        rest = take(new_log().follow(first.end), 3)
        assert data_of(rest) == [b"2", b"3", b"4"]

    def test_a_follower_that_is_closed_lets_go_of_who_waits(self, new_log: Callable[[], ReplicatedLog]) -> None:
        following = new_log().follow(BEGINNING)
        taken: list[Sequence[Record]] = []
        waiting = threading.Thread(target=lambda: taken.append(following.take(ARRIVAL_S)))
        waiting.start()
        following.close()
        waiting.join(ARRIVAL_S)
        assert [list(records) for records in taken] == [[]]

    def test_a_large_record_is_one_record(self, new_log: Callable[[], ReplicatedLog]) -> None:
        log = new_log()
        following = new_log().follow(BEGINNING)
        writer = claim(log)
        large = bytes(range(256)) * (3 << 12) + b"end"
        appended = writer.append(large)
        writer.append(b"small")
        records = read_all(new_log())
        assert [len(record.data) for record in records] == [5, len(large), 5]
        assert records[1] == Record(appended.position, large)
        assert take(following, 3) == records
        assert data_of(read_all(log, appended.position)) == [b"small"]

    def test_a_position_of_another_log_is_refused(self, new_log: Callable[[], ReplicatedLog]) -> None:
        log = new_log()
        position = claim(log).append(b"one").position
        elsewhere = Position(position.sequence, bytes(16))
        with pytest.raises(LogDivergedError, match="record 2"):
            log.read(elsewhere)
        with pytest.raises(LogDivergedError):
            log.follow(elsewhere)
        with pytest.raises(LogDivergedError):
            log.claim(b"mine", elsewhere)

    def test_a_position_ahead_of_the_log_is_refused(self, new_log: Callable[[], ReplicatedLog]) -> None:
        log = new_log()
        position = claim(log).position
        with pytest.raises(LogDivergedError):
            log.read(Position(position.sequence + 5, position.digest))

    def test_what_is_trimmed_is_no_longer_read(self, new_log: Callable[[], ReplicatedLog]) -> None:
        log = new_log()
        writer = claim(log)
        one = writer.append(b"one").position
        two = writer.append(b"two").position
        writer.append(b"three")
        log.trim(two)
        log.trim(one)
        assert data_of(read_all(log, two)) == [b"three"]
        assert data_of(read_all(log, one)) == [b"two", b"three"]
        with pytest.raises(LogTrimmedError):
            log.read(BEGINNING)
        with pytest.raises(LogTrimmedError):
            log.follow(BEGINNING)
        with pytest.raises(LogDivergedError):
            log.read(Position(one.sequence, bytes(16)))
        assert log.health().first == two.sequence
        writer.append(b"four")
        assert data_of(read_all(log, two)) == [b"three", b"four"]

    def test_a_log_that_is_trimmed_to_its_end_goes_on(self, new_log: Callable[[], ReplicatedLog]) -> None:
        log, other = new_log(), new_log()
        writer = claim(log)
        last = writer.append(b"one").position
        log.trim(last)
        assert log.last() == last.sequence
        assert other.read(last) == Reading([], last, True)
        later = other.claim(b"later", last)
        with pytest.raises(FencedError):
            writer.append(b"two")
        later.append(b"three")
        assert data_of(read_all(log, last)) == [b"later", b"three"]

    def test_health_names_the_leader_and_the_replicas(self, new_log: Callable[[], ReplicatedLog]) -> None:
        log = new_log()
        claim(log).append(b"one")
        health = health_when(log, lambda health: health.quorum and health.sync_proved)
        assert len({replica.server for replica in health.replicas}) == 3
        assert health.leader in {replica.server for replica in health.replicas}
        assert (health.first, health.last, health.voided) == (1, 2, 0)
        assert health.kept_bytes > 0
        assert not [trouble for trouble in health.trouble if "records" not in trouble], "a new replica may lack some"

    def test_the_leader_moves_away_and_the_log_goes_on(self, new_log: Callable[[], ReplicatedLog]) -> None:
        log = new_log()
        writer = claim(log)
        former = log.health().leader
        assert former is not None
        leader = log.move_leader(former)
        assert leader != former
        assert log.move_leader(former) == leader, "it does not lead: nothing moves"
        writer.append(b"one")
        assert data_of(read_all(log)) == [b"epoch", b"one"]

    def test_a_record_of_more_than_the_maximum_is_refused(
        self, new_log: Callable[[], ReplicatedLog], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = new_log()
        writer = claim(log)
        monkeypatch.setattr("legato.replication.chained_claim.RECORD_BYTES_MAX", 10)
        with pytest.raises(LogError, match="11 bytes"):
            writer.append(bytes(11))
        writer.append(bytes(10))
        assert len(read_all(log)) == 2
