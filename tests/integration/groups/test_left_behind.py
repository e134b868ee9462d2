"""What a move leaves behind at the former group is not taken for the address."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kombu import Connection as KombuConnection
from typer.testing import CliRunner

import legato.kombu  # noqa: F401  the transport is known by it
from legato.cli.main import app
from legato.client import AcknowledgeMode, Queue, Topic
from legato.errors import InvalidDestinationError
from tests.integration.groups.conftest import Connect, Groups
from tests.integration.groups.test_links import taken
from tests.integration.groups.test_moving_addresses import move, reload

WAIT_S = 60.0
OWNER = "moved is an address of the group 'rest'"


@pytest.fixture
def moved(groups: Groups, connect: Connect) -> Groups:
    """Groups of which `orders` has a message in the queue `moved` and `rest` two: the queue was moved between."""
    with connect(groups.url("orders")).create_session() as session:
        session.create_producer(Queue("moved")).send("stranded")
    move(groups, "moved")
    reload(groups, "rest")
    with connect(groups.url("rest")).create_session() as session:
        for body in ("one", "two"):
            session.create_producer(Queue("moved")).send(body)
    return groups


def legato_(*arguments: str, code: int = 0) -> str:
    """What a command prints, errors and notes too."""
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == code, result.output
    return " ".join(f"{result.output} {result.exception or ''}".split())


def depth(groups: Groups, group: str) -> int:
    rows = json.loads(CliRunner().invoke(app, ["queues", "moved", "--json", "--url", groups.url(group)]).stdout)
    return sum(row["depth"] for row in rows)


def test_kombu_counts_purges_and_deletes_the_queue_that_is_in_use(moved: Groups) -> None:
    """It counted and purged what was left behind: `celery purge` said 1, and B's messages stayed."""
    with KombuConnection(moved.url("orders").replace("amqp://", "legato://")) as connection:
        channel = connection.channel()
        assert channel.queue_declare("moved", passive=True).message_count == 2
        assert channel.queue_purge("moved") == 2
        assert (depth(moved, "orders"), depth(moved, "rest")) == (1, 0)
        channel.basic_publish(channel.prepare_message("three"), routing_key="moved")
        assert channel.queue_delete("moved") == 1
        assert channel.queue_purge("moved") == 0
        assert depth(moved, "orders") == 1


@pytest.mark.parametrize("command", ["purge", "delete", "pause", "resume", "move"])
def test_commands_change_what_was_left_behind_only_if_its_group_is_named(moved: Groups, command: str) -> None:
    """They did without a word: `queue moved is paused`, while the other group delivered."""
    more = {"purge": ["--yes"], "delete": ["--yes"], "move": ["orders.other", "--yes"]}.get(command, [])
    said = legato_("queue", command, "moved", *more, "--url", moved.url("orders"), code=1)
    assert f"{OWNER}: give the URL the option vhost=rest to ask there." in said
    assert "What the group 'orders' has of it was left behind by a move." in said
    assert "To change that, give the URL the option vhost=orders." in said
    assert (depth(moved, "orders"), depth(moved, "rest")) == (1, 2)
    said = legato_("queue", command, "moved", *more, "--url", moved.url("orders", "?vhost=orders"))
    assert "was left behind by a move" in said
    assert (depth(moved, "orders"), depth(moved, "rest")) == (int(command in ("pause", "resume")), 2)
    more = ["rest.other" if each == "orders.other" else each for each in more]
    assert OWNER not in legato_("queue", command, "moved", *more, "--url", moved.url("orders", "?vhost=rest"))


def test_a_queue_is_shown_as_what_was_left_behind(moved: Groups) -> None:
    result = CliRunner().invoke(app, ["queue", "show", "moved", "--json", "--url", moved.url("orders")])
    assert json.loads(result.stdout)["depth"] == 1
    assert OWNER in result.stderr
    result = CliRunner().invoke(app, ["queue", "show", "moved", "--json", "--url", moved.url("rest")])
    assert (json.loads(result.stdout)["depth"], result.stderr) == (2, "")


def test_an_export_has_the_messages_of_the_group_that_was_asked(moved: Groups, tmp_path: Path) -> None:
    """It counted what was left behind, and wrote the messages of the other group."""
    file = tmp_path / "moved.jsonl"
    for options in ("", "?vhost=orders"):
        said = legato_("queue", "export", "moved", str(file), "--url", moved.url("orders", options), code=1)
        assert OWNER in said
        assert "pin it back to 'orders' for that" in said
        assert not file.exists()
    legato_("queue", "export", "moved", str(file), "--url", moved.url("orders", "?vhost=rest"))
    assert [json.loads(line)["body"] for line in file.read_text().splitlines()[-2:]] == ["one", "two"]
    # As the sentence says.
    moved.write_map({"moved": "orders"})
    for name in ("orders", "rest"):
        reload(moved, name)
    legato_("queue", "export", "moved", str(file), "--overwrite", "--url", moved.url("orders"))
    assert "stranded" in file.read_text()


def die(groups: Groups, connect: Connect, group: str, body: str) -> None:
    """Have a message of the queue `moved` become a dead letter."""
    session = connect(groups.url(group)).create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL)
    session.create_producer(Queue("moved")).send(body)
    consumer = session.create_consumer(Queue("moved"))
    while (message := consumer.receive(timeout_s=WAIT_S)) is not None:
        if message.get_body(str) == body:
            session.reject(message, f"{body} is wrong")
            break
    session.close()


def test_dead_letters_of_two_groups_are_not_mixed(groups: Groups, connect: Connect) -> None:
    """Rows came from the one, and letters from the other."""
    die(groups, connect, "orders", "stranded")
    move(groups, "moved")
    reload(groups, "rest")
    die(groups, connect, "rest", "live")
    here = groups.url("orders")
    told = "DLQ.moved is an address of the group 'rest': give the URL the option vhost=rest"
    for command in (["list", "moved"], ["reissue", "moved", "--all"], ["mute", "moved", "--all", "--reason", "x"]):
        assert told in legato_("dlq", *command, "--url", here, code=1)
    result = CliRunner().invoke(app, ["dlq", "list", "--json", "--url", here])
    assert (result.exit_code, json.loads(result.stdout)) == (0, [])
    assert "It is not listed here." in " ".join(result.stderr.split())
    assert "live is wrong" in legato_("dlq", "list", "moved", "--url", groups.url("orders", "?vhost=rest"))
    assert "reissued 1 dead letter" in legato_("dlq", "reissue", "moved", "--all", "--url", groups.url("rest"))
    assert taken(connect(groups.url("rest")), "moved") == ["live"]


def test_an_old_subscription_is_ended_at_its_group(groups: Groups, connect: Connect) -> None:
    """As the page says."""
    with connect(groups.url("orders", "?client_id=ann")).create_session() as session:
        session.create_durable_consumer(Topic("moved"), "prices").close()
    move(groups, "moved")
    reload(groups, "rest")
    name = "subscription://ann/prices"
    for command in (["delete", "--yes"], ["purge", "--yes"], ["pause"], ["resume"]):
        said = legato_("subscription", command[0], name, *command[1:], "--url", groups.url("orders"), code=1)
        assert "vhost=orders" in said
    legato_("subscription", "delete", name, "--yes", "--url", groups.url("orders", "?vhost=orders"))
    assert OWNER in legato_("topic", "delete", "moved", "--yes", "--url", groups.url("orders"), code=1)
    legato_("topic", "delete", "moved", "--yes", "--url", groups.url("rest", "?vhost=orders"))


def test_unsubscribe_ends_the_subscription_that_the_session_has_had_last(groups: Groups, connect: Connect) -> None:
    """It ended what was left behind, and the other one went on collecting."""
    session = connect(groups.url("orders", "?client_id=ann")).create_session()
    session.create_durable_consumer(Topic("moved"), "prices").close()
    move(groups, "moved")
    reload(groups, "rest")
    session.create_durable_consumer(Topic("moved"), "prices").close()
    session.unsubscribe("prices")
    assert "prices" in legato_("subscriptions", "--url", groups.url("orders"))
    assert "prices" not in legato_("subscriptions", "--url", groups.url("rest"))
    session.unsubscribe("prices")
    assert "prices" not in legato_("subscriptions", "--url", groups.url("orders"))
    with pytest.raises(InvalidDestinationError):
        session.unsubscribe("prices")
