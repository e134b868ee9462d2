"""A store without room: producers are told, consumers go on, nothing is lost."""

import time
from pathlib import Path

import pytest

from legato.amqp.engine.outcomes import ACCEPTED, Rejected
from legato.client.management import request
from legato.errors import JMSError
from tests.support.amqp_peer import AmqpPeer, data_of, text
from tests.support.large import MIB, digest, receive_large, send_large, streaming_receiver
from tests.support.server import WAIT_S, server

BODY = b"x" * 20_000


def test_a_full_map_refuses_producers_and_consumers_make_room_again(tmp_path: Path) -> None:
    with server(tmp_path / "store", environment={"LEGATO_STORE_MAP_BYTES": str(4 << 20)}) as broker:
        peer = AmqpPeer(broker.port)
        sender = peer.sender("q")
        stored = 0
        while (outcome := peer.send(sender, text(b"%d " % stored + BODY))) == ACCEPTED:
            stored += 1
        assert isinstance(outcome, Rejected)
        assert outcome.condition == "amqp:resource-limit-exceeded"
        assert stored > 50
        # It said that all were moved.
        with pytest.raises(JMSError, match="moved: 0; the others stay where they are: "):
            request(f"amqp://127.0.0.1:{broker.port}", "move", "queue", "q", to="elsewhere")

        link = peer.receiver("q", stored)
        for number in range(stored):
            transfer = peer.transfer()
            assert data_of(transfer).startswith(b"%d " % number)
            link.settle(transfer.delivery)
        peer.flush()

        broker.wait_for_log("producers are welcome again")
        # Below 95 % producers are welcome, also where the map has no room for a message before the consumer's settling
        # has been committed.
        deadline = time.monotonic() + WAIT_S
        while peer.send(sender, text(b"again")) != ACCEPTED:
            assert time.monotonic() < deadline
        link.add_credit(1)
        peer.flush()
        assert data_of(peer.transfer()) == b"again"


def test_the_reserve_of_free_disk_refuses_producers_before_the_disk_is_full(tmp_path: Path) -> None:
    environment = {"LEGATO_STORE_FREE_DISK_RESERVE_BYTES": str(1 << 60)}
    with server(tmp_path / "store", environment=environment) as broker:
        peer = AmqpPeer(broker.port)
        sender = peer.sender("q")
        while (outcome := peer.send(sender, text(b"x"))) == ACCEPTED:
            pass
        assert isinstance(outcome, Rejected)
        assert "reserve" in outcome.description


def test_a_large_message_that_finds_no_room_is_refused_and_leaves_none_of_it(tmp_path: Path) -> None:
    """Promise 5: a message of which a part is not stored is not stored."""
    with server(tmp_path / "store", environment={"LEGATO_STORE_MAP_BYTES": str(64 << 20)}) as broker:
        peer = AmqpPeer(broker.port)
        sender = peer.sender("q")
        assert peer.send(sender, text(b"before")) == ACCEPTED
        assert send_large(peer, sender, 8 * MIB) == ACCEPTED
        refused = send_large(peer, sender, 70 * MIB, 2)
        assert isinstance(refused, Rejected)
        assert refused.condition == "amqp:resource-limit-exceeded"
        # The log says which store it is; a producer need not know where it lies.
        assert str(tmp_path) not in refused.description
        broker.wait_for_log("producers are refused: ")

        receiver = streaming_receiver(peer, "q", 2)
        before = peer.transfer()
        assert data_of(before) == b"before"
        receiver.settle(before.delivery)
        came = receive_large(peer, receiver)
        assert came.sha256 == digest(8 * MIB)
        receiver.settle(came.delivery)
        peer.flush()

        broker.wait_for_log("producers are welcome again")
        assert send_large(peer, sender, 12 * MIB, 3) == ACCEPTED
        receiver.add_credit(1)
        peer.flush()
        assert receive_large(peer, receiver).sha256 == digest(12 * MIB, 3)
