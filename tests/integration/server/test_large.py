"""Large messages stream through the broker, which never holds one whole in memory."""

import hashlib
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from legato.amqp.codec.message import decode_message
from legato.amqp.codec.stubs import Stub, make_stub
from legato.amqp.engine.events import Disposition, Event, Flow, Transfer, TransferPart
from legato.amqp.engine.link import Receiver
from legato.amqp.engine.outcomes import ACCEPTED, Modified, Rejected, Released
from legato.amqp.engine.terminus import Terminus
from legato.store.lmdb import LmdbStore
from tests.integration.server.conftest import Connect
from tests.integration.server.wire import attach, message, selecting, topic
from tests.support.amqp_peer import AmqpPeer, data_of, text
from tests.support.large import MIB, Came, digest, head, push_large, receive_large, send_large, streaming_receiver
from tests.support.server import Server, server

CONFIGURATION = """
[[address]]
match = "twice"
maximum_deliveries = 2

[[address]]
match = "small"
max_messages = 1
when_full = "fail"
"""

SIZE = 5 * MIB + 12_345
HUGE = 150 * MIB
MEMORY_BYTES = 40 * MIB
"""What the broker may need beyond what it needed before: commits, and what is on its way."""


def take(peer: AmqpPeer, link: Receiver) -> Came:
    """The next large message, accepted."""
    came = receive_large(peer, link)
    link.settle(came.delivery)
    peer.flush()
    return came


def next_on(peer: AmqpPeer, address: str, **options: Any) -> Came:
    return take(peer, streaming_receiver(peer, address, 1, **options))


def queue(name: str, **fields: Any) -> Terminus:
    return Terminus(address=name, kind="source", capabilities=["queue"], **fields)


def header_of(came: Came) -> Any:
    return decode_message(came.head[:-8] + b"\x00\x53\x77\x40")


@contextmanager
def bounded_memory(broker: Server) -> Iterator[None]:
    """Meanwhile the broker must not need much more memory than before."""
    before = most = broker.rss_anon_bytes()
    ended = threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.02):
            most = max(most, broker.rss_anon_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    assert most - before < MEMORY_BYTES


def test_150_mib_go_through_a_queue_in_a_bounded_part_of_memory(broker: Server, peer: AmqpPeer) -> None:
    with bounded_memory(broker):
        assert send_large(peer, peer.sender("huge"), HUGE) == ACCEPTED
        came = next_on(peer, "huge")
    assert (came.size, came.sha256) == (HUGE, digest(HUGE))


def test_150_mib_go_through_a_transaction_a_topic_and_the_dead_letters(broker: Server, peer: AmqpPeer) -> None:
    first, second = attach(peer, topic("huge news")), attach(peer, topic("huge news"))
    first.streams = second.streams = True
    coordinator = peer.coordinator()
    txn_id = peer.declare(coordinator)
    with bounded_memory(broker):
        send_large(peer, peer.sender("topic://huge news"), HUGE, txn_id=txn_id)
        assert peer.discharge(coordinator, txn_id) == ACCEPTED
        first.add_credit(1)
        assert take(peer, first).sha256 == digest(HUGE)
        second.add_credit(1)
        second.settle(receive_large(peer, second).delivery, Rejected("app:poison", "too large"))
        assert next_on(peer, "DLQ.huge news").sha256 == digest(HUGE)


def test_what_is_before_the_body_comes_as_it_was_sent(peer: AmqpPeer) -> None:
    sent = head(SIZE, message_id="ID:1", colour="red")
    send_large(peer, peer.sender("head"), SIZE, message_id="ID:1", colour="red")
    assert next_on(peer, "head").head == sent


def test_a_large_message_among_others_keeps_its_place(peer: AmqpPeer) -> None:
    sender = peer.sender("order")
    peer.send(sender, text(b"1"))
    send_large(peer, sender, SIZE)
    peer.send(sender, text(b"3"))
    send_large(peer, sender, 2 * SIZE, 2)
    peer.send(sender, text(b"5"))
    receiver = streaming_receiver(peer, "order", 10)
    assert data_of(peer.transfer()) == b"1"
    assert receive_large(peer, receiver).sha256 == digest(SIZE)
    assert data_of(peer.transfer()) == b"3"
    assert receive_large(peer, receiver).sha256 == digest(2 * SIZE, 2)
    assert data_of(peer.transfer()) == b"5"
    assert receiver.credit == 5


def test_who_does_not_stream_gets_it_whole(peer: AmqpPeer) -> None:
    send_large(peer, peer.sender("whole"), SIZE)
    peer.receiver("whole", 1)
    assert hashlib.sha256(data_of(peer.transfer())).hexdigest() == digest(SIZE)


def test_one_that_was_given_back_comes_again_with_its_count(peer: AmqpPeer) -> None:
    """CONTRACT D: a failed delivery counts."""
    send_large(peer, peer.sender("again"), SIZE)
    receiver = streaming_receiver(peer, "again", 2)
    first = receive_large(peer, receiver)
    receiver.settle(first.delivery, Modified(delivery_failed=True))
    peer.flush()
    second = receive_large(peer, receiver)
    assert second.sha256 == digest(SIZE)
    assert header_of(second).header.delivery_count == 1


def test_two_subscriptions_share_one(peer: AmqpPeer) -> None:
    first = attach(peer, topic("news"), 0)
    second = attach(peer, topic("news"), 0)
    for link in (first, second):
        link.streams = True
    send_large(peer, peer.sender("topic://news"), SIZE)
    for link in (first, second):
        link.add_credit(1)
        peer.flush()
        assert take(peer, link).sha256 == digest(SIZE)


def test_a_selector_sees_its_properties(peer: AmqpPeer) -> None:
    sender = peer.sender("choice")
    send_large(peer, sender, SIZE, 1, colour="red")
    send_large(peer, sender, SIZE, 2, colour="blue")
    link = attach(peer, queue("choice", filters=selecting("colour = 'blue'")))
    link.streams = True
    link.add_credit(1)
    peer.flush()
    assert take(peer, link).sha256 == digest(SIZE, 2)


@pytest.mark.parametrize("fail", [False, True])
def test_the_transaction_decides(peer: AmqpPeer, fail: bool) -> None:
    """CONTRACT A: all or none."""
    address = f"transaction-{fail}"
    coordinator = peer.coordinator()
    txn_id = peer.declare(coordinator)
    send_large(peer, peer.sender(address), SIZE, txn_id=txn_id)
    receiver = streaming_receiver(peer, address, 1)
    assert peer.discharge(coordinator, txn_id, fail=fail) == ACCEPTED
    peer.send(peer.sender(address), text(b"after"))
    if fail:
        assert data_of(peer.transfer()) == b"after"
    else:
        assert take(peer, receiver).sha256 == digest(SIZE)


def test_a_dead_one_keeps_its_body_and_says_why(peer: AmqpPeer) -> None:
    """CONTRACT D: dead letters say why they are."""
    send_large(peer, peer.sender("refused"), SIZE)
    receiver = streaming_receiver(peer, "refused", 1)
    receiver.settle(receive_large(peer, receiver).delivery, Rejected("app:poison", "cannot read it"))
    dead = next_on(peer, "DLQ.refused")
    assert dead.sha256 == digest(SIZE)
    assert header_of(dead).application_properties["JMS_LEGATO_EXCEPTION"] == "cannot read it"


def test_a_browser_sees_it_and_leaves_it(peer: AmqpPeer) -> None:
    sender = peer.sender("browsed")
    send_large(peer, sender, SIZE)
    peer.send(sender, text(b"small"))
    browser = streaming_receiver(peer, "browsed", 10, mode="copy")
    assert receive_large(peer, browser).sha256 == digest(SIZE)
    assert data_of(peer.transfer()) == b"small"
    assert next_on(peer, "browsed").sha256 == digest(SIZE)


def test_a_drain_is_answered_after_what_is_on_its_way(peer: AmqpPeer) -> None:
    """AMQP 2.6.7."""
    send_large(peer, peer.sender("drained"), SIZE)
    receiver = streaming_receiver(peer, "drained", 0)
    assert receiver.drain(5)
    assert take(peer, receiver).sha256 == digest(SIZE)
    peer.expect(Flow, lambda event: event.link is receiver)
    assert receiver.credit == 0


def test_credit_given_meanwhile_is_counted_once(peer: AmqpPeer) -> None:
    sender = peer.sender("credit")
    send_large(peer, sender, SIZE)
    for number in range(3):
        peer.send(sender, text(b"%d" % number))
    receiver = streaming_receiver(peer, "credit", 2)
    assert receive_large(peer, receiver).size == SIZE
    assert data_of(peer.transfer()) == b"0"
    receiver.add_credit(1)
    peer.flush()
    assert data_of(peer.transfer()) == b"1"
    receiver.drain(0)
    assert receiver.credit == 0
    receiver.drain(1)
    assert data_of(peer.transfer()) == b"2"


def test_small_frames_make_no_difference(connect: Connect) -> None:
    peer = connect(max_frame_bytes=1024)
    send_large(peer, peer.sender("frames"), SIZE)
    assert next_on(peer, "frames").sha256 == digest(SIZE)


def test_a_receiver_that_settles_nothing_gets_it_once(peer: AmqpPeer) -> None:
    """AMQP 2.6.12."""
    sender = peer.sender("settled")
    send_large(peer, sender, SIZE)
    link = attach(peer, queue("settled"), snd_settle_mode=1)
    link.streams = True
    link.add_credit(1)
    peer.flush()
    assert receive_large(peer, link).sha256 == digest(SIZE)
    peer.send(sender, text(b"after"))
    link.add_credit(1)
    peer.flush()
    assert data_of(peer.transfer()) == b"after"


def test_one_that_its_sender_gives_up_leaves_nothing(peer: AmqpPeer) -> None:
    """AMQP 2.7.5."""
    sender = peer.sender("aborted")
    sender.begin(b"tag")
    sender.push(head(SIZE))
    push_large(peer, sender, SIZE, pieces_max=3)
    sender.abort()
    assert peer.send(sender, text(b"after")) == ACCEPTED
    peer.receiver("aborted", 1)
    assert data_of(peer.transfer()) == b"after"


def test_the_credit_of_a_small_one_that_is_given_up_comes_back(peer: AmqpPeer) -> None:
    """It never did: a sender that gave up now and then had none in the end, and waited for ever (AMQP 2.6.14)."""
    sender, coordinator, manager = peer.sender("given.up"), peer.coordinator(), peer.sender("$management")
    for link in (sender, coordinator, manager):
        for number in range(2 * link.credit):
            while not link.credit:
                peer.flush()
                peer.events += peer.amqp.receive_data(peer.socket.recv(1 << 16))
            link.begin(b"%d" % number)
            link.push(b"part of a message")
            peer.flush()
            link.abort()
    assert peer.send(sender, text(b"after")) == ACCEPTED
    peer.declare(coordinator)


def test_a_sender_that_is_gone_leaves_nothing(connect: Connect, peer: AmqpPeer) -> None:
    other = connect("other")
    sender = other.sender("lost")
    sender.begin(b"tag")
    sender.push(head(SIZE))
    push_large(other, sender, SIZE, pieces_max=3)
    other.drop()
    peer.send(peer.sender("lost"), text(b"after"))
    peer.receiver("lost", 1)
    assert data_of(peer.transfer()) == b"after"


def test_one_that_is_numbered_is_stored_once(connect: Connect) -> None:
    """Promise 1."""
    peer = connect()
    sender = peer.sender("numbered", properties={"legato:producer-id": "p-1"})
    number = (1).to_bytes(8, "big")
    assert send_large(peer, sender, SIZE, tag=number) == ACCEPTED
    sender.detach()  # One that closes is forgotten: its next message 1 would be another one.
    sender = peer.sender("numbered", properties={"legato:producer-id": "p-1"})
    assert send_large(peer, sender, SIZE, tag=number) == ACCEPTED
    peer.send(sender, text(b"after"), (2).to_bytes(8, "big"))
    receiver = streaming_receiver(peer, "numbered", 2)
    assert take(peer, receiver).sha256 == digest(SIZE)
    assert data_of(peer.transfer()) == b"after"


def test_one_that_cannot_be_read_is_refused_at_its_end(peer: AmqpPeer) -> None:
    sender = peer.sender("broken")
    for beginning in (b"no message at all", head(2 * SIZE)):
        handle = sender.begin(b"tag")
        sender.push(beginning)
        push_large(peer, sender, SIZE)
        sender.finish()
        said = peer.expect(Disposition, lambda event, handle=handle: event.delivery == handle)  # type: ignore[misc]
        assert isinstance(said.outcome, Rejected)
        assert said.outcome.condition == "amqp:decode-error"


def test_one_for_an_address_that_is_full_is_refused(peer: AmqpPeer) -> None:
    sender = peer.sender("small")
    assert send_large(peer, sender, SIZE) == ACCEPTED
    refused = send_large(peer, sender, SIZE)
    assert isinstance(refused, Rejected)
    assert refused.condition == "amqp:resource-limit-exceeded"
    assert next_on(peer, "small").sha256 == digest(SIZE)


def test_nobody_can_send_a_stub(peer: AmqpPeer) -> None:
    """What one connection stored is not for another to refer to."""
    refused = peer.send(peer.sender("forged"), make_stub(message(b"")[:4], Stub(1 << 32 | 1, SIZE)))
    assert isinstance(refused, Rejected)
    assert refused.condition == "amqp:not-allowed"


def test_a_receiver_that_takes_nothing_stops_nobody_else(connect: Connect, broker: Server) -> None:
    producer = connect("producer")
    link = producer.sender("slow")
    send_large(producer, link, 40 * MIB)
    before = broker.rss_anon_bytes()
    slow = connect("slow")
    streaming_receiver(slow, "slow", 1)
    quick = connect("quick")
    send_large(producer, link, SIZE, 2)
    assert next_on(quick, "slow").sha256 == digest(SIZE, 2)
    assert broker.rss_anon_bytes() - before < 20 * MIB
    slow.drop()
    assert next_on(quick, "slow").sha256 == digest(40 * MIB)


@pytest.mark.parametrize("seed", range(3))
def test_at_random_every_message_comes_until_it_is_accepted(connect: Connect, seed: int) -> None:
    """Large ones and small ones, two receivers, credit in lumps, some given back, receivers that leave at any time."""
    chance = random.Random(seed)
    address = f"random-{seed}"
    producer = connect()
    sender = producer.sender(address)
    sizes = [chance.choice([5, 5, 2_000_000, 1_500_000]) for _ in range(30)]
    for number, size in enumerate(sizes):
        assert send_large(producer, sender, size, number, message_id=str(number)) == ACCEPTED
    missing = {str(number): digest(size, number) for number, size in enumerate(sizes)}
    peers = [connect(), connect()]
    links = [streaming_receiver(peer, address, 0) for peer in peers]
    while missing:
        turn = chance.randrange(2)
        peer, link = peers[turn], links[turn]
        link.drain(chance.randint(1, 4))
        peer.flush()
        if chance.random() < 0.2:
            peer.expect(Event, lambda event, link=link: getattr(event, "link", None) is link)  # type: ignore[misc]
            link.close()
            peer.flush()
            links[turn] = streaming_receiver(peer, address, 0)
            continue
        for came in receive_until_drained(peer, link):
            message_id = header_of(came).properties.message_id
            if chance.random() < 0.3:
                link.settle(came.delivery, chance.choice([Released(), Modified(delivery_failed=False)]))
            else:
                assert missing.pop(message_id) == came.sha256
                link.settle(came.delivery)
        peer.flush()


def receive_until_drained(peer: AmqpPeer, link: Receiver) -> Iterator[Came]:
    """Messages, large or not, until the broker gives the rest of the credit back or it is used up."""
    while link.draining or any(getattr(event, "link", None) is link for event in peer.events):
        event = peer.expect(Event, lambda event: getattr(event, "link", None) is link)
        if isinstance(event, TransferPart):
            peer.events.insert(0, event)
            yield receive_large(peer, link)
        elif isinstance(event, Transfer):
            at = event.data.index(b"\x00\x53\x75\xb0") + 8
            sha256 = hashlib.sha256(event.data[at:]).hexdigest()
            yield Came(event.data[:at], len(event.data) - at, sha256, event.delivery)


def test_a_foreign_client_sends_and_receives(broker: Server) -> None:
    """python-qpid-proton, as its users write it."""
    body = bytes(range(256)) * (SIZE // 256)
    connection = BlockingConnection(f"localhost:{broker.port}", timeout=60)
    sender = connection.create_sender("foreign")
    sender.send(Message(id="1", body=body, inferred=True, properties={"colour": "red"}))
    sender.send(Message(id="2", body="x" * SIZE))
    receiver = connection.create_receiver("foreign", credit=2)
    first = receiver.receive()
    assert (first.body, first.properties) == (body, {"colour": "red"})
    receiver.accept()
    assert receiver.receive().body == "x" * SIZE
    receiver.accept()
    connection.close()


def test_a_broker_that_dies_in_the_middle_of_an_upload_has_nothing_of_it(tmp_path: Path) -> None:
    """Promises 1 and 5: it comes again, and is stored once."""
    with server(tmp_path / "store") as primary, server(tmp_path / "store") as backup:
        peer = AmqpPeer(primary.port)
        sender = peer.sender("q", properties={"legato:producer-id": "p-1"})
        sender.begin((1).to_bytes(8, "big"))
        sender.push(head(30 * MIB))
        push_large(peer, sender, 30 * MIB, pieces_max=20)
        primary.kill()
        backup.wait_for_role("active")
        after = AmqpPeer(backup.port)
        sender = after.sender("q", properties={"legato:producer-id": "p-1"})
        assert send_large(after, sender, 30 * MIB, tag=(1).to_bytes(8, "big")) == ACCEPTED
        assert next_on(after, "q").sha256 == digest(30 * MIB)
        assert after.send(sender, text(b"after"), (2).to_bytes(8, "big")) == ACCEPTED
        after.receiver("q", 1)
        assert data_of(after.transfer()) == b"after"
        peer.drop()
        after.close()
        assert backup.stop() == 0
    store = LmdbStore(tmp_path / "store")
    while store.prune(1):
        pass
    assert store.entries()["chunks"] == 0
    store.close()


def test_a_broker_that_dies_in_the_middle_of_a_download_sends_all_of_it_again(tmp_path: Path) -> None:
    """Promise 4: flagged, for its receiver may have seen it."""
    with server(tmp_path / "store") as primary, server(tmp_path / "store") as backup:
        peer = AmqpPeer(primary.port)
        send_large(peer, peer.sender("q"), 30 * MIB)
        streaming_receiver(peer, "q", 1)
        peer.events += peer.amqp.receive_data(peer.socket.recv(1 << 18))
        primary.kill()
        backup.wait_for_role("active")
        after = AmqpPeer(backup.port)
        came = next_on(after, "q")
        assert came.sha256 == digest(30 * MIB)
        assert header_of(came).header.delivery_count >= 1
        peer.drop()
        after.close()
