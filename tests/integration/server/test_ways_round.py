"""Ways round a permission, or into what belongs to another user: each was tried, and leads nowhere."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.amqp import names
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, encode_message
from legato.amqp.engine.events import Detached
from legato.amqp.engine.outcomes import ACCEPTED, Rejected
from legato.amqp.engine.terminus import Terminus
from tests.integration.server.test_logins import add
from tests.integration.server.test_management import Manager
from tests.support.amqp_peer import AmqpPeer, Refused, data_of, text
from tests.support.server import Server, server

ROLES = """
[[role]]
name = "everybody"
members = ["*"]
allow = [
  { on = "public.#", may = ["send", "receive", "browse", "create", "bulk"] },
  { on = "temp-queue://#", may = ["send", "receive", "create"] },
]
management = "view"

[[role]]
name = "payroll"
members = ["ann"]
allow = [{ on = "salaries.#", may = ["send", "receive", "browse", "create", "bulk"] }]

[[role]]
name = "root"
members = ["root"]
allow = [{ on = "#", may = ["bulk", "delete"] }]
"""
Login = Callable[..., AmqpPeer]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Server]:
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    for name in ("ann", "bob", "root"):
        add(store / "users", name, "x")
    (tmp_path / "legato.toml").write_text(ROLES)
    with server(store, "--config", str(tmp_path / "legato.toml")) as process:
        yield process


@pytest.fixture
def login(running: Server) -> Iterator[Login]:
    peers: list[AmqpPeer] = []

    def connect(user: str, container: str = "shop") -> AmqpPeer:
        peers.append(AmqpPeer(running.port, user=user, password="x", container=container))
        return peers[-1]

    yield connect
    for peer in peers:
        peer.drop()


# -- subscriptions that are shared by all


def subscribe(peer: AmqpPeer, topic: str, name: str) -> object:
    """Attach a consumer of a durable subscription that is shared by clients without a client id."""
    source = Terminus(
        address=topic,
        kind="source",
        durable=2,
        expiry_policy="never",
        capabilities=["topic", "shared", "global"],
    )
    link = peer.session.receiver(name, source=source)
    peer._attached(link)
    link.add_credit(10)
    peer.flush()
    return link


def waiting_for_all(ann: AmqpPeer) -> None:
    """A message waits in ann's subscription `all`, which is shared by all, of a topic that is not for bob."""
    link = subscribe(ann, "salaries.raised", "all|global")
    link.detach()  # type: ignore[attr-defined]
    ann.flush()
    ann.expect(Detached)
    assert ann.send(ann.sender("topic://salaries.raised"), text(b"kept")) == ACCEPTED


def see_that_it_waits(ann: AmqpPeer) -> None:
    subscribe(ann, "salaries.raised", "all|global")
    assert data_of(ann.transfer()) == b"kept"


def test_a_subscription_shared_by_all_is_not_replaced_by_who_may_not_receive_from_it(login: Login) -> None:
    """Another topic under the same name replaces a subscription, with what waits in it (Jakarta Messaging 4.2)."""
    ann, bob = login("ann"), login("bob")
    waiting_for_all(ann)
    with pytest.raises(Refused, match="lacks a permission: receive"):
        subscribe(bob, "public.news", "all|global")
    see_that_it_waits(ann)


def test_a_subscription_shared_by_all_is_not_ended_by_who_may_not_receive_from_it(login: Login) -> None:
    ann, bob = login("ann"), login("bob")
    waiting_for_all(ann)
    link = bob.session.receiver("all|global", source=Terminus(kind="none"))
    with pytest.raises(Refused, match="lacks a permission: receive"):
        bob._attached(link)
    see_that_it_waits(ann)


def test_who_may_not_receive_from_a_subscription_is_not_told_what_a_stream_selects_of_it(login: Login) -> None:
    """The permission was looked at behind the stream, whose refusal names its selector."""
    ann, bob = Manager(login("ann")), login("bob")
    opened: dict[str, Any] = {"subscription": "read", "address": "salaries.raised", "topic": True}
    assert ann.ask("open", "", "assignment", **opened, selector="raise > 900")[0] == 200
    with pytest.raises(Refused, match="lacks a permission: receive") as refused:
        subscribe(bob, "public.news", "read|global")
    assert "900" not in str(refused.value)


def test_an_assignment_does_not_replace_a_subscription_that_its_user_may_not_read(login: Login) -> None:
    ann, bob = login("ann"), Manager(login("bob"))
    waiting_for_all(ann)
    for address, topic in (("public.x", True), ("topic://public.x", False)):
        status, said = bob.ask("OPEN", type="assignment", subscription="all", address=address, topic=topic)
        assert status == 403
        assert "bulk on 'topic://salaries.raised'" in said
    see_that_it_waits(ann)


def test_an_assignment_of_another_address_is_not_resumed(login: Login) -> None:
    """Of an assignment to a topic the name says only which subscription it is of."""
    ann, bob = Manager(login("ann")), Manager(login("bob"))
    asked: dict[str, Any] = {"type": "assignment", "subscription": "etl", "topic": True}
    assert ann.ask("OPEN", **asked, address="salaries.raised")[0] == 200
    assert bob.ask("RESUME", **asked, address="public.x")[0] == 403
    assert ann.ask("RESUME", **asked, address="salaries.raised")[0] == 200


def test_what_an_assignment_still_has_is_not_read_under_another_address(login: Login) -> None:
    """Its topic was deleted, and so nothing says any more whose messages it took."""
    peer = login("ann")
    ann, bob, root = Manager(peer), Manager(login("bob")), Manager(login("root"))
    asked: dict[str, Any] = {"type": "assignment", "subscription": "etl", "topic": True, "renew": True}
    opened = ann.ask("OPEN", **asked, address="salaries.raised")[1]
    peer.send(peer.sender("topic://salaries.raised"), text(b"secret"))
    assert ann.ask("ASSIGN", opened["name"], type="assignment", fence=opened["fence"])[1]["last"] == 1
    assert root.ask("DELETE", "salaries.raised", type="topic")[0] == 200
    for operation in ("OPEN", "RESUME"):
        assert bob.ask(operation, **asked, address="public.x")[0] == 403
    assert root.ask("OPEN", **asked, address="public.x")[0] == 200


# -- temporary destinations


def test_nobody_cuts_off_who_made_a_temporary_queue(login: Login) -> None:
    """Asking for its name took the link from its maker, before it was seen whose the name is."""
    ann, bob = login("ann"), login("bob")
    link = ann.session.receiver("t", source=Terminus(kind="source", dynamic=True))
    ann._attached(link)
    address = link.remote_source.address
    again = bob.session.receiver(
        "t", source=Terminus(kind="source", dynamic=True), properties={names.TEMPORARY_NAME: address}
    )
    with pytest.raises(Refused, match="another client"):
        bob._attached(again)
    link.add_credit(1)
    ann.flush()
    assert bob.send(bob.sender(address), text(b"answer")) == ACCEPTED
    assert data_of(ann.transfer()) == b"answer"


def test_a_temporary_name_that_is_asked_for_is_a_matter_of_permission(running: Server, tmp_path: Path) -> None:
    """A pattern of temporary destinations holds for the name that a client gives, too."""
    (tmp_path / "legato.toml").write_text(ROLES.replace("temp-queue://#", "temp-queue://new"))
    running.signal(signal.SIGHUP)
    running.wait_for_log("were read again")
    peer = AmqpPeer(running.port, user="bob", password="x")
    link = peer.session.receiver(
        "t", source=Terminus(kind="source", dynamic=True), properties={names.TEMPORARY_NAME: "temp-queue://mine"}
    )
    with pytest.raises(Refused, match="create on 'temp-queue://mine'"):
        peer._attached(link)
    peer.drop()


# -- names


@pytest.mark.parametrize(
    "address", ["queue://topic://public.x", "topic://queue://public.x", "queue://queue://public.x"]
)
def test_an_address_has_one_prefix(login: Login, running: Server, address: str) -> None:
    """A queue called `topic://x` has the record of the topic `x` in the store: each took the other's place there."""
    ann = login("ann")
    ann.sender("topic://public.x")
    with pytest.raises(Refused, match="no name for a queue or topic"):
        ann.sender(address)
    assert {row["name"] for row in Manager(ann).ask("QUERY", match="public.x", type="topic")[1]["results"]} == {
        "public.x"
    }


def test_a_denial_does_not_tell_whether_there_is_a_topic_of_that_name(login: Login) -> None:
    ann, bob = login("ann"), login("bob")
    ann.sender("topic://salaries.topic")
    ann.sender("salaries.queue")
    said = set()
    for name in ("topic", "queue", "nothing"):
        with pytest.raises(Refused) as refused:
            bob.sender(f"salaries.{name}")
        said.add(str(refused.value).replace(name, "NAME"))
    assert len(said) == 1


def test_a_container_id_that_begins_like_another_users_is_its_own(login: Login) -> None:
    """`ann/shop`, typed by bob, is `bob/ann/shop`."""
    ann = login("ann")
    source = Terminus(address="topic://public.x", kind="source", durable=2, expiry_policy="never")
    link = ann.session.receiver("mine", source=source)
    ann._attached(link)
    ann.close()
    for container in ("ann/shop", "ann%2Fshop", "../ann/shop", "shop"):
        bob = login("bob", container)
        lookup = bob.session.receiver("mine", source=Terminus(kind="none"))
        with pytest.raises(Refused, match="There is no durable subscription"):
            bob._attached(lookup)
        bob.close()


# -- backups


def test_nobody_else_is_taken_for_a_backup(login: Login) -> None:
    """Who listens to heartbeats may say where a backup listens: a switchover to nobody would end the service."""
    bob = login("bob")
    bob.receiver(names.HEARTBEAT_ADDRESS, 1, properties={names.UNRECORDED: "elsewhere.example:5672"})
    assert Manager(bob).ask("READ", type="broker")[1]["failover"]["backups"] == []


# -- whose message it is


def signed(user: bytes | None, body: bytes = b"x", message_id: str = "m") -> bytes:
    return encode_message(
        header=Header(durable=True), properties=Properties(message_id=message_id, user_id=user), body=DataBody(body)
    )


@pytest.mark.parametrize("size", [10, 300_000, 2_000_000], ids=["small", "of many frames", "large"])
@pytest.mark.parametrize("relay", [False, True], ids=["to its target", "over the relay"])
def test_no_message_of_any_size_says_that_it_is_another_users(login: Login, size: int, relay: bool) -> None:
    bob = login("bob")
    link = bob.sender(None if relay else "public.q")

    def message(user: bytes | None) -> bytes:
        properties = Properties(message_id="m", user_id=user, to="public.q" if relay else None)
        return encode_message(header=Header(durable=True), properties=properties, body=DataBody(b"x" * size))

    for _ in range(2):
        assert bob.send(link, message(None)) == ACCEPTED
        assert bob.send(link, message(b"bob")) == ACCEPTED
        for other in (b"ann", b"", b"bob\0", b"BOB"):
            refused = bob.send(link, message(other))
            assert isinstance(refused, Rejected)
            assert refused.condition == "amqp:unauthorized-access"


# -- reloads


LOST = {
    "empty": ("", "is empty"),
    "cut off before the roles": ("[store]\nlog_facts = true\n", "has no [[role]] any more"),
}
"""What is left of a configuration, and what is said about that."""


@pytest.mark.parametrize(("left", "said"), LOST.values(), ids=LOST)
def test_a_configuration_that_lost_its_roles_does_not_let_everybody_do_everything(
    login: Login, running: Server, tmp_path: Path, left: str, said: str
) -> None:
    """An editor empties a file before it writes it; without any role whoever is let in may do everything."""
    (tmp_path / "legato.toml").write_text(left)
    running.signal(signal.SIGHUP)
    running.wait_for_log(said)
    with pytest.raises(Refused, match="lacks a permission"):
        login("bob").sender("salaries.q")


@pytest.mark.parametrize(("left", "said"), LOST.values(), ids=LOST)
def test_a_backup_that_reads_a_configuration_without_roles_keeps_those_that_it_had(
    running: Server, tmp_path: Path, left: str, said: str
) -> None:
    with server(running.store, "--config", str(tmp_path / "legato.toml")) as backup:
        backup.wait_for_log("heartbeats of epoch")
        (tmp_path / "legato.toml").write_text(left)
        backup.signal(signal.SIGHUP)
        backup.wait_for_log(said)
        running.kill()
        backup.wait_for_role("active")
        bob = AmqpPeer(backup.port, user="bob", password="x")
        with pytest.raises(Refused, match="lacks a permission"):
            bob.sender("salaries.q")
        bob.drop()


def test_what_was_taken_from_a_role_is_not_given_back_by_a_takeover(running: Server, tmp_path: Path) -> None:
    """Only the primary was told to read its configuration again."""
    with server(running.store, "--config", str(tmp_path / "legato.toml")) as backup:
        backup.wait_for_log("heartbeats of epoch")
        (tmp_path / "legato.toml").write_text(ROLES.replace('members = ["ann"]', "members = []"))
        running.signal(signal.SIGHUP)
        running.wait_for_log("were read again")
        running.kill()
        backup.wait_for_role("active")
        ann = AmqpPeer(backup.port, user="ann", password="x")
        with pytest.raises(Refused, match="lacks a permission"):
            ann.sender("salaries.q")
        ann.drop()
