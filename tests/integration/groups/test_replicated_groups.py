"""Two groups, each with brokers on two machines and a log of its own, on the same three servers of the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.client import ConnectionFactory, TextMessage
from legato.processes.log_servers import LogServers
from legato.testing.log_servers import log_servers
from tests.support.replicated import Group, eventually

COUNT = 20


@pytest.fixture(scope="module")
def servers() -> Iterator[LogServers]:
    with log_servers() as running:
        yield running


@pytest.fixture
def groups(servers: LogServers, tmp_path: Path) -> Iterator[dict[str, Group]]:
    """`orders` and `rest`, of two brokers each; each group's addresses are pinned to it."""
    found: dict[str, Group] = {}
    lines = ["revision = 1"]
    for name in ("orders", "rest"):
        (home := tmp_path / name).mkdir()
        found[name] = group = Group(servers, home)
        group.name = name  # the brokers of a group share one log
        config = home / "legato.toml"
        # Nobody is to take over from the primary of `rest`, however busy the machine is.
        lease_s = 0.5 if name == "orders" else 10
        groups_of = f'[groups]\nname = "{name}"\nmap = "{tmp_path / "groups.toml"}"\n'
        config.write_text(f"{groups_of}[replication]\nlease_s = {lease_s}\n")
        for broker in ("one", "two"):
            group.add(broker, config=config)
        addresses = ", ".join(f'"127.0.0.1:{broker.port}"' for broker in group.brokers.values())
        lines += ["[[group]]", f'name = "{name}"', f"brokers = [{addresses}]"]
        lines += ["[[pin]]", f'match = "{name}.#"', f'group = "{name}"']
    (tmp_path / "groups.toml").write_text("\n".join(lines) + "\n")
    yield found
    for group in found.values():
        group.kill_all()


def test_a_group_fails_over_alone_and_clients_of_either_reach_both(groups: dict[str, Group]) -> None:
    for group in groups.values():
        for broker, role in (("one", "active"), ("two", "backup")):
            group.brokers[broker].start().wait_for_role(role)
    url = groups["rest"].url  # of one group: a link does not follow its connection to a broker of another
    sent: dict[str, list[str]] = {"orders.in": [], "rest.in": []}
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        producers = {name: session.create_producer(session.create_queue(name)) for name in sent}
        for number in range(COUNT):
            if number == COUNT // 2:
                groups["orders"].brokers["one"].kill()
            for name, producer in producers.items():
                producer.send(session.create_text_message(f"{name} {number}"))
                sent[name].append(f"{name} {number}")
        connection.start()
        for name, texts in sent.items():
            consumer = session.create_consumer(session.create_queue(name))
            received: list[str | None] = []
            while len(received) < len(texts) and (message := consumer.receive(60.0)) is not None:
                assert isinstance(message, TextMessage)
                received.append(message.text)
            assert received == texts
    assert groups["orders"].brokers["two"].role == "active epoch=2"
    assert groups["rest"].brokers["one"].role == "active epoch=1"
    eventually(lambda: groups["rest"].brokers["two"].role == "backup", "the other group took no notice")
