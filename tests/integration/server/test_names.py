"""Names that peers give, on the wire: what cannot be given, and what was given before."""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.amqp import names
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, encode_message
from legato.amqp.codec.types import UInt
from legato.amqp.engine.outcomes import ACCEPTED, Rejected
from legato.amqp.engine.terminus import Terminus
from tests.integration.server.conftest import Connect
from tests.integration.server.wire import attach, attach_sender, durable, got, topic
from tests.support.amqp_peer import AmqpPeer, Refused, text
from tests.support.raw import ATTACH, SOURCE, TARGET, TRANSFER, RawPeer, frame, opening, sending, terminus
from tests.support.server import Server, server

LONG = "x" * 256
INVALID = "amqp:invalid-field"
CONFIGURATION = ""


@pytest.mark.parametrize("name", [LONG, "a\nb", "a\u202eb", "a\u200bb", "\x1b[31m"])
def test_no_queue_or_topic_is_made_with_such_a_name(peer: AmqpPeer, name: str) -> None:
    """Control characters, bidi overrides, zero width and 240 KB made queues."""
    for address in (name, f"queue://{name}", f"topic://{name}"):
        with pytest.raises(Refused, match=f"{INVALID}: .* cannot be the name of a (queue|topic)"):
            peer.sender(address)
        with pytest.raises(Refused, match=INVALID):
            peer.receiver(address, 1)


def test_a_message_to_the_relay_makes_no_queue_with_such_a_name(peer: AmqpPeer) -> None:
    """A queue with the name NUL could be filled, and never emptied."""
    relay = peer.sender(None)
    for name in ("\0", "a\0b", LONG):
        message = encode_message(header=Header(), properties=Properties(to=name), body=DataBody(b"x"))
        outcome = peer.send(relay, message)
        assert isinstance(outcome, Rejected)
        assert outcome.condition == INVALID


def test_the_answer_to_a_request_makes_no_queue_with_such_a_name(peer: AmqpPeer, broker: Server) -> None:
    request = encode_message(
        header=Header(),
        properties=Properties(message_id="1", reply_to="\0"),
        application_properties={"operation": "query"},
        body=DataBody(b""),
    )
    assert peer.send(peer.sender(names.MANAGEMENT_ADDRESS), request) == ACCEPTED
    broker.wait_for_log("cannot be sent: '\\x00' cannot be the name of a queue")


def test_no_durable_subscription_is_made_with_such_a_name(peer: AmqpPeer) -> None:
    for name in (LONG, "a\nb"):
        with pytest.raises(Refused, match=f"{INVALID}: .* the name of a subscription"):
            attach(peer, durable("news"), name=name)
    attach(peer, durable("news", "shared"), name="x" * 255 + "|2")
    with pytest.raises(Refused, match=INVALID):
        attach(peer, topic("news", "shared"), name=f"{LONG}|2")


def test_no_producer_is_registered_with_such_a_name(peer: AmqpPeer) -> None:
    with pytest.raises(Refused, match=f"{INVALID}: .* the name of a producer"):
        attach_sender(peer, Terminus(address="orders", kind="target"), properties={names.PRODUCER_ID: "p\x7f"})


def test_no_temporary_queue_is_made_with_such_a_name(peer: AmqpPeer) -> None:
    target = Terminus(address=None, kind="target", dynamic=True)
    with pytest.raises(Refused, match=f"{INVALID}: .* the name of a temporary destination"):
        attach_sender(peer, target, properties={names.TEMPORARY_NAME: f"temp-queue://{LONG}"})


@pytest.mark.parametrize("container", [LONG, "a\nb", "\u202eann"])
def test_no_connection_opens_with_such_a_container_id(connect: Connect, container: str) -> None:
    with pytest.raises(Refused, match=f"condition='{INVALID}'.*the name of a container.*'invalid-field'"):
        connect(container).sender("orders")


def test_a_container_id_is_not_cut_at_nul(broker: Server) -> None:
    """The ids "abc" and "abc" with NUL and something behind it were the same container."""
    peer = RawPeer(broker.port)
    peer.send(opening("abc\0def"))
    assert b"the container id has the character U+0000" in peer.hear_all()
    peer.close()


@pytest.mark.parametrize("where", ["name", "source", "target"])
def test_an_address_of_a_link_is_not_cut_at_nul(broker: Server, where: str) -> None:
    bad = {key: "or\0ders" if key == where else "orders" for key in ("name", "source", "target")}
    peer = RawPeer(broker.port)
    fields = [bad["name"], UInt(0), False, None, None, terminus(SOURCE, bad["source"]), terminus(TARGET, bad["target"])]
    peer.send(opening(), frame(ATTACH, [*fields, None, None, UInt(0)]))
    heard = peer.hear_until(b"U+0000", b"\x53\x13")
    assert b"U+0000" in heard
    assert INVALID.encode() in heard
    peer.close()


@pytest.mark.parametrize("address", ["orders", None])
def test_a_delivery_tag_has_at_most_32_bytes(broker: Server, address: str | None) -> None:
    """AMQP 2.8.7."""
    peer = RawPeer(broker.port)
    peer.send(opening(), sending(0, address))
    peer.hear_until(b"\x53\x13")
    message = encode_message(header=Header(), properties=Properties(to="orders"), body=DataBody(b"x"))
    for number, size in enumerate((32, 33)):
        fields = [UInt(0), UInt(number), b"t" * size, UInt(0), False]
        peer.send(frame(TRANSFER, fields, message))
    heard = peer.hear_until(b"a delivery tag has at most 32 bytes")
    assert INVALID.encode() in heard
    peer.close()


def test_a_sink_may_not_have_such_a_name(peer: AmqpPeer, broker: Server) -> None:
    replies = attach(peer, Terminus(address=names.MANAGEMENT_ADDRESS, kind="source"), credit=10)
    request = encode_message(
        header=Header(),
        properties=Properties(message_id="1"),
        application_properties={"type": "stage", "operation": "ticket", "name": "s\0", "batch": 1, "stage": "1"},
        body=DataBody(b""),
    )
    peer.send(peer.sender(names.MANAGEMENT_ADDRESS), request)
    assert b"cannot be the name of a sink" in peer.transfer().data
    del replies


def test_what_has_such_a_name_already_goes_on_to_work(tmp_path: Path) -> None:
    """Names that were given by an earlier version, or with other limits."""
    (tmp_path / "legato.toml").write_text("[limits]\nname_bytes = 5000\nnames_printable = false\n")
    queue, other = "odd\x1b" + "q" * 1000, "odd\x1bother"
    with server(tmp_path / "store", "--config", str(tmp_path / "legato.toml")) as broker:
        peer = AmqpPeer(broker.port)
        assert peer.send(peer.sender(queue), text(b"1")) == ACCEPTED
        subscription = attach(peer, durable("news"), name="sub\nscription")
        subscription.detach()
        peer.close()
    with server(tmp_path / "store") as broker:
        peer = AmqpPeer(broker.port)
        assert peer.send(peer.sender(queue), text(b"2")) == ACCEPTED
        assert got(peer, attach(peer, Terminus(address=queue, kind="source"), credit=5), 2)
        attach(peer, durable("news"), name="sub\nscription")
        with pytest.raises(Refused, match=INVALID):
            peer.sender(other)
        peer.drop()
