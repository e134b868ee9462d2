"""The broker as a peer of another make sees it: over real sockets, from a real process."""

import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.amqp import names
from legato.amqp.codec.message import decode_message
from legato.amqp.engine.events import Closed, Detached, Disposition
from legato.amqp.engine.outcomes import ACCEPTED, DELIVERY_FAILED, RECEIVED, Accepted, Rejected, Transactional
from legato.amqp.engine.terminus import Terminus
from legato.cli.management import request
from legato.failpoints import VARIABLE, DrillOrders
from tests.support.amqp_peer import AmqpPeer, Refused, data_of, text
from tests.support.server import Server, server

DETACH = b"\x00\x53\x16"
"""How the body of a detach begins."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("wire") / "store") as running:
        yield running


@pytest.fixture
def peer(broker: Server) -> Iterator[AmqpPeer]:
    peer = AmqpPeer(broker.port)
    yield peer
    peer.drop()


def test_a_confirmed_message_comes_out_with_the_bytes_that_went_in(peer: AmqpPeer) -> None:
    message = text(b"tea", "ID:1")
    assert peer.send(peer.sender("bytes"), message) == ACCEPTED
    peer.receiver("bytes", 1)
    assert peer.transfer().data == message


def test_the_open_tells_the_epoch(peer: AmqpPeer) -> None:
    assert peer.opened.properties[names.EPOCH] == 1


def test_the_anonymous_relay_sends_where_the_message_says(peer: AmqpPeer) -> None:
    from legato.amqp.codec.header import Header
    from legato.amqp.codec.message import DataBody, Properties, encode_message

    sender = peer.sender(None)
    message = encode_message(header=Header(), properties=Properties(to="relayed"), body=DataBody(b"x"))
    assert peer.send(sender, message) == ACCEPTED
    assert isinstance(peer.send(sender, text(b"nowhere")), Rejected)
    peer.receiver("relayed", 2)
    assert data_of(peer.transfer()) == b"x"


def test_a_redelivery_shows_its_count_to_a_foreign_receiver(peer: AmqpPeer) -> None:
    peer.send(peer.sender("count"), text(b"x"))
    link = peer.receiver("count", 1)
    first = peer.transfer()
    assert decode_message(first.data).header.delivery_count == 0
    link.settle(first.delivery, DELIVERY_FAILED)
    link.add_credit(1)
    peer.flush()
    assert decode_message(peer.transfer().data).header.delivery_count == 1


def test_a_lost_connection_flags_what_was_on_its_way(broker: Server, peer: AmqpPeer) -> None:
    """CONTRACT B16: JMS clients read `delivery-count > 0` as JMSRedelivered."""
    peer.send(peer.sender("lost"), text(b"x"))
    other = AmqpPeer(broker.port, container="other")
    other.receiver("lost", 1)
    other.transfer()
    other.drop()
    peer.receiver("lost", 1)
    assert decode_message(peer.transfer().data).header.delivery_count == 1


@pytest.mark.parametrize("ends", ["link", "session", "connection"])
def test_what_a_foreign_receiver_had_seen_it_says_before_a_clean_end(broker: Server, peer: AmqpPeer, ends: str) -> None:
    """Promise 4: the rest counts as prefetched, and comes neither flagged nor counted."""
    sender = peer.sender(f"end.{ends}")
    for said in (b"seen", b"prefetched"):
        peer.send(sender, text(said))
    other = AmqpPeer(broker.port, container="other")
    link = other.receiver(f"end.{ends}", 2)
    link.settle(other.transfer().delivery, DELIVERY_FAILED)
    other.transfer()
    if ends == "link":
        link.close()
    elif ends == "session":
        other.session.close()
    else:
        other.amqp.close()
    other.flush()
    peer.receiver(f"end.{ends}", 2)
    came = [decode_message(peer.transfer().data) for _ in range(2)]
    assert sorted(message.header.delivery_count for message in came) == [0, 1]
    other.drop()


def test_a_receiver_that_reports_presentations_gets_exact_counts_and_a_flag(broker: Server, peer: AmqpPeer) -> None:
    """Promise 4."""
    sender = peer.sender("exact")
    peer.send(sender, text(b"presented"))
    peer.send(sender, text(b"prefetched"))
    properties = {names.REPORTS_PRESENTED: True}
    other = AmqpPeer(broker.port, container="other")
    link = other.receiver("exact", 2, properties)
    link.update(other.transfer().delivery, RECEIVED)
    other.transfer()
    other.close()
    peer.receiver("exact", 2, properties)
    counts = [decode_message(peer.transfer().data).header.delivery_count for _ in range(2)]
    assert counts == [1, 0]


def test_an_unsettled_acknowledgement_is_confirmed(peer: AmqpPeer) -> None:
    peer.send(peer.sender("confirm"), text(b"x"))
    link = peer.receiver("confirm", 1)
    delivery = peer.transfer().delivery
    link.update(delivery, ACCEPTED)
    peer.flush()
    answer = peer.expect(Disposition, lambda event: event.link is link)
    assert answer.settled
    assert isinstance(answer.outcome, Accepted)


def test_a_numbered_message_is_stored_once(broker: Server, peer: AmqpPeer) -> None:
    """Promise 1."""
    properties = {names.PRODUCER_ID: "p1"}
    sender = peer.sender("numbered", properties)
    assert sender.remote_properties[names.LAST_NUMBER] == 0
    assert peer.send(sender, text(b"1"), (1).to_bytes(8, "big")) == ACCEPTED
    other = AmqpPeer(broker.port, container="same producer, new connection")
    again = other.sender("numbered", properties)
    assert again.remote_properties[names.LAST_NUMBER] == 1
    assert other.send(again, text(b"1"), (1).to_bytes(8, "big")) == ACCEPTED
    assert other.send(again, text(b"2"), (2).to_bytes(8, "big")) == ACCEPTED
    peer.receiver("numbered", 5)
    assert [data_of(peer.transfer()) for _ in range(2)] == [b"1", b"2"]
    other.drop()


def test_a_transaction_over_the_wire_is_all_or_nothing(peer: AmqpPeer) -> None:
    """AMQP 4; CONTRACT A3, A4."""
    peer.send(peer.sender("in"), text(b"work"))
    out, coordinator = peer.sender("out"), peer.coordinator()
    link = peer.receiver("in", 1)
    for fail in (True, False):
        txn = peer.declare(coordinator)
        transfer = peer.transfer()
        outcome = peer.send(out, text(b"done"), txn_id=txn)
        assert outcome == Transactional(txn, ACCEPTED)
        link.settle(transfer.delivery, Transactional(txn, ACCEPTED))
        assert peer.discharge(coordinator, txn, fail=fail) == ACCEPTED
        link.add_credit(1)
    peer.receiver("out", 5)
    assert data_of(peer.transfer()) == b"done"
    # Nothing else comes: a status answer over the same connection would come after it.
    peer.receiver(names.STATUS_ADDRESS, 1)
    assert peer.transfer().tag == b"status"


def test_a_pipelined_discharge_and_declare_are_taken_in_order(peer: AmqpPeer) -> None:
    """amqp.md A7."""
    from legato.amqp.codec.coordinator import encode_declare, encode_discharge

    coordinator = peer.coordinator()
    first = peer.declare(coordinator)
    coordinator.send(encode_discharge(first, False), b"a", "discharge")
    coordinator.send(encode_declare(), b"b", "declare")
    peer.flush()
    assert {peer.expect(Disposition).context for _ in range(2)} == {"discharge", "declare"}


def test_an_unknown_transaction_is_refused(peer: AmqpPeer) -> None:
    outcome = peer.discharge(peer.coordinator(), b"never declared")
    assert isinstance(outcome, Rejected)
    assert outcome.condition == "amqp:transaction:unknown-id"


def test_a_refused_discharge_is_told_before_a_detach_that_came_with_it(peer: AmqpPeer) -> None:
    """Nothing is to be stored, so the detach is answered at once; what came before it is answered first."""
    from legato.amqp.codec.coordinator import encode_discharge

    coordinator = peer.coordinator()
    coordinator.send(encode_discharge(b"never declared", False), b"a", "discharge")
    coordinator.detach()
    peer.flush()
    answers = b""
    while DETACH not in answers:
        answers += peer.socket.recv(1 << 16)
    assert b"amqp:transaction:unknown-id" in answers[: answers.index(DETACH)]


def test_a_browser_looks_and_takes_nothing(peer: AmqpPeer) -> None:
    peer.send(peer.sender("browsed"), text(b"x"))
    peer.receiver("browsed", 5, mode="copy")
    assert peer.transfer().settled
    peer.receiver("browsed", 5)
    assert not peer.transfer().settled


def test_status_is_answered_as_json(peer: AmqpPeer) -> None:
    import json

    peer.send(peer.sender("counted"), text(b"x"))
    peer.receiver(names.STATUS_ADDRESS, 1)
    status = json.loads(data_of(peer.transfer()))
    assert status["epoch"] == 1
    assert {"name": "counted", "depth": 1}.items() <= next(
        q for q in status["queues"] if q["name"] == "counted"
    ).items()


def test_malformed_bytes_end_their_own_connection_only(broker: Server, peer: AmqpPeer) -> None:
    with socket.create_connection(("127.0.0.1", broker.port)) as bad:
        bad.sendall(b"AMQP\x00\x01\x00\x00" + b"\x00\x00\x00\x09\x02\x00\x00\x00\xff" * 4)
        bad.settimeout(60)
        while bad.recv(4096):
            pass
    with socket.create_connection(("127.0.0.1", broker.port)) as worse:
        worse.sendall(b"GET / HTTP/1.1\r\n\r\n")
        worse.settimeout(60)
        while worse.recv(4096):
            pass
    assert peer.send(peer.sender("still"), text(b"served")) == ACCEPTED


def test_a_message_that_is_no_message_is_rejected_and_the_link_lives(peer: AmqpPeer) -> None:
    sender = peer.sender("decode")
    outcome = peer.send(sender, b"\xff\xff\xff")
    assert isinstance(outcome, Rejected)
    assert outcome.condition == "amqp:decode-error"
    assert peer.send(sender, text(b"good")) == ACCEPTED


def test_a_message_over_the_limit_closes_its_link(tmp_path: Path) -> None:
    with server(tmp_path / "store", environment={"LEGATO_SERVER_MAX_MESSAGE_BYTES": "1000"}) as broker:
        peer = AmqpPeer(broker.port)
        sender = peer.sender("q")
        sender.send(text(b"x" * 2000), b"t", None)
        peer.flush()
        assert peer.expect(Detached).condition == "amqp:link:message-size-exceeded"
        assert peer.send(peer.sender("q"), text(b"small")) == ACCEPTED


def test_a_wrong_password_is_refused_and_a_right_one_is_not(tmp_path: Path) -> None:
    environment = {"LEGATO_AUTH_ANONYMOUS": "false"}
    with server(tmp_path / "store", "--user", "ann:secret", environment=environment) as broker:
        with pytest.raises(Refused):
            AmqpPeer(broker.port, user="ann", password="guess")
        with pytest.raises(Refused):
            AmqpPeer(broker.port)
        peer = AmqpPeer(broker.port, user="ann", password="secret")
        assert peer.send(peer.sender("q"), text(b"x")) == ACCEPTED


def test_tls_carries_the_same(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    environment = {"LEGATO_TLS_CERTIFICATE": str(certificate), "LEGATO_TLS_KEY": str(key)}
    with server(tmp_path / "store", environment=environment) as broker:
        peer = AmqpPeer(broker.port, tls=ssl.create_default_context(cafile=str(certificate)))
        assert peer.send(peer.sender("q"), text(b"x")) == ACCEPTED


def test_a_clean_stop_tells_its_clients(tmp_path: Path) -> None:
    with server(tmp_path / "store") as broker:
        peer = AmqpPeer(broker.port)
        peer.send(peer.sender("q"), text(b"x"))
        assert broker.stop() == 0
        assert peer.expect(Closed).condition == "amqp:connection:forced"


def test_a_client_that_comes_back_gets_what_it_holds_first(broker: Server) -> None:
    """CONTRACT table F, CLIENT_ACKNOWLEDGE in `legato`."""
    from legato.amqp.codec.types import Array, ULong

    peer = AmqpPeer(broker.port, container="holder")
    sender = peer.sender("held")
    for body in (b"1", b"2", b"3"):
        peer.send(sender, text(body))
    properties = {names.REPORTS_PRESENTED: True}
    peer.receiver("held", 2, properties, name="consumer")
    tags = [peer.transfer().tag for _ in range(2)]
    back = AmqpPeer(broker.port, container="holder")
    held = Array(ULong(int.from_bytes(tag, "big")) for tag in tags)
    link = back.receiver("held", 0, properties | {names.HELD: held}, name="consumer")
    assert link.remote_properties[names.HELD_COUNT] == 2
    link.add_credit(3)
    back.flush()
    again = [back.transfer() for _ in range(3)]
    assert [transfer.tag for transfer in again[:2]] == tags
    assert peer.expect(Detached).condition == "amqp:link:stolen"
    for transfer in again:
        link.update(transfer.delivery, ACCEPTED)
    back.flush()
    for _ in again:
        assert back.expect(Disposition, lambda event: event.link is link).settled


def test_claims_are_of_the_queue_that_gave_and_of_none_that_took_its_name(broker: Server) -> None:
    """Promise 5; its client took the other one's message for what it had, and acknowledged it unseen."""
    from legato.amqp.codec.types import Array, ULong

    properties = {names.REPORTS_PRESENTED: True}
    peer = AmqpPeer(broker.port, container="holder")
    peer.send(peer.sender("renewed"), text(b"first"))
    first = peer.receiver("renewed", 1, properties, name="consumer")
    tag = peer.transfer().tag
    peer.drop()
    request(f"amqp://127.0.0.1:{broker.port}", "DELETE", "queue", "renewed")
    other = AmqpPeer(broker.port)
    other.send(other.sender("renewed"), text(b"second"))
    back = AmqpPeer(broker.port, container="holder")
    held = Array([ULong(int.from_bytes(tag, "big"))])
    claims = {names.HELD: held, names.QUEUE: ULong(first.remote_properties[names.QUEUE])}
    link = back.receiver("renewed", 1, properties | claims, name="consumer")
    assert link.remote_properties[names.HELD_COUNT] == 0
    assert [int(seq) for seq in link.remote_properties[names.ELSEWHERE]] == [int.from_bytes(tag, "big")]
    assert link.remote_properties[names.QUEUE] != first.remote_properties[names.QUEUE]
    assert decode_message(back.transfer().data).body == decode_message(text(b"second")).body


def test_what_becomes_of_claims_is_said_when_it_is_durable(tmp_path: Path) -> None:
    """A message that is neither coming nor elsewhere was acknowledged: it must not come back after a crash."""
    from legato.amqp.codec.types import Array, ULong

    drill_orders = DrillOrders(tmp_path / "drill_orders")
    with server(tmp_path / "store", environment={VARIABLE: str(tmp_path / "drill_orders")}) as broker:
        peer = AmqpPeer(broker.port, container="holder")
        peer.send(peer.sender("held"), text(b"1"))
        properties = {names.REPORTS_PRESENTED: True}
        link = peer.receiver("held", 1, properties, name="consumer")
        transfer = peer.transfer()
        drill_orders.set_delay(2000)
        link.update(transfer.delivery, ACCEPTED)
        peer.receiver("held", 0, name="another")  # What comes before it has been read once it is answered.
        back = AmqpPeer(broker.port, container="holder")
        held = Array([ULong(int.from_bytes(transfer.tag, "big"))])
        claiming = back.receiver("held", 0, properties | {names.HELD: held}, name="consumer")
        assert claiming.remote_properties[names.HELD_COUNT] == 0
        broker.kill()
        drill_orders.set_delay(0)
        broker.start()
        after = AmqpPeer(broker.port)
        after.send(after.sender("held"), text(b"2"))
        after.receiver("held", 5)
        assert decode_message(after.transfer().data).body == decode_message(text(b"2")).body


def test_a_transaction_that_lost_a_send_cannot_commit(peer: AmqpPeer) -> None:
    """amqp.md A7: all or nothing also where a send is refused."""
    sender, coordinator = peer.sender("doomed"), peer.coordinator()
    txn = peer.declare(coordinator)
    assert peer.send(sender, text(b"good"), txn_id=txn) == Transactional(txn, ACCEPTED)
    refused = peer.send(sender, b"\xff\xff", txn_id=txn)
    assert isinstance(refused, Transactional)
    assert isinstance(refused.outcome, Rejected)
    assert isinstance(peer.discharge(coordinator, txn), Rejected)
    peer.receiver("doomed", 1)
    peer.receiver(names.STATUS_ADDRESS, 1)
    assert peer.transfer().tag == b"status"


def test_a_transaction_ends_with_its_coordinator_link(peer: AmqpPeer) -> None:
    """AMQP 4.2: what it received comes again."""
    peer.send(peer.sender("left"), text(b"x"))
    coordinator = peer.coordinator()
    txn = peer.declare(coordinator)
    link = peer.receiver("left", 1)
    link.settle(peer.transfer().delivery, Transactional(txn, ACCEPTED))
    peer.flush()
    link.add_credit(1)
    coordinator.close()
    peer.flush()
    assert decode_message(peer.transfer().data).header.delivery_count == 1


def test_the_broker_says_that_it_settles_first(peer: AmqpPeer) -> None:
    """AMQP 2.6.12, 2.8.3: it does not wait for senders to settle; receivers may."""
    sender = peer.session.sender("first", target=Terminus(address="settled", kind="target"), rcv_settle_mode=1)
    peer._attached(sender)
    assert sender.remote_rcv_settle_mode == 0
    receiver = peer.session.receiver("second", source=Terminus(address="settled", kind="source"), rcv_settle_mode=1)
    peer._attached(receiver)
    assert receiver.remote_rcv_settle_mode == 1
