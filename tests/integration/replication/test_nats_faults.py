"""A log on NATS while its servers are killed, stopped, moved, wiped and damaged; `make log-chaos` takes longer."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from nats.aio.client import Client

from legato.errors import FencedError, LogDamagedError
from legato.processes.log_servers import LogServers
from legato.replication.log import BEGINNING, ReplicatedLog
from tests.conformance.replicated_log.log import claim, data_of, health_when, read_all, take
from tests.support.monitored import until

PATIENCE_S = 60.0


def leader_of(log: ReplicatedLog) -> str:
    """The name of the server that leads the log, once one does."""
    leader = health_when(log, lambda health: health.leader is not None).leader
    assert leader is not None
    return leader


def damage_told_by(log: ReplicatedLog, server: str) -> LogDamagedError:
    """The error of a reading that a server answered; an election may have another one answer."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        while leader_of(log) != server:
            log.move_leader(leader_of(log), PATIENCE_S)
        try:
            read_all(log)
        except LogDamagedError as error:
            return error
    raise AssertionError(f"{server} told of no damage")


def wait_until_all_are_current(log: ReplicatedLog) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not all(replica.current and not replica.lag for replica in log.health(PATIENCE_S).replicas):
        assert time.monotonic() < until_s
        time.sleep(0.05)


def test_a_killed_leader_delays_appends_and_loses_none(
    servers: LogServers, new_log: Callable[[], ReplicatedLog]
) -> None:
    log = new_log()
    writer = claim(log)
    following = new_log().follow(BEGINNING)
    for number in range(10):
        writer.append(b"%d" % number)
    killed = servers[leader_of(log)]
    killed.kill()
    for number in range(10, 20):
        writer.append(b"%d" % number)
    expected = [b"epoch", *(b"%d" % number for number in range(20))]
    assert data_of(read_all(log)) == expected
    assert data_of(take(following, 21)) == expected
    assert leader_of(log) != killed.name
    killed.start()
    killed.wait_until_healthy()
    wait_until_all_are_current(log)


def test_a_claim_does_not_wait_for_servers_that_are_lost(
    servers: LogServers, new_log: Callable[[], ReplicatedLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each server is asked when it writes to disk; one that is lost with the primary's machine never answers."""
    log = new_log()
    claim(log).append(b"one")
    lost = next(server for server in servers.servers if server.name != leader_of(log))
    monkeypatch.setattr("legato.replication.nats.engine.SERVERS_ANSWER_S", 3600.0)
    lost.kill()
    claiming = threading.Thread(target=lambda: claim(log).append(b"two"), daemon=True)
    claiming.start()
    claiming.join(PATIENCE_S)
    lost.start()
    lost.wait_until_healthy()
    assert not claiming.is_alive()


def test_a_leader_that_is_stopped_and_woken_acknowledges_nothing_twice(
    servers: LogServers, new_log: Callable[[], ReplicatedLog]
) -> None:
    log, other = new_log(), new_log()
    former = claim(log)
    frozen = servers[leader_of(log)]
    frozen.freeze()
    claimed = True
    try:
        in_doubt = former.submit(b"in doubt")
        reading = other.read(BEGINNING, timeout_s=PATIENCE_S)
        assert leader_of(other) != frozen.name
        try:
            other.claim(b"later", reading.end, PATIENCE_S)
        except FencedError:  # the append in doubt came before
            claimed = False
    finally:
        frozen.thaw()
    later = [b"later"] if claimed else []
    if not claimed or b"in doubt" in data_of(reading.records):
        in_doubt.result(PATIENCE_S)
        all_that_is_there = [b"epoch", b"in doubt", *later]
    else:
        with pytest.raises(FencedError):
            in_doubt.result(PATIENCE_S)
        all_that_is_there = [b"epoch", *later]
    # Who was woken answers as the leader until it hears of the other one.
    until(lambda: data_of(read_all(other)) == all_that_is_there)
    wait_until_all_are_current(log)


def test_appends_go_on_while_the_leader_is_moved(servers: LogServers, new_log: Callable[[], ReplicatedLog]) -> None:
    log, mover = new_log(), new_log()
    writer = claim(log)
    wait_until_all_are_current(log)
    stop = threading.Event()

    def move() -> None:
        while not stop.is_set():
            mover.move_leader(leader_of(mover), PATIENCE_S)
            stop.wait(0.3)

    moving = threading.Thread(target=move)
    moving.start()
    numbers = range(60)
    try:
        for number in numbers:
            writer.append(b"%d" % number)
    finally:
        stop.set()
        moving.join()
    assert data_of(read_all(log)) == [b"epoch", *(b"%d" % number for number in numbers)]


def test_a_wiped_server_gets_all_records_again_and_may_lead(
    servers: LogServers, new_log: Callable[[], ReplicatedLog]
) -> None:
    log = new_log()
    writer = claim(log)
    for number in range(50):
        writer.append(b"%d" % number)
    wiped = next(server for server in servers.servers if server.name != leader_of(log))
    wiped.kill()
    wiped.wipe()
    writer.append(b"meanwhile")
    wiped.start()
    wiped.wait_until_healthy()
    wait_until_all_are_current(log)
    while leader_of(log) != wiped.name:
        log.move_leader(leader_of(log), PATIENCE_S)
    assert len(read_all(log)) == 52
    assert len(take(log.follow(BEGINNING), 52)) == 52
    writer.append(b"afterwards")


def test_damaged_files_of_one_server_are_told_and_another_has_all(
    servers: LogServers, new_log: Callable[[], ReplicatedLog]
) -> None:
    log = new_log()
    writer = claim(log)
    count = 400
    for number in range(count):
        writer.append(b"%d" % number * 400)
    wait_until_all_are_current(log)
    damaged = next(server for server in servers.servers if server.name != leader_of(log))
    damaged.ask_to_stop()  # in order, so that it leaves nothing in its Raft log
    damaged.wait_until_ended()
    flip_bits(damaged.blocks(f"LEGATO_{log.group}")[0])
    damaged.start()
    damaged.wait_until_healthy()
    wait_until_all_are_current(log)
    error = damage_told_by(log, damaged.name)
    assert f"the files of {damaged.name} are damaged" in str(error)
    assert error.leader == damaged.name
    # Its state says that all is there.
    assert (log.health().first, log.last()) == (1, count + 1)
    log.move_leader(damaged.name, PATIENCE_S)
    expected = [b"epoch", *(b"%d" % number * 400 for number in range(count))]
    assert data_of(read_all(log)) == expected
    assert data_of(take(log.follow(BEGINNING), count + 1)) == expected
    damaged.kill()
    damaged.wipe()
    damaged.start()
    damaged.wait_until_healthy()
    wait_until_all_are_current(log)


def flip_bits(file: Path, places: int = 19) -> None:
    """Flip a bit in some places of a file, evenly."""
    data = bytearray(file.read_bytes())
    for place in range(places):
        data[(place + 1) * len(data) // (places + 1)] ^= 0x10
    file.write_bytes(data)


@pytest.mark.slow
def test_a_client_that_does_not_tell_of_its_end_is_replaced(
    servers: LogServers, new_log: Callable[[], ReplicatedLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = new_log()
    writer = claim(log)
    close = Client._close

    async def close_silently(client: Client, status: int, do_cbs: bool = True) -> None:
        """What becomes of it if its last bytes cannot be written: the error ends it before it tells."""
        await close(client, status, do_cbs=False)

    monkeypatch.setattr(Client, "_close", close_silently)
    for server in servers.servers:  # the broker is connected to one of them
        server.kill()
        writer.submit(server.name.encode()).result(PATIENCE_S)
        server.start()
        server.wait_until_healthy()
    assert data_of(read_all(log)) == [b"epoch", *(server.name.encode() for server in servers.servers)]
