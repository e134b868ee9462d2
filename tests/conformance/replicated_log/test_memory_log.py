"""The log in memory does what a replicated log must, and what its faults are for."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from legato.errors import ConfigError, FencedError, LogDamagedError, LogError, LogFormatError, LogUnavailableError
from legato.replication import chained_log, patience
from legato.replication.engine import Message
from legato.replication.envelopes import group_key, seal
from legato.replication.log import BEGINNING, ReplicatedLog
from legato.replication.memory import MemoryEngine, MemoryServers
from tests.conformance.replicated_log.log import ARRIVAL_S, LogTests, claim, data_of, read_all, take
from tests.support.log_history import Entry, Workers, check

pytestmark = pytest.mark.usefixtures("fast_checks")


@pytest.fixture
def servers() -> MemoryServers:
    return MemoryServers()


@pytest.fixture
def new_log(servers: MemoryServers) -> Callable[[], ReplicatedLog]:
    return lambda: servers.log("orders")


class TestMemoryLog(LogTests):
    pass


def test_an_append_whose_answer_was_lost_is_stored_once(servers: MemoryServers) -> None:
    writer = claim(servers.log("orders"))
    servers.lose_answers(1)
    appended = writer.append(b"one")
    assert appended.position.sequence == 2
    assert data_of(read_all(servers.log("orders"))) == [b"epoch", b"one"]


def test_an_append_that_was_lost_is_repeated(servers: MemoryServers) -> None:
    writer = claim(servers.log("orders"))
    servers.lose_requests(3)
    writer.append(b"one")
    assert data_of(read_all(servers.log("orders"))) == [b"epoch", b"one"]


def test_an_append_that_nobody_answers_is_asked_for_again_within_a_lease(
    servers: MemoryServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A moved leader drops what is in flight; the primary waited for longer than its lease, and was taken over from."""
    monkeypatch.setattr("legato.replication.patience.ATTEMPT_S", 3600.0)
    writer = claim(servers.log("orders"))
    append, waits = MemoryEngine.append, iter([True])

    def drop_the_first(engine: MemoryEngine, data: bytes, after: int, timeout_s: float) -> int:
        if next(waits, False):
            threading.Event().wait(timeout_s)
            raise LogUnavailableError("the append was dropped")
        return append(engine, data, after, timeout_s)

    monkeypatch.setattr(MemoryEngine, "append", drop_the_first)
    writer.submit(b"one").result(ARRIVAL_S)
    assert data_of(read_all(servers.log("orders"))) == [b"epoch", b"one"]


def test_an_append_in_doubt_that_another_overtook_is_fenced(servers: MemoryServers) -> None:
    former = claim(servers.log("orders"))
    with servers.outage():
        in_doubt = former.submit(b"one")
        with pytest.raises(LogUnavailableError):
            servers.log("orders").last(timeout_s=0.01)
        servers.let_in(next(seal(group_key("orders"), bytes(8), b"later", former.position.digest, 1 << 20))[0])
    with pytest.raises(FencedError):
        in_doubt.result(ARRIVAL_S)
    assert data_of(read_all(servers.log("orders"))) == [b"epoch", b"later"]


def test_an_append_in_doubt_whose_record_was_altered_is_not_said_to_be_fenced(
    servers: MemoryServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be there: whoever is told that another was faster would take it for refused."""
    writer = claim(servers.log("orders"))
    append = servers.append

    def append_and_alter(data: bytes, after: int) -> int:
        try:
            return append(data, after)
        except LogUnavailableError:
            servers.alter(2)
            raise

    monkeypatch.setattr(servers, "append", append_and_alter)
    servers.lose_answers(1)
    with pytest.raises(LogDamagedError, match="record 2"):
        writer.append(b"one")


def test_a_second_append_waits_for_its_turn(servers: MemoryServers) -> None:
    writer = claim(servers.log("orders"))
    with servers.outage():
        first = writer.submit(b"one")
        with pytest.raises(LogError, match="in flight"):
            writer.append(b"two")
        with pytest.raises(LogError, match="in flight"):
            writer.submit(b"two")
    first.result(ARRIVAL_S)
    writer.append(b"two")
    assert data_of(read_all(servers.log("orders"))) == [b"epoch", b"one", b"two"]


def test_closing_a_claim_lets_go_of_an_append_that_waits(servers: MemoryServers) -> None:
    writer = claim(servers.log("orders"))
    with servers.outage():
        waiting = writer.submit(b"one")
        writer.close()
        with pytest.raises(LogUnavailableError, match="not known"):
            waiting.result(ARRIVAL_S)


def test_closing_a_log_lets_go_of_an_append_that_waits(servers: MemoryServers) -> None:
    log = servers.log("orders")
    writer = claim(log)
    with servers.outage():
        waiting = writer.submit(b"one")
        log.close()
        with pytest.raises(LogUnavailableError):
            waiting.result(ARRIVAL_S)


def test_a_missing_record_is_an_error_until_another_server_leads(servers: MemoryServers) -> None:
    log = servers.log("orders")
    writer = claim(log)
    for number in range(3):
        writer.append(b"%d" % number)
    servers.lose(3, server="a")
    following = log.follow(BEGINNING)
    with pytest.raises(LogDamagedError, match="record 3 of the log is missing") as damage:
        take(following, 4)
    assert (damage.value.sequence, damage.value.leader) == (3, "a")
    with pytest.raises(LogDamagedError):
        read_all(log)
    log.move_leader(away_from="a")
    assert len(read_all(log)) == 4
    assert len(take(log.follow(BEGINNING), 4)) == 4


def test_what_a_deposed_leader_lacks_is_not_missing(servers: MemoryServers) -> None:
    log = servers.log("orders")
    writer = claim(log)
    place = writer.append(b"one").position
    with servers.deposed(last=1):
        for look in (lambda: log.read(place, timeout_s=0.2), lambda: log.follow(place, timeout_s=0.2)):
            with pytest.raises(LogUnavailableError):
                look()
        assert data_of(log.read(BEGINNING).records) == [b"epoch"]
        with pytest.raises(LogUnavailableError):
            log.claim(b"mine", place, timeout_s=0.2)
    assert data_of(read_all(log)) == [b"epoch", b"one"]


def test_what_a_new_leader_has_not_applied_yet_is_on_the_log(servers: MemoryServers) -> None:
    """As real servers did on a busy machine: a leader ended 400 records early for some milliseconds."""
    log = servers.log("orders")
    place = claim(log).append(b"one").position
    for look in (lambda: log.read(place), lambda: log.follow(place), lambda: log.claim(b"mine", place)):
        servers.not_all_applied(last=1, answers=3)
        look()


def test_a_missing_last_record_is_seen_by_a_follower(servers: MemoryServers) -> None:
    log = servers.log("orders")
    writer = claim(log)
    writer.append(b"one")
    servers.lose(2, server="a")
    with pytest.raises(LogDamagedError, match="record 2"):
        take(log.follow(BEGINNING), 2)


def test_an_altered_record_is_an_error_until_another_server_leads(servers: MemoryServers) -> None:
    log = servers.log("orders")
    writer = claim(log)
    place = writer.append(b"one").position
    servers.alter(2, server="a")
    for look in (lambda: read_all(log), lambda: take(log.follow(BEGINNING), 2), lambda: log.read(place)):
        with pytest.raises(LogDamagedError, match="record 2 of the log is not what was written: the files of a"):
            look()
    log.move_leader(away_from="a")
    assert data_of(read_all(log)) == [b"epoch", b"one"]
    writer.append(b"two")


def test_an_append_in_doubt_whose_record_is_missing_ends_the_claim(servers: MemoryServers) -> None:
    writer = claim(servers.log("orders"))
    servers.lose_answers(1)
    servers.lose(2)
    with pytest.raises(LogDamagedError, match="record 2"):
        writer.append(b"one")
    with pytest.raises(LogDamagedError):
        writer.append(b"two")


def test_what_servers_took_from_a_fenced_writer_is_void(servers: MemoryServers) -> None:
    log, other = servers.log("orders"), servers.log("orders")
    former = claim(log)
    stale = former.position
    later = claim(other, b"later")
    servers.let_in(next(seal(group_key("orders"), bytes(8), b"stale", stale.digest, 1 << 20))[0])
    assert data_of(read_all(log)) == [b"epoch", b"later"]
    assert log.health().voided == 1
    following = other.follow(BEGINNING)
    with pytest.raises(FencedError):
        later.append(b"not behind what it did not see")
    again = other.claim(b"again", log.read(BEGINNING).end)
    again.append(b"one")
    assert data_of(read_all(other)) == data_of(take(following, 4)) == [b"epoch", b"later", b"again", b"one"]


def test_parts_that_nobody_completed_are_passed_over() -> None:
    servers = MemoryServers(message_bytes_max=1000)
    log = servers.log("orders")
    writer = claim(log)
    place = writer.position
    parts = list(seal(group_key("orders"), bytes(8), bytes(3000), place.digest, 1000))
    for part, _ in parts[:2]:
        servers.let_in(part)
    assert len(parts) > 2
    reading = log.read(BEGINNING)
    assert (data_of(reading.records), reading.end, reading.drained) == ([b"epoch"], place, True)
    following = log.follow(place)
    later = log.claim(b"later", place)
    later.append(bytes(2500))
    with pytest.raises(FencedError):
        writer.append(b"the rest")
    assert [len(data) for data in data_of(read_all(log))] == [5, 5, 2500]
    assert [len(data) for data in data_of(take(following, 2))] == [5, 2500]


def test_a_claim_passes_over_more_parts_than_can_be_read_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The primary died within a large commit: nobody could claim the log any more, as each had to read all of that."""
    servers = MemoryServers(message_bytes_max=1000)
    log, other = servers.log("orders"), servers.log("orders")
    writer = claim(log)
    *parts, _ = seal(group_key("orders"), bytes(8), bytes(100_000), writer.position.digest, 1000)
    for part, _ in parts:
        servers.let_in(part)
    now_s, reads = [0.0], [0]
    engine = other._engine
    read = engine.read

    def read_slowly(first: int, last: int, limit_bytes: int, timeout_s: float) -> Sequence[Message]:
        now_s[0] += 1.0
        reads[0] += 1
        return read(first, last, limit_bytes, timeout_s)

    monkeypatch.setattr(engine, "read", read_slowly)
    monkeypatch.setattr(chained_log, "FILL_BYTES", 10_000)
    monkeypatch.setattr(patience, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    later = other.claim(b"later", writer.position, timeout_s=2)
    later.append(b"one")
    assert 2 < reads[0] < 20
    assert data_of(read_all(log)) == [b"epoch", b"later", b"one"]


def test_a_trimmed_part_is_not_a_record() -> None:
    servers = MemoryServers(message_bytes_max=1000)
    log = servers.log("orders")
    writer = claim(log)
    large = writer.append(bytes(3000)).position
    writer.append(b"one")
    log.trim(large)
    assert data_of(read_all(log, large)) == [b"one"]


def test_records_of_another_group_are_refused(servers: MemoryServers) -> None:
    claim(servers.log("orders"))
    stranger = servers.log("payments")
    for look in (lambda: stranger.read(BEGINNING), lambda: take(stranger.follow(BEGINNING), 1)):
        with pytest.raises(LogFormatError, match="another group"):
            look()


def test_what_legato_did_not_write_is_refused(servers: MemoryServers) -> None:
    servers.let_in(b"hello")
    with pytest.raises(LogFormatError, match="did not write"):
        servers.log("orders").read(BEGINNING)


def test_records_of_a_later_format_are_refused(servers: MemoryServers) -> None:
    message = bytearray(next(seal(group_key("orders"), bytes(8), b"one", BEGINNING.digest, 1 << 20))[0])
    message[4] = 2
    servers.let_in(bytes(message))
    with pytest.raises(LogFormatError, match="format 2"):
        servers.log("orders").read(BEGINNING)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "-a", "a" * 49, "a/b", "a*", "ä"])
def test_a_name_that_servers_do_not_take_is_refused(servers: MemoryServers, name: str) -> None:
    with pytest.raises(ConfigError, match="letters, digits"):
        servers.log(name)


def test_a_follower_is_silent_while_there_is_no_quorum(servers: MemoryServers) -> None:
    log = servers.log("orders")
    writer = claim(log)
    following = log.follow(writer.position)
    with servers.outage():
        waiting = writer.submit(b"one")
        assert following.take(0.01) == []
    waiting.result(ARRIVAL_S)
    assert data_of(take(following, 1)) == [b"one"]


def test_readers_and_a_writer_at_once_agree(servers: MemoryServers) -> None:
    writer = claim(servers.log("orders"))
    seen: list[list[bytes]] = []

    def follow() -> None:
        seen.append(data_of(take(servers.log("orders").follow(BEGINNING), 201)))

    threads = [threading.Thread(target=follow) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(200):
        writer.append(b"%d" % number)
    for thread in threads:
        thread.join(ARRIVAL_S)
    assert seen == [[b"epoch", *(b"%d" % number for number in range(200))]] * 3


def test_two_brokers_that_append_the_same_record_know_whose_it_is(servers: MemoryServers) -> None:
    """As brokers do that were configured alike, or one whose claim was in doubt and that claims again."""
    one, other = servers.log("orders"), servers.log("orders")
    drained = one.read(BEGINNING).end
    servers.lose_answers(1)
    with servers.outage(), pytest.raises(LogUnavailableError):
        one.claim(b"epoch 1", drained, timeout_s=0.01)
    other.claim(b"epoch 1", drained)
    with pytest.raises(FencedError):
        one.claim(b"epoch 1", drained)


@pytest.mark.parametrize("seed", range(2))
def test_claimants_and_followers_agree_whatever_happens(seed: int) -> None:
    """What `make log-chaos` does with real servers."""
    servers = MemoryServers(message_bytes_max=100_000)
    chance = random.Random(seed)
    workers = Workers(lambda: servers.log("orders"), seed)
    workers.start(claimants=3, followers=2)
    until_s = time.monotonic() + 3.0
    while time.monotonic() < until_s or servers.bounds().last < 20:
        time.sleep(chance.uniform(0, 0.15))
        last = servers.bounds().last
        match chance.choices(range(5), (10, 10, 10, 1, 1))[0]:
            case 0:
                with servers.outage():
                    time.sleep(chance.uniform(0, 0.05))
            case 1:
                servers.lose_answers(chance.randint(1, 3))
            case 2:
                servers.lose_requests(chance.randint(1, 3))
            case 3 if last:
                servers.lose(chance.randint(1, last), server="a")
            case 4 if last:
                servers.alter(chance.randint(1, last), server="a")
            case _:
                pass
    history = workers.stop()
    log = servers.log("orders")
    log.move_leader(away_from="a")
    records = read_all(log)
    assert records
    assert check(history, records) == []


def test_followers_come_to_the_end_of_a_log_that_ends_with_a_part_of_a_record(servers: MemoryServers) -> None:
    """A claimant that left while it appended a large one, and nobody claimed behind it: they waited for minutes."""
    workers = Workers(lambda: servers.log("orders"), 0)
    former = servers.log("orders").claim(Entry(1, "former", 0).encode(), BEGINNING)
    *parts, _ = seal(group_key("orders"), bytes(8), bytes(3000), former.position.digest, 1 << 10)
    for message, _digest in parts:
        servers.let_in(message)
    workers.start(claimants=0, followers=1)
    assert workers.stop().errors == []
