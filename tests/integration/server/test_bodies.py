"""Bodies come out of the broker as they went in, of many connections, and at any pace of those who receive.

What is wrong in them would be those of another message, or of another connection: all are random.
"""

import random

from proton import Message
from proton.utils import BlockingConnection

from legato.amqp.engine.events import Disposition
from tests.integration.server.conftest import Connect
from tests.support.amqp_peer import AmqpPeer, data_of, text
from tests.support.server import Server

QUEUES = 3
COUNT = 90
SIZES = (10, 300, 2_000, 2_100, 5_000, 16_384, 16_384, 30_000, 70_000)


def wanted(source: random.Random) -> list[bytes]:
    """Bodies in the order in which they are sent."""
    return [source.randbytes(source.choice(SIZES)) for _ in range(COUNT)]


def send_all(connect: Connect, bodies: list[list[bytes]], name: str) -> None:
    """Send to all queues in turn, several messages at once, without waiting for those before."""
    peers = [connect() for _ in bodies]
    links = [peer.sender(f"{name}-{number}") for number, peer in enumerate(peers)]
    for at in range(0, COUNT, 15):
        for peer, link, own in zip(peers, links, bodies, strict=True):
            encoded = [text(body) for body in own[at : at + 15]]
            link.send_all(encoded, b"".join(n.to_bytes(8, "big") for n in range(at, at + 15)), encoded)
            peer.flush()
    for peer in peers:
        for _ in range(COUNT):
            peer.expect(Disposition)


def take(peer: AmqpPeer, count: int) -> list[bytes]:
    """The next messages, accepted."""
    taken = []
    for _ in range(count):
        transfer = peer.transfer()
        taken.append(data_of(transfer))
        transfer.link.settle(transfer.delivery)
    peer.flush()
    return taken


def test_bodies_of_several_queues_come_whole_to_receivers_that_are_fast_and_slow(connect: Connect) -> None:
    """The receivers are there first: what they are given is what came, not what is read from disk."""
    source = random.Random(1)
    bodies = [wanted(source) for _ in range(QUEUES)]
    receivers = [connect() for _ in bodies]
    for number, peer in enumerate(receivers):
        peer.receiver(f"fast-{number}", COUNT if number else 3)
    send_all(connect, bodies, "fast")
    for number in (1, 2):
        assert take(receivers[number], COUNT) == bodies[number]
    slow: list[bytes] = []
    while len(slow) < COUNT:
        slow += take(receivers[0], 3)
        (link,) = receivers[0].session.links
        link.add_credit(3)  # type: ignore[attr-defined]
    assert slow == bodies[0]


def test_bodies_that_have_waited_come_whole(connect: Connect) -> None:
    """They are read from disk, and mostly in runs."""
    source = random.Random(2)
    bodies = [wanted(source) for _ in range(QUEUES)]
    send_all(connect, bodies, "waiting")
    receivers = [connect(max_frame_bytes=size) for size in (4_096, 1 << 18, 1 << 18)]
    for number, peer in enumerate(receivers):
        peer.receiver(f"waiting-{number}", COUNT)
    for own, peer in zip(bodies, receivers, strict=True):
        assert take(peer, COUNT) == own


def test_another_engine_sends_and_receives_the_same_bodies(broker: Server) -> None:
    """python-qpid-proton on both sides."""
    bodies = wanted(random.Random(3))
    connection = BlockingConnection(f"localhost:{broker.port}", timeout=60)
    receiver = connection.create_receiver("foreign", credit=20)
    sender = connection.create_sender("foreign")
    came: list[bytes] = []

    def receive() -> None:
        # Its body lies in the message: both are kept.
        message = receiver.receive()
        came.append(bytes(message.body))
        receiver.accept()

    for sent, body in enumerate(bodies):
        sender.send(Message(body=body, inferred=True))
        if sent % 7:
            receive()
    while len(came) < COUNT:
        receive()
    connection.close()
    assert came == bodies
