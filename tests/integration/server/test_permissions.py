"""Permissions at a real broker: at attaches, at the relay, by management, and when they change."""

from __future__ import annotations

import signal
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.amqp import names
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, encode_message
from legato.amqp.codec.types import Symbol
from legato.amqp.engine.events import Detached
from legato.amqp.engine.outcomes import ACCEPTED, Accepted, Rejected, Transactional
from legato.amqp.engine.terminus import Terminus
from legato.client import (
    ConnectionFactory,
    JMSSecurityError,
    Queue,
    TextMessage,
    Topic,
    TransactionRolledBackError,
)
from tests.integration.server.test_logins import add
from tests.integration.server.test_management import Manager
from tests.integration.server.wire import attach, attach_sender
from tests.support.amqp_peer import WAIT_S, AmqpPeer, Refused, text
from tests.support.server import Server, server

ROLES = """
[[role]]
name = "billing"
members = ["ann"]
allow = [
  { on = "orders.#", may = ["send", "create"] },
  { on = "invoices.#", may = ["receive", "browse"] },
  { on = "topic://prices.#", may = ["receive"] },
  { on = "temp-queue://#", may = ["send", "receive", "create"] },
]

[[role]]
name = "operators"
members = ["op1"]
allow = [{ on = "#", may = ["browse"] }, { on = "orders.#", may = ["send"] }]
management = "operate"

[[role]]
name = "watchers"
members = ["eve"]
management = "view"

[[role]]
name = "all"
members = ["root"]
allow = [{ on = "#", may = ["send", "receive", "browse", "create", "delete", "bulk"] }]
management = "administer"
"""
USERS = ("ann", "op1", "eve", "root", "nobody")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Server]:
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    for name in USERS:
        add(store / "users", name, "x")
    (tmp_path / "legato.toml").write_text(ROLES)
    with server(store, "--config", str(tmp_path / "legato.toml")) as process:
        peer = AmqpPeer(process.port, user="root", password="x", container="setup")
        manager = Manager(peer)
        for queue in ("orders.new", "invoices.eu", "salaries"):
            assert manager.ask("CREATE", queue)[0] == 200
        assert manager.ask("CREATE", "prices.fish", type="topic")[0] == 200
        peer.send(peer.sender("salaries"), text(b"secret"))
        peer.close()
        yield process


@pytest.fixture
def login(running: Server) -> Iterator[Callable[[str], AmqpPeer]]:
    peers: list[AmqpPeer] = []

    def connect(user: str) -> AmqpPeer:
        peers.append(AmqpPeer(running.port, user=user, password="x", container=f"{user}-{len(peers)}"))
        return peers[-1]

    yield connect
    for peer in peers:
        peer.drop()


DENIED = "amqp:unauthorized-access: The user 'ann', with the roles billing, lacks a permission: "


def test_a_sender_may_send_where_its_role_says_and_nowhere_else(login: Callable[[str], AmqpPeer]) -> None:
    ann = login("ann")
    assert ann.send(ann.sender("orders.new"), text(b"x")) == ACCEPTED
    assert ann.send(ann.sender("orders.made.now"), text(b"x")) == ACCEPTED
    for address in ("salaries", "queue://salaries", "topic://orders.new.x", "not.there", "invoices.eu"):
        if address.startswith("topic://orders"):
            ann.sender(address)
            continue
        with pytest.raises(Refused, match=f"{DENIED}send on "):
            ann.sender(address)


def test_receiving_and_browsing_are_permissions_of_their_own(login: Callable[[str], AmqpPeer]) -> None:
    ann, op1 = login("ann"), login("op1")
    ann.receiver("invoices.eu", 1)
    ann.receiver("invoices.eu", 1, mode="copy")
    ann.receiver("topic://prices.fish", 1)
    with pytest.raises(Refused, match=r"receive on 'orders\.new'"):
        ann.receiver("orders.new", 1)
    with pytest.raises(Refused, match=r"create on 'invoices\.new'"):
        ann.receiver("invoices.new", 1)
    with pytest.raises(Refused, match="browse on 'salaries'"):
        ann.receiver("salaries", 1, mode="copy")
    with pytest.raises(Refused, match="receive on 'salaries'"):
        op1.receiver("salaries", 1)
    op1.receiver("salaries", 1, mode="copy")
    assert op1.transfer().data.endswith(b"secret")


def test_a_user_without_a_role_may_do_nothing(login: Callable[[str], AmqpPeer]) -> None:
    nobody = login("nobody")
    for attaches in (lambda: nobody.sender("orders.new"), lambda: nobody.receiver("invoices.eu", 1)):
        with pytest.raises(Refused, match="'nobody', with no role, lacks a permission"):
            attaches()
    for address in (names.STATUS_ADDRESS, names.HEARTBEAT_ADDRESS):
        with pytest.raises(Refused, match="management = 'view'"):
            nobody.receiver(address, 1)


def to(address: str) -> bytes:
    return encode_message(header=Header(durable=True), properties=Properties(to=address), body=DataBody(b"x"))


def test_each_message_of_the_relay_is_looked_at(login: Callable[[str], AmqpPeer]) -> None:
    ann = login("ann")
    relay = ann.sender(None)
    for _ in range(2):
        assert isinstance(ann.send(relay, to("orders.new")), Accepted)
        refused = ann.send(relay, to("salaries"))
        assert isinstance(refused, Rejected)
        assert refused.condition == "amqp:unauthorized-access"
        assert "send on 'salaries'" in refused.description


def test_a_transaction_with_a_message_that_is_denied_cannot_commit(login: Callable[[str], AmqpPeer]) -> None:
    ann = login("ann")
    relay, coordinator = ann.sender(None), ann.coordinator()
    txn_id = ann.declare(coordinator)
    outcome = ann.send(relay, to("salaries"), txn_id=txn_id)
    assert isinstance(outcome, Transactional)
    assert isinstance(outcome.outcome, Rejected)
    assert not isinstance(ann.discharge(coordinator, txn_id), Accepted)


def test_temporary_queues_can_be_made_and_answered_to_by_who_may(login: Callable[[str], AmqpPeer]) -> None:
    ann, eve = login("ann"), login("eve")
    link = ann.session.receiver("t", source=Terminus(kind="source", dynamic=True))
    ann._attached(link)
    address = link.remote_source.address
    assert address
    assert ann.send(ann.sender(address), text(b"x")) == ACCEPTED
    with pytest.raises(Refused, match="send on 'temp-queue://"):
        eve.sender(address)
    made = eve.session.receiver("t", source=Terminus(kind="source", dynamic=True))
    with pytest.raises(Refused, match="create on 'temp-queue://"):
        eve._attached(made)


def test_another_clients_temporary_queue_is_not_browsed_without_the_right_to(login: Callable[[str], AmqpPeer]) -> None:
    """With the capability of a topic the right to receive was asked for, which users of temporary queues have."""
    root, ann = login("root"), login("ann")
    made = root.session.receiver("t", source=Terminus(kind="source", dynamic=True))
    root._attached(made)
    for capability in ("topic", "queue"):
        source = Terminus(
            kind="source",
            address=made.remote_source.address,
            distribution_mode="copy",
            capabilities=[Symbol(capability)],
        )
        link = ann.session.receiver(f"browse as {capability}", source=source)
        with pytest.raises(Refused, match="browse on 'temp-queue://"):
            ann._attached(link)


ADMINISTERS = ("root",)
OPERATES = ("op1", "root")
VIEWS = ("eve", "op1", "root")


@pytest.mark.parametrize(
    ("allowed", "operation", "name", "arguments"),
    [
        (VIEWS, "READ", "salaries", {}),
        (VIEWS, "READ", "", {"type": "broker"}),
        (VIEWS, "QUERY", "", {}),
        (VIEWS, "QUERY", "", {"type": "stage"}),
        (OPERATES, "PAUSE", "salaries", {}),
        (OPERATES, "RESUME", "salaries", {}),
        (OPERATES, "CREATE", "another", {}),
        (OPERATES, "FORGET", "a-sink", {"type": "stage"}),
        (OPERATES, "MOVE", "salaries", {"to": "orders.new", "limit": 1}),
        (("root",), "MOVE", "orders.new", {"to": "salaries", "limit": 1}),
        (("ann", *OPERATES), "CREATE", "orders.more", {}),
        (OPERATES, "PURGE", "orders.new", {}),
        (OPERATES, "DELETE", "orders.new", {}),
        (ADMINISTERS, "RELOAD", "", {"type": "broker"}),
        (ADMINISTERS, "SWITCHOVER", "", {"type": "broker"}),
        (ADMINISTERS, "COPY", "", {"type": "store", "holder": "00" * 32}),
        (ADMINISTERS, "COPY", "", {"type": "group", "holder": "00" * 32}),
        (ADMINISTERS, "UPDATE", "", {"type": "broker"}),
        # What belongs to no type is not to be had by another one, which everybody may ask for.
        (USERS, "read", "", {"type": "group"}),
        (ADMINISTERS, "RELOAD", "", {"type": "group"}),
        (ADMINISTERS, "SWITCHOVER", "", {"type": "group"}),
        (ADMINISTERS, "UPDATE", "", {"type": "group"}),
        (OPERATES, "PURGE", "salaries", {"type": "group"}),
        (ADMINISTERS, "TICKET", "salaries", {"type": "assignment"}),
        (ADMINISTERS, "OPEN", "", {"type": "assignment", "subscription": "s", "address": "salaries"}),
        (ADMINISTERS, "PUBLISH", "sink", {"type": "stage", "batch": 0, "stages": ""}),
        (ADMINISTERS, "TICKET", "sink", {"type": "stage", "batch": 0, "stage": "a"}),
    ],
)
def test_management_is_for_those_who_may(
    login: Callable[[str], AmqpPeer], allowed: tuple[str, ...], operation: str, name: str, arguments: dict[str, Any]
) -> None:
    denied = {user for user in USERS if Manager(login(user)).ask(operation, name, **arguments)[0] == 403}
    assert denied == set(USERS) - set(allowed)


def test_an_answer_goes_nowhere_that_its_asker_may_not_send_to(
    login: Callable[[str], AmqpPeer], running: Server
) -> None:
    """The broker is no deputy: a request with `reply-to` would have it write to any queue."""
    eve, root = login("eve"), login("root")
    link = eve.sender(names.MANAGEMENT_ADDRESS)
    request = encode_message(
        header=Header(),
        properties=Properties(message_id="1", reply_to="invoices.eu"),
        application_properties={"operation": "QUERY"},
        body=DataBody(b""),
    )
    eve.send(link, request)
    running.wait_for_log("cannot be sent")
    assert Manager(root).ask("READ", "invoices.eu")[1]["depth"] == 0


def test_what_a_reload_takes_away_is_closed_and_the_rest_goes_on(
    login: Callable[[str], AmqpPeer], running: Server, tmp_path: Path
) -> None:
    ann = login("ann")
    orders = ann.sender("orders.new")
    invoices = ann.receiver("invoices.eu", 1)
    settings = tmp_path / "legato.toml"
    settings.write_text(ROLES.replace('  { on = "invoices.#", may = ["receive", "browse"] },\n', ""))
    running.signal(signal.SIGHUP)
    detached = ann.expect(Detached)
    assert detached.link is invoices
    assert detached.condition == "amqp:unauthorized-access"
    assert ann.send(orders, text(b"x")) == ACCEPTED


def test_a_reload_leaves_temporary_destinations_to_who_made_them(
    login: Callable[[str], AmqpPeer], running: Server, tmp_path: Path
) -> None:
    """Who may create them makes and uses them; a reload that changed nothing asked for `receive` and `send` too."""
    settings = tmp_path / "legato.toml"
    all_three = '{ on = "temp-queue://#", may = ["send", "receive", "create"] },'
    creates = '{ on = "temp-queue://#", may = ["create"] }, { on = "temp-topic://#", may = ["create"] },'
    settings.write_text(ROLES.replace(all_three, creates))
    running.signal(signal.SIGHUP)
    running.wait_for_log("were read again")
    ann = login("ann")
    made = [
        attach(ann, Terminus(kind="source", dynamic=True)),
        attach_sender(ann, Terminus(kind="target", dynamic=True)),
        attach(ann, Terminus(kind="source", dynamic=True, capabilities=["temporary-topic"])),
    ]
    invoices = ann.receiver("invoices.eu", 1)
    settings.write_text(settings.read_text().replace('{ on = "invoices.#", may = ["receive", "browse"] },', ""))
    running.signal(signal.SIGHUP)
    assert ann.expect(Detached).link is invoices
    settings.write_text(settings.read_text().replace(creates, ""))
    running.signal(signal.SIGHUP)
    assert {ann.expect(Detached).link for _ in made} == set(made)


def test_roles_with_a_mistake_change_nothing(login: Callable[[str], AmqpPeer], running: Server, tmp_path: Path) -> None:
    root = login("root")
    (tmp_path / "legato.toml").write_text(ROLES.replace('"operate"', '"operat"'))
    status, _ = Manager(root).ask("RELOAD", type="broker")
    assert status == 400
    ann = login("ann")
    assert ann.send(ann.sender("orders.new"), text(b"x")) == ACCEPTED
    with pytest.raises(Refused):
        ann.sender("salaries")


def test_a_backup_may_listen_to_heartbeats_and_do_nothing_else(running: Server) -> None:
    """Also where the peer chooses both ends of the link: a link to send on has a source too."""
    from legato.ha.lock import StoreLock

    holder = StoreLock(running.store).holder()
    assert holder is not None
    assert stat.S_IMODE((running.store / "lock").stat().st_mode) == 0o600
    backup = AmqpPeer(running.port, user="$backup", password=holder.token)
    backup.receiver(names.HEARTBEAT_ADDRESS, 1)
    source = Terminus(address=names.HEARTBEAT_ADDRESS, kind="source")
    for target in ("orders.new", names.MANAGEMENT_ADDRESS):
        link = backup.session.sender(f"to {target}", source=source, target=Terminus(address=target, kind="target"))
        with pytest.raises(Refused, match="nothing else"):
            backup._attached(link)


def test_the_client_raises_a_security_error_that_names_the_permission(running: Server) -> None:
    with ConnectionFactory(f"amqp://ann:x@127.0.0.1:{running.port}").create_connection() as connection:
        connection.start()
        session = connection.create_session()
        with pytest.raises(JMSSecurityError, match="send on 'salaries'"):
            session.create_producer(Queue("salaries")).send(session.create_text_message("x"))
        with pytest.raises(JMSSecurityError, match="receive on 'salaries'"):
            session.create_consumer(Queue("salaries"))
        with pytest.raises(JMSSecurityError, match="receive on 'topic://news'"):
            session.create_consumer(Topic("news"))
        with pytest.raises(JMSSecurityError, match="send on 'salaries'"):
            session.create_producer(None).send(session.create_text_message("x"), destination=Queue("salaries"))


def test_a_transaction_does_not_commit_without_what_it_received_over_a_link_that_was_taken_away(
    running: Server, tmp_path: Path
) -> None:
    """CONTRACT A3; it committed what it had sent, and what it had received came to the next one again."""
    with (
        ConnectionFactory(f"amqp://ann:x@127.0.0.1:{running.port}").create_connection() as ann,
        ConnectionFactory(f"amqp://root:x@127.0.0.1:{running.port}").create_connection() as root,
    ):
        root.start()
        ann.start()
        others = root.create_session()
        others.create_producer(Queue("invoices.eu")).send(TextMessage("invoice"))
        session = ann.create_session(transacted=True)
        consumer = session.create_consumer(Queue("invoices.eu"))
        closed = threading.Event()
        ann.exception_listener = lambda error: closed.set()
        received = consumer.receive(timeout_s=WAIT_S)
        assert received is not None
        producer = session.create_producer(Queue("orders.new"))
        producer.send(TextMessage("order"))
        (tmp_path / "legato.toml").write_text(ROLES.replace('{ on = "invoices.#", may = ["receive", "browse"] },', ""))
        running.signal(signal.SIGHUP)
        assert closed.wait(WAIT_S)
        with pytest.raises(TransactionRolledBackError, match="lacks a permission: receive"):
            session.commit()
        again = others.create_consumer(Queue("invoices.eu")).receive(timeout_s=WAIT_S)
        assert again is not None
        assert (again.body, again.redelivered) == ("invoice", True)
        orders = others.create_consumer(Queue("orders.new"))
        assert orders.receive(timeout_s=0.5) is None
        producer.send(TextMessage("another"))
        session.commit()
        order = orders.receive(timeout_s=WAIT_S)
        assert order is not None
        assert order.body == "another"
