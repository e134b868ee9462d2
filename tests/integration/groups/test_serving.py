"""A broker of a group: whom it serves, whom it sends on, and by which map."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from legato.amqp.engine.events import Attached, Closed, Detached
from legato.amqp.engine.terminus import Terminus
from legato.cli.main import app
from legato.client import AcknowledgeMode, ConnectionFactory, Queue, aio
from legato.client.calls import other_groups
from legato.client.links.redirection import RedirectedLinkError
from legato.client.management import request, rows
from tests.integration.groups.conftest import Connect, Groups
from tests.support.amqp_peer import AmqpPeer
from tests.support.replicated import eventually
from tests.support.server import Server, free_port, server

WAIT_S = 60.0


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    return f"{result.output}{result.exception or ''}"


def test_an_open_for_another_group_is_redirected(calm_groups: Groups) -> None:
    peer = AmqpPeer(calm_groups.ports["orders"], container="jms", hostname="rest")
    closed = peer.expect(Closed)
    assert closed.condition == "amqp:connection:redirect"
    assert closed.description == f"The group 'rest' is served by 127.0.0.1:{calm_groups.ports['rest']}."
    # What Qpid JMS reads (AMQP 2.8.16).
    assert closed.info["hostname"] == "rest"
    assert closed.info["network-host"] == "127.0.0.1"
    assert closed.info["port"] == calm_groups.ports["rest"]
    # It takes texts for these: with a symbol for the scheme it did not follow.
    assert (closed.info["scheme"], type(closed.info["scheme"])) == ("amqp", str)
    assert type(closed.info["network-host"]) is str
    assert peer.opened.properties["amqp:connection-establishment-failed"] is True
    peer.drop()


@pytest.mark.parametrize("hostname", [None, "", "127.0.0.1", "orders", "ORDERS", "nobody"])
def test_an_open_for_this_group_or_no_group_is_served(calm_groups: Groups, hostname: str | None) -> None:
    peer = AmqpPeer(calm_groups.ports["orders"], container="jms", hostname=hostname)
    assert peer.receiver("orders.open", 1) is not None
    peer.drop()


def test_an_attach_to_an_address_of_another_group_says_where_it_is(calm_groups: Groups) -> None:
    peer = AmqpPeer(calm_groups.ports["orders"], container="raw")
    peer.session.receiver("link", source=_source("queue://rest.attached"))
    peer.expect(Attached)
    detached = peer.expect(Detached)
    assert detached.condition == "amqp:link:redirect"
    assert detached.info["address"] == "rest.attached"
    assert detached.info["hostname"] == "rest"
    assert detached.info["network-host"] == "127.0.0.1"
    assert detached.info["port"] == calm_groups.ports["rest"]
    peer.drop()


def _source(address: str) -> Terminus:
    return Terminus(address=address)


def test_our_client_follows_the_name_of_a_group(calm_groups: Groups, connect: Connect) -> None:
    connection = connect(calm_groups.url("orders", "?vhost=rest"))
    assert connection.host == f"127.0.0.1:{calm_groups.ports['rest']}"


def test_dead_letters_are_where_their_queue_is(calm_groups: Groups, connect: Connect) -> None:
    peer = AmqpPeer(calm_groups.ports["orders"], container="letters")
    peer.session.receiver("link", source=_source("DLQ.rest.letters"))
    assert peer.expect(Detached).info["hostname"] == "rest"
    assert peer.receiver("DLQ.orders.letters", 1) is not None
    peer.drop()


def test_management_tells_where_a_queue_is(calm_groups: Groups) -> None:
    assert "another" not in run("queue", "create", "orders.made", "--url", calm_groups.url("orders"))
    assert "is an address of the group 'rest'" in run(
        "queue", "create", "rest.made", "--url", calm_groups.url("orders")
    )


@pytest.mark.parametrize(
    "words",
    [
        ("queue", "show", "NAME"),
        ("queue", "purge", "NAME", "--yes"),
        ("topic", "show", "NAME"),
        ("dlq", "list", "NAME"),
    ],
)
def test_what_another_group_has_is_not_said_to_be_missing(calm_groups: Groups, words: tuple[str, ...]) -> None:
    """It was `There is no queue 'rest.like'. Did you mean orders.like?`, of which the messages were purged then."""
    run("queue", "create", "orders.like", "--url", calm_groups.url("orders"))
    said = run(*("rest.like" if word == "NAME" else word for word in words), "--url", calm_groups.url("orders"))
    assert "rest.like is an address of the group 'rest': give the URL the option vhost=rest to ask there." in said
    assert "Did you mean" not in said


def test_a_queue_of_another_group_is_browsed_if_there_is_one(calm_groups: Groups) -> None:
    url = calm_groups.url("orders")
    run("send", "rest.browsed", "first", "--url", url)
    assert run("browse", "rest.browsed", "--url", url) == "first\n"
    assert "There is no queue 'rest.brwsed'. Did you mean rest.browsed?" in run("browse", "rest.brwsed", "--url", url)
    assert "rest.brwsed" not in run("queues", "--url", calm_groups.url("rest"))


def test_muted_dead_letters_stay_in_the_group_of_their_queue(calm_groups: Groups, connect: Connect) -> None:
    """Where the hash gave `MUTED.DLQ.NAME` to another group, they could not be muted."""
    url = calm_groups.url("rest")
    names = [f"rest.muted{number}" for number in range(4)]
    assert len({calm_groups.group_of(f"MUTED.DLQ.{name}") for name in names}) == 2
    session = connect(url).create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL)
    for name in names:
        session.create_producer(Queue(name)).send("bad")
        message = session.create_consumer(Queue(name)).receive(timeout_s=WAIT_S)
        assert message is not None
        session.reject(message, "of no use")
        eventually(lambda name=name: name in run("dlq", "list", "--url", url), "there is no dead letter")  # type: ignore[misc]
        assert run("dlq", "mute", name, "--all", "--reason", "test", "--url", url) == "muted 1 dead letter\n"
        assert run("dlq", "unmute", name, "--all", "--url", url) == "unmuted 1 dead letter\n"


def test_the_status_names_the_group(calm_groups: Groups) -> None:
    said = run("status", "--url", calm_groups.url("orders"))
    assert "group orders, 1 of 2; revision 1 of the map" in said


def test_asyncio_follows_too(calm_groups: Groups) -> None:
    async def work() -> list[object]:
        bodies: list[object] = []
        async with await aio.ConnectionFactory(calm_groups.url("orders")).create_connection() as connection:
            connection.start()
            session = connection.create_session()
            for name in ("rest.asyncio", "orders.asyncio"):
                producer = await session.create_producer(Queue(name))
                await producer.send(name)
                consumer = await session.create_consumer(Queue(name))
                message = await consumer.receive(timeout_s=WAIT_S)
                bodies.append(None if message is None else message.body)
        return bodies

    assert asyncio.run(work()) == ["rest.asyncio", "orders.asyncio"]


def test_a_moved_address_is_served_where_the_new_map_says(groups: Groups, connect: Connect) -> None:
    connection = connect(groups.url("orders"))
    session = connection.create_session()
    session.create_producer(Queue("orders.moved")).send("before")
    groups.write_map({"orders.#": "orders", "rest.#": "rest", "orders.moved": "rest"})
    for name in groups.ports:
        assert "has read" in run("reload", "--url", groups.url(name))
    # What waits is told of, and where it would be consumed.
    status = json.loads(run("status", "--url", groups.url("orders"), "--json"))
    assert status["group"] == {
        "name": "orders",
        "revision": 2,
        "groups": 2,
        "stranded": {"orders.moved": "rest"},
        "all_looked_at": True,
        "trouble": "",
    }
    none_shown = request(groups.url("orders"), "read", "broker", count=0)
    assert none_shown["group"]["stranded"] == {}
    assert not none_shown["group"]["all_looked_at"]
    assert "pin it here" in run("status", "--url", groups.url("orders"))
    with connect(groups.url("orders")).create_session() as other:
        other.create_producer(Queue("orders.moved")).send("after")
        assert other.create_consumer(Queue("orders.moved")).receive_body(str, timeout_s=WAIT_S) == "after"
    # Pinned back it is here again, with what waited.
    groups.write_map({"orders.#": "orders", "rest.#": "rest"})
    for name in groups.ports:
        run("reload", "--url", groups.url(name))
    assert session.create_consumer(Queue("orders.moved")).receive_body(str, timeout_s=WAIT_S) == "before"


def test_a_map_that_is_not_the_next_one_is_refused(groups: Groups) -> None:
    url = groups.url("orders")
    groups.write_map({"rest.#": "orders"}, revision=1)
    assert "has changed, and its revision is still 1" in run("reload", "--url", url)
    groups.write_map({}, revision=5)
    assert "has read" in run("reload", "--url", url)
    groups.write_map({}, revision=4)
    assert "has revision 4, and there is a later one, 5:" in run("reload", "--url", url)
    groups.map_file.write_text("revision = ")
    assert "is not TOML" in run("reload", "--url", url)
    groups.map_file.unlink()
    assert "cannot be read: No such file" in run("reload", "--url", url)
    # Nothing has changed for anybody.
    assert "revision 5 of the map" in run("status", "--url", url)


@pytest.mark.parametrize(
    ("configuration", "sentence"),
    [
        ('name = "orders"\n', "needs both groups.name and groups.map"),
        ('name = "orders"\nmap = "/no/such/file"\n', "/no/such/file cannot be read"),
        ('name = "other"\nmap = "{map}"\n', "groups.name is 'other', and the map of groups has no such group"),
    ],
)
def test_a_broker_that_is_in_no_group_of_the_map_does_not_start(
    tmp_path: Path, configuration: str, sentence: str
) -> None:
    made = Groups(tmp_path)
    file = tmp_path / "wrong.toml"
    file.write_text("[groups]\n" + configuration.replace("{map}", str(made.map_file)))
    broker = Server(tmp_path / "store", "--config", str(file))
    broker.start()
    assert broker.role == "ended"
    assert sentence in broker.log.read_text()


def test_a_backup_takes_over_though_the_map_cannot_be_read_any_more(tmp_path: Path, connect: Connect) -> None:
    made = Groups(tmp_path)
    ports = {"primary": made.ports["orders"], "backup": free_port()}
    text = made.map_file.read_text().replace(
        f'"127.0.0.1:{ports["primary"]}"]', f'"127.0.0.1:{ports["primary"]}", "127.0.0.1:{ports["backup"]}"]'
    )
    made.map_file.write_text(text)
    with ExitStack() as stack:
        flags = ("--config", str(made.configuration("orders")))
        primary = stack.enter_context(server(tmp_path / "orders", *flags, port=ports["primary"]))
        backup = stack.enter_context(server(tmp_path / "orders", *flags, port=ports["backup"]))
        rest = ("--config", str(made.configuration("rest")))
        stack.enter_context(server(tmp_path / "rest", *rest, port=made.ports["rest"]))
        # Through the other group: the first of the two hosts that a redirect names does not always serve.
        session = connect(made.url("rest")).create_session()
        producer = session.create_producer(Queue("orders.taken.over"))
        producer.send("one")
        made.map_file.unlink()
        primary.kill()
        backup.wait_for_role("active")
        backup.wait_for_log("the map of groups stays as it was")
        # The connection below fails over like any other.
        producer.send("two")
        later = connect(made.url("rest")).create_session()
        consumer = later.create_consumer(Queue("orders.taken.over"))
        assert [consumer.receive_body(str, timeout_s=WAIT_S) for _ in range(2)] == ["one", "two"]
        later.close()  # the brokers end before the connections do: acknowledgements have to be confirmed by then
        by_name = connect(made.url("rest", "?vhost=orders"))
        assert by_name.host == f"127.0.0.1:{ports['backup']}"


def test_brokers_with_different_maps_send_nobody_to_and_fro(
    groups: Groups, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_groups, "MAPS_DIFFER_S", 0.5)
    session = connect(groups.url("orders")).create_session()
    groups.write_map({"torn": "rest"})
    run("reload", "--url", groups.url("orders"))
    groups.write_map({"torn": "orders"})
    run("reload", "--url", groups.url("rest"))
    with pytest.raises(RedirectedLinkError, match="'torn' is an address of the group 'orders'"):
        session.create_producer(Queue("torn"))


def test_a_login_is_for_each_group_by_itself(tmp_path: Path, connect: Connect) -> None:
    with ExitStack() as stack:
        made = Groups(tmp_path)
        for name, port in made.ports.items():
            users = f'[auth]\nusers = {{ ann = "{name}-secret" }}\n'
            file = made.configuration(name, users)
            os.chmod(file, 0o600)
            stack.enter_context(server(tmp_path / name, "--config", str(file), port=port))
        url = f"amqp://ann:orders-secret@127.0.0.1:{made.ports['orders']}"
        connection = ConnectionFactory(url).create_connection()
        with connection, pytest.raises(Exception, match="refused the login"):
            # It logs in there as anywhere, and the group may have other users.
            connection.create_session().create_producer(Queue("rest.secret"))


def test_an_import_whose_progress_is_kept_by_another_group_is_refused_before_it_begins(
    calm_groups: Groups, tmp_path: Path
) -> None:
    """A transaction works with one group: it failed at its first message, with a sentence about sessions."""
    file = tmp_path / "orders.jsonl"
    file.write_text('{"body": "tea"}\n')
    kept_by = calm_groups.group_of("legato.imports")
    there = calm_groups.unpinned(kept_by)
    elsewhere = calm_groups.unpinned("rest" if kept_by == "orders" else "orders")
    for url in (calm_groups.url("orders"), calm_groups.url("rest")):
        for more in ((), ("--dry-run",)):
            said = run("queue", "import", elsewhere, file, "--url", url, *more)
            assert "Nothing was imported. Pin legato.imports to " in said
            assert f"or import into a queue of {kept_by}." in said
    assert f"imported 1 message to {there}" in run("queue", "import", there, file, "--url", calm_groups.url(kept_by))
    names = [row["name"] for group in ("orders", "rest") for row in rows(calm_groups.url(group), "queue")]
    assert elsewhere not in names
