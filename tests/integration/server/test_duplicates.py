"""Duplicate ids over the wire: from any client, for as long as their addresses are set to remember."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from proton import Message, symbol
from proton.reactor import AtLeastOnce
from proton.utils import BlockingConnection

from legato.amqp import names
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, encode_message
from legato.amqp.engine.outcomes import ACCEPTED, IS_DUPLICATE, Modified, Rejected, Transactional
from tests.integration.server.test_management import Manager
from tests.support.amqp_peer import AmqpPeer, data_of
from tests.support.server import Server, server

CONFIGURATION = """
[[address]]
match = "small"
duplicate_window = 2

[[address]]
match = "gone"
expiry_queue = "expired"

[[address]]
match = "off"
duplicate_window = 0

[[address]]
match = "foreign.#"
duplicate_detection = "message-id"
"""
TOLD = {names.DUPLICATE_NOTICE: True}


@pytest.fixture
def manager(peer: AmqpPeer) -> Manager:
    return Manager(peer)


def named(body: bytes, duplicate_id: Any, *, annotated: bool = False, message_id: str = "", ttl_ms: int = 0) -> bytes:
    """A message with a duplicate id, as an application property or as a message annotation."""
    said = {names.DUPLICATE_ID: duplicate_id}
    return encode_message(
        header=Header(durable=True, ttl_ms=ttl_ms or None),
        message_annotations=said if annotated else None,
        properties=Properties(message_id=message_id or None),
        application_properties={"colour": "red"} if annotated else {"colour": "red", **said},
        body=DataBody(body),
    )


def waiting(peer: AmqpPeer, manager: Manager, queue: str) -> list[bytes]:
    """All that is in a queue, consumed."""
    link = peer.receiver(queue, 0)
    bodies = []
    depth = manager.ask("READ", queue)[1]["depth"]
    link.add_credit(depth)
    for _ in range(depth):
        transfer = peer.transfer()
        bodies.append(data_of(transfer))
        transfer.link.settle(transfer.delivery)
    peer.flush()
    link.close()
    peer.flush()
    return bodies


def counters(manager: Manager, queue: str, type: str = "queue") -> tuple[int, int]:
    read = manager.ask("READ", queue, type)[1]
    return read["duplicate_ids"], read["duplicates_dropped"]


@pytest.mark.filterwarnings("ignore")
def test_protons_users_set_a_property_or_an_annotation(broker: Server, peer: AmqpPeer, manager: Manager) -> None:
    """CONTRACT E15: text is its bytes in UTF-8, wherever it is."""
    connection = BlockingConnection(f"127.0.0.1:{broker.port}", allowed_mechs="ANONYMOUS")
    sender = connection.create_sender("proton", options=AtLeastOnce())
    by_property: dict[str, Any] = {"properties": {names.DUPLICATE_ID: "é"}}
    in_bytes: dict[str, Any] = {"properties": {names.DUPLICATE_ID: "é".encode(), "other": 1}}
    by_annotation: dict[str, Any] = {"annotations": {symbol(names.DUPLICATE_ID): "é"}}
    for body, how in ((b"1", by_property), (b"2", in_bytes), (b"3", by_annotation), (b"4", {})):
        sender.send(Message(body=body, inferred=True, **how))
    connection.close()
    assert waiting(peer, manager, "proton") == [b"1", b"4"]
    assert counters(manager, "proton") == (1, 2)


@pytest.mark.filterwarnings("ignore")
def test_message_ids_count_where_settings_say_so(broker: Server, peer: AmqpPeer, manager: Manager) -> None:
    """Promise 1: clients that send again with the same message id need not know of duplicate ids."""
    connection = BlockingConnection(f"127.0.0.1:{broker.port}", allowed_mechs="ANONYMOUS")
    sender = connection.create_sender("foreign.orders", options=AtLeastOnce())
    for message_id in ("ID:1", "ID:2", "ID:1", None, None, 7, 7):
        sender.send(Message(id=message_id, body=str(message_id).encode(), inferred=True))
    connection.close()
    assert waiting(peer, manager, "foreign.orders") == [b"ID:1", b"ID:2", b"None", b"None", b"7"]


def test_only_who_asked_hears_that_it_was_a_duplicate(peer: AmqpPeer, manager: Manager) -> None:
    for properties, expected in ((TOLD, IS_DUPLICATE), ({}, ACCEPTED), ({names.DUPLICATE_NOTICE: False}, ACCEPTED)):
        link = peer.sender("told", properties)
        peer.send(link, named(b"first", "a"))
        assert peer.send(link, named(b"again", "a", annotated=True)) == expected
        assert peer.send(link, named(b"other", None)) == ACCEPTED
    assert isinstance(IS_DUPLICATE, Modified)
    assert waiting(peer, manager, "told") == [b"first", b"other", b"other", b"other"]


@pytest.mark.parametrize("wrong", [True, 1.5, ["a"]])
def test_an_id_of_a_type_that_no_id_has_is_refused(peer: AmqpPeer, wrong: object) -> None:
    assert isinstance(peer.send(peer.sender("wrong"), named(b"1", wrong)), Rejected)


def test_in_a_transaction_senders_hear_at_its_end(peer: AmqpPeer, manager: Manager) -> None:
    coordinator, link = peer.coordinator(), peer.sender("q.tx", TOLD)
    peer.send(link, named(b"before", "a"))
    txn = peer.declare(coordinator)
    handles = [link.send(named(b"1", name), b"t%d" % n, txn_id=txn) for n, name in enumerate(("a", "b", "b"))]
    peer.flush()
    assert peer.discharge(coordinator, txn) == ACCEPTED
    last = {}
    for event in peer.events:
        if (handle := getattr(event, "delivery", None)) in handles and event.link is link:  # type: ignore[attr-defined]
            last[handle] = event.outcome, event.settled  # type: ignore[attr-defined]
    accepted, duplicate = Transactional(txn, ACCEPTED), Transactional(txn, IS_DUPLICATE)
    assert [last[handle] for handle in handles] == [(duplicate, True), (accepted, True), (duplicate, True)]
    assert waiting(peer, manager, "q.tx") == [b"before", b"1"]


def test_a_small_window_forgets_the_oldest_and_a_window_of_none_everything(peer: AmqpPeer, manager: Manager) -> None:
    """CONTRACT E19."""
    link = peer.sender("small", TOLD)
    outcomes = [peer.send(link, named(name, name)) for name in (b"1", b"2", b"3", b"2", b"1", b"2")]
    assert outcomes == [ACCEPTED, ACCEPTED, ACCEPTED, IS_DUPLICATE, ACCEPTED, ACCEPTED]
    assert counters(manager, "small") == (2, 1)
    link = peer.sender("off", TOLD)
    assert [peer.send(link, named(b"1", "a")) for _ in range(2)] == [ACCEPTED, ACCEPTED]
    assert counters(manager, "off") == (0, 0)


def test_what_becomes_of_messages_does_not_matter(peer: AmqpPeer, manager: Manager) -> None:
    """CONTRACT E19: consumed, expired or purged, their ids stay."""
    link = peer.sender("gone", TOLD)
    peer.send(link, named(b"consumed", "1"))
    assert waiting(peer, manager, "gone") == [b"consumed"]
    peer.send(link, named(b"expired", "2", ttl_ms=1))
    peer.receiver("expired", 1)
    assert data_of(peer.transfer()) == b"expired"
    peer.send(link, named(b"purged", "3"))
    assert manager.ask("PURGE", "gone")[0] == 200
    assert [peer.send(link, named(b"again", name)) for name in "123"] == [IS_DUPLICATE] * 3
    assert counters(manager, "gone") == (3, 3)


def test_a_topic_counts_too(peer: AmqpPeer, manager: Manager) -> None:
    receiver = peer.receiver("topic://prices", 10)
    link = peer.sender("topic://prices", TOLD)
    assert [peer.send(link, named(b"1", "a")) for _ in range(2)] == [ACCEPTED, IS_DUPLICATE]
    assert data_of(peer.transfer()) == b"1"
    assert counters(manager, "prices", "topic") == (1, 1)
    receiver.close()


def test_a_reload_changes_the_window(tmp_path: Path) -> None:
    file = tmp_path / "legato.toml"
    file.write_text('[[address]]\nmatch = "q"\nduplicate_window = 3\n')
    with server(tmp_path / "store", "--config", str(file)) as running:
        peer = AmqpPeer(running.port)
        manager = Manager(peer)
        link = peer.sender("q", TOLD)
        assert [peer.send(link, named(b"1", name)) for name in "1231"] == [ACCEPTED] * 3 + [IS_DUPLICATE]
        file.write_text('[[address]]\nmatch = "q"\nduplicate_window = 1\n')
        assert manager.ask("RELOAD", type="broker")[0] == 200
        assert counters(manager, "q") == (1, 1)
        assert [peer.send(link, named(b"1", name)) for name in "31"] == [IS_DUPLICATE, ACCEPTED]
        file.write_text('[[address]]\nmatch = "q"\nduplicate_window = 0\n')
        assert manager.ask("RELOAD", type="broker")[0] == 200
        assert peer.send(link, named(b"1", "1")) == ACCEPTED
        peer.drop()


def test_restart_and_takeover_keep_the_window(tmp_path: Path) -> None:
    """CONTRACT E15; promise 6."""
    store = tmp_path / "store"
    with server(store) as primary, server(store) as backup:
        peer = AmqpPeer(primary.port)
        link = peer.sender("q", TOLD)
        for number in range(100):
            link.send(named(b"1", str(number)), b"%d" % number)
        assert peer.send(link, named(b"1", "last")) == ACCEPTED
        primary.kill()
        backup.wait_for_role("active")
        peer = AmqpPeer(backup.port)
        link = peer.sender("q", TOLD)
        assert [peer.send(link, named(b"1", name)) for name in ("0", "99", "last", "new")] == [IS_DUPLICATE] * 3 + [
            ACCEPTED
        ]
        backup.stop()
        backup.start()
        peer = AmqpPeer(backup.port)
        link = peer.sender("q", TOLD)
        assert [peer.send(link, named(b"1", name)) for name in ("0", "new")] == [IS_DUPLICATE] * 2
        assert counters(Manager(peer), "q") == (102, 2)
        peer.drop()
