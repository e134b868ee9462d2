"""A store without room: producers are told, consumers go on, nothing is lost."""

from pathlib import Path

from legato.amqp.outcomes import ACCEPTED, Rejected
from tests.support.amqp_peer import AmqpPeer, data_of, text
from tests.support.server import server

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

        link = peer.receiver("q", stored)
        for number in range(stored):
            transfer = peer.transfer()
            assert data_of(transfer).startswith(b"%d " % number)
            link.settle(transfer.delivery)
        peer.flush()

        while isinstance(peer.send(sender, text(b"again")), Rejected):
            # Room is looked at every two seconds; each answer takes a turn of the broker's loop.
            peer.receiver("$status", 1)
            peer.transfer()
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
