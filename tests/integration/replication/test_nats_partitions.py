"""A log on NATS whose network is cut: between servers, one way and both, and between brokers and servers."""

from collections.abc import Iterator

import pytest

from legato.processes.log_servers import LogServers
from legato.replication.log import BEGINNING
from legato.replication.nats import NatsSettings, open_log
from legato.testing.log_network import LogNetwork
from legato.testing.log_servers import log_servers
from tests.conformance.replicated_log.log import claim, data_of, read_all, take
from tests.integration.replication.test_nats_faults import leader_of, wait_until_all_are_current

WAIT_S = 90.0


@pytest.fixture(scope="module")
def parted() -> Iterator[tuple[LogServers, LogNetwork]]:
    with log_servers(start=False) as servers, LogNetwork(servers) as network:
        servers.start()
        yield servers, network


def test_an_append_whose_answer_the_network_lost_is_stored_once(parted: tuple[LogServers, LogNetwork]) -> None:
    servers, network = parted
    log, other = open_log(NatsSettings(network.url, "answers")), open_log(NatsSettings(servers.url, "answers"))
    writer = claim(log)
    following = other.follow(BEGINNING)
    assert len(take(following, 1)) == 1
    network.silence_to_clients()
    waiting = writer.submit(b"one")
    assert data_of(take(following, 1)) == [b"one"], "it is stored, and nobody told its writer"
    assert not waiting.done()
    network.cut()  # with it the answer goes that was on its way
    network.heal()
    assert waiting.result(WAIT_S).position.sequence == 2
    writer.append(b"two")
    assert data_of(read_all(other)) == [b"epoch", b"one", b"two"]
    log.close()
    other.close()


@pytest.mark.parametrize("one_way", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_leader_that_nobody_hears_is_replaced_and_nothing_is_lost(
    parted: tuple[LogServers, LogNetwork], one_way: bool
) -> None:
    servers, network = parted
    group = f"leaders{one_way:d}"
    log = open_log(NatsSettings(servers.url, group))
    writer = claim(log)
    wait_until_all_are_current(log)
    writer.append(b"before")
    former = leader_of(log)
    others = [server.name for server in servers.servers if server.name != former]
    if one_way:
        network.silence(former, others)
    else:
        network.separate(former, others)
    waiting = writer.submit(b"meanwhile")
    # A broker that is connected to the former leader hears of no other: it has to reach one of the majority.
    majority = open_log(NatsSettings(",".join(url_of(servers, name) for name in others), group), timeout_s=WAIT_S)
    reading = majority.read(BEGINNING, timeout_s=WAIT_S)
    assert leader_of(majority) in others
    assert data_of(reading.records) in ([b"epoch", b"before"], [b"epoch", b"before", b"meanwhile"])
    network.heal()
    waiting.result(WAIT_S)
    assert data_of(read_all(majority)) == [b"epoch", b"before", b"meanwhile"]
    wait_until_all_are_current(majority)
    log.close()
    majority.close()


def test_a_server_that_is_cut_off_from_the_others_is_left_for_one_of_them(
    parted: tuple[LogServers, LogNetwork],
) -> None:
    """It answers pings, and nothing else; whoever was connected to it waited until it was back."""
    servers, network = parted
    log = open_log(NatsSettings(servers.url, "left"))
    writer = claim(log)
    wait_until_all_are_current(log)
    client = log._engine._connection._client  # type: ignore[attr-defined]
    mine = next(each.name for each in servers.servers if url_of(servers, each.name) == client.connected_url.geturl())
    network.separate(mine, [each.name for each in servers.servers if each.name != mine])
    try:
        assert writer.submit(b"one").result(WAIT_S).position.sequence == 2
        assert data_of(log.read(BEGINNING, timeout_s=WAIT_S).records) == [b"epoch", b"one"]
    finally:
        network.heal()
    wait_until_all_are_current(log)
    log.close()


def test_without_a_majority_nothing_is_acknowledged(parted: tuple[LogServers, LogNetwork]) -> None:
    servers, network = parted
    log = open_log(NatsSettings(servers.url, "minority"))
    writer = claim(log)
    wait_until_all_are_current(log)
    names = [server.name for server in servers.servers]
    for name in names:
        network.separate(name, [other for other in names if other != name])
    waiting = writer.submit(b"one")
    with pytest.raises(TimeoutError):
        waiting.result(1.0)
    network.heal()
    waiting.result(WAIT_S)
    assert data_of(read_all(log)) == [b"epoch", b"one"]
    log.close()


def url_of(servers: LogServers, name: str) -> str:
    return f"nats://127.0.0.1:{servers[name].ports.client}"
