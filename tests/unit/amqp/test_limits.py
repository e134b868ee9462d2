"""What the engine does not enforce and we do (amqp.md C4)."""

from __future__ import annotations

from typing import cast

import pytest
from cproton import lib

from legato import limits
from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import Closed, Detached, SessionEnded, Transfer, TransferAborted
from legato.amqp.engine.link import Sender
from legato.amqp.engine.terminus import Terminus
from tests.unit.amqp.pair import Pair, of

pytestmark = pytest.mark.usefixtures("either_way")


def send_part(sender: Sender, part: bytes) -> None:
    """Begin a message of which more is to come."""
    sender.begin(b"t")
    sender.push(part)


def force_credit(sender: Sender, credit: int) -> None:
    """Make the client's engine believe that it was granted more than it was, by a flow the server did not send."""
    window = b"\x70\x7f\xff\xff\xff"
    fields = b"\x43" + window + b"\x43" + window + b"\x43\x43" + bytes((0x52, credit)) + b"\x43\x42"
    flow = b"\x00\x53\x13" + bytes((0xC0, len(fields) + 1, 9)) + fields
    connection = cast(Connection, sender.connection)
    connection.receive_data((len(flow) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + flow)


def test_transfers_beyond_the_credit_end_the_link_and_nothing_else(pair: Pair) -> None:
    sender, receiver = pair.outgoing(credit=2)
    force_credit(sender, 5)
    for number in range(5):
        sender.send(b"%d" % number, b"t")
    events, to_server = pair.exchange()
    assert [transfer.data for transfer in of(to_server, Transfer)] == [b"0", b"1"]
    (detached,) = of(events, Detached)
    assert (detached.closed, detached.condition) == (True, "amqp:link:transfer-limit-exceeded")
    assert receiver.closed
    assert not pair.server.closed


def test_a_partial_transfer_without_credit_ends_the_link(pair: Pair) -> None:
    sender, _ = pair.outgoing(credit=0)
    force_credit(sender, 1)
    send_part(sender, b"begin")
    events, to_server = pair.exchange()
    assert of(to_server, Transfer) == []
    assert [event.condition for event in of(events, Detached)] == ["amqp:link:transfer-limit-exceeded"]


def test_a_message_too_large_ends_the_link(pair: Pair) -> None:
    sender, _ = pair.outgoing(max_message_bytes=1000)
    assert sender.remote_max_message_bytes == 1000
    sender.send(bytes(1000), b"fits")
    sender.send(bytes(1001), b"not")
    events, to_server = pair.exchange()
    assert [transfer.tag for transfer in of(to_server, Transfer)] == [b"fits"]
    assert [event.condition for event in of(events, Detached)] == ["amqp:link:message-size-exceeded"]


def test_a_message_of_many_frames_too_large_ends_the_link_before_its_end() -> None:
    pair = Pair(server={"max_frame_bytes": 1024}).opened()
    sender, receiver = pair.outgoing(max_message_bytes=10_000)
    send_part(sender, bytes(9_000))
    assert pair.exchange() == ([], [])
    sender.push(bytes(2_000))
    events, to_server = pair.exchange()
    assert of(to_server, Transfer) == []
    assert [event.condition for event in of(events, Detached)] == ["amqp:link:message-size-exceeded"]
    assert receiver.session.partial_bytes == 0
    pair.free()


@pytest.mark.parametrize("frame_bytes", [limits.FRAME_BYTES_LEAST, 512 << 10, limits.FRAME_BYTES_MOST])
def test_messages_come_whatever_the_largest_frame_is(frame_bytes: int) -> None:
    """The engine's window was closed where a session's capacity did not fit into 32 bits."""
    pair = Pair(client={"max_frame_bytes": frame_bytes}, server={"max_frame_bytes": frame_bytes}).opened()
    sender, _ = pair.outgoing()
    _, answering = pair.incoming()
    sender.send(b"there", b"t")
    answering.send(b"back", b"t")
    to_client, to_server = pair.exchange()
    assert [transfer.data for transfer in of(to_server, Transfer)] == [b"there"]
    assert [transfer.data for transfer in of(to_client, Transfer)] == [b"back"]
    pair.free()


def test_a_message_of_many_frames_is_assembled() -> None:
    pair = Pair(server={"max_frame_bytes": 1024}).opened()
    sender, receiver = pair.outgoing()
    data = bytes(range(256)) * 200
    sender.send(data, b"t")
    sender.send(b"after", b"u")
    _, events = pair.exchange()
    assert [transfer.data for transfer in of(events, Transfer)] == [data, b"after"]
    assert receiver.session.partial_bytes == 0
    pair.free()


def test_messages_of_two_links_in_turns_are_kept_apart() -> None:
    pair = Pair(server={"max_frame_bytes": 1024}).opened()
    one, _ = pair.outgoing()
    two, _ = pair.outgoing()
    send_part(one, b"a" * 3000)
    send_part(two, b"b" * 3000)
    assert pair.exchange() == ([], [])
    for sender, letter in ((one, b"A"), (two, b"B")):
        sender.push(letter * 3000)
        sender.finish()
    _, events = pair.exchange()
    assert sorted(transfer.data for transfer in of(events, Transfer)) == [
        b"a" * 3000 + b"A" * 3000,
        b"b" * 3000 + b"B" * 3000,
    ]
    pair.free()


def test_unfinished_messages_of_a_session_are_bounded_together() -> None:
    pair = Pair(server={"max_message_bytes": 50_000, "session_window_bytes": 60_000}).opened()
    session, remote = pair.session()
    senders = [session.sender(f"s{number}", target=Terminus(address="q")) for number in range(3)]
    pair.exchange()
    for link in remote.links:
        link.accept()
        link.add_credit(1)  # type: ignore[attr-defined]
    pair.exchange()
    for sender in senders:
        send_part(sender, bytes(25_000))
    events, _ = pair.exchange()
    assert [event.condition for event in of(events, Detached)] == ["amqp:resource-limit-exceeded"]
    assert remote.partial_bytes == 50_000
    pair.free()


def test_an_aborted_message_is_dropped_and_uses_its_credit(pair: Pair) -> None:
    sender, receiver = pair.outgoing(credit=5)
    send_part(sender, b"never mind")
    pair.exchange()
    sender.abort()
    sender.send(b"next", b"u")
    _, events = pair.exchange()
    assert [type(event) for event in events] == [TransferAborted, Transfer]
    assert [transfer.data for transfer in of(events, Transfer)] == [b"next"]
    assert receiver.credit == lib.pn_link_credit(receiver._pn) == 3
    assert receiver.session.partial_bytes == 0
    assert receiver.unsettled == 1


def test_the_session_announces_a_window(pair: Pair) -> None:
    _, receiver = pair.outgoing()
    assert lib.pn_session_get_incoming_capacity(receiver.session._pn) >= limits.SESSION_WINDOW_BYTES


def test_too_many_links_end_the_session(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LINKS_PER_SESSION", 3)
    session, remote = pair.session()
    for number in range(4):
        session.sender(f"s{number}", target=Terminus(address="q"))
    events, _ = pair.exchange()
    assert [event.condition for event in of(events, SessionEnded)] == ["amqp:resource-limit-exceeded"]
    assert remote.closed
    assert not pair.server.closed


@pytest.mark.parametrize(("attaches", "ends"), [(7, False), (8, True)])
def test_who_goes_on_attaching_links_to_a_session_that_was_ended_loses_the_connection(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, attaches: int, ends: bool
) -> None:
    """The engine keeps each: 120,000 took 150 MB, and 2 ms each at last. Those under way at the end are no offence."""
    monkeypatch.setattr(limits, "MAX_LINKS_PER_SESSION", 3)
    session, _ = pair.session()
    for number in range(attaches):
        session.sender(f"s{number}", target=Terminus(address="q"))
    client, _ = pair.exchange()
    assert pair.server.closed is ends
    assert [event.condition for event in of(client, Closed)] == ["amqp:resource-limit-exceeded"] * ends


def test_a_second_link_of_the_same_name_costs_the_peer_its_connection(pair: Pair) -> None:
    """amqp.md C2.4: the engine treats it as an error of the connection."""
    session, _ = pair.session()
    session.sender("same", target=Terminus(address="q"))
    pair.exchange()
    session.sender("same", target=Terminus(address="q"))
    pair.exchange()
    assert pair.server.closed
