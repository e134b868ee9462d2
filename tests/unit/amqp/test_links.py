"""Opening, refusing, detaching and closing: links, sessions, connections."""

from __future__ import annotations

import pytest

from legato.amqp.codec.types import Described, Symbol, UInt, ULong
from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import Attached, Closed, Detached, Opened, SessionBegan, SessionEnded, Transfer
from legato.amqp.engine.link import Link, Session
from legato.amqp.engine.outcomes import ACCEPTED
from legato.amqp.engine.settings import Settings
from legato.amqp.engine.terminus import Terminus
from tests.unit.amqp.pair import Pair, of

pytestmark = pytest.mark.usefixtures("either_way")

SELECTOR = {"jms-selector": Described(ULong(0x0000468C00000004), "price > 3")}


def test_open_says_who_and_what_the_peer_is() -> None:
    properties = {"product": "x", "n": ULong(7), "list": [{Symbol("network-host"): "a", Symbol("port"): UInt(1)}]}
    pair = Pair(client={"hostname": "v", "properties": properties, "desired_capabilities": ["A", "B"]})
    pair.client.open()
    _, events = pair.exchange()
    assert events == [Opened("client", "v", properties, ["A", "B"], [])]
    pair.server.settings.offered_capabilities = ["ONE"]
    pair.server.open()
    events, _ = pair.exchange()
    assert events == [Opened("server", None, {}, [], ["ONE"])]
    pair.free()


def test_a_refused_connection_says_so_in_its_open() -> None:
    """amqp.md A1.7: without the property Qpid JMS reports success first."""
    pair = Pair()
    pair.client.open()
    pair.exchange()
    info = {"invalid-field": Symbol("container-id")}
    pair.server.refuse("amqp:invalid-field", "in use", info)
    events, _ = pair.exchange()
    opened, closed = events
    assert isinstance(opened, Opened)
    assert opened.properties == {"amqp:connection-establishment-failed": True}
    assert closed == Closed("amqp:invalid-field", "in use", False, info)
    pair.free()


def test_a_session_that_was_closed_before_it_was_answered_does_not_end_the_next_one(pair: Pair) -> None:
    """The engine gave its channel to the next session, and took the peer's Begin and End for that one's."""
    short = pair.client.begin_session()
    (began,) = pair.server.receive_data(pair.client.data_to_send())
    assert isinstance(began, SessionBegan)
    began.session.open()
    answer = pair.server.data_to_send()
    short.close()
    to_server = pair.server.receive_data(pair.client.data_to_send())
    kept = pair.client.begin_session()
    to_server += pair.server.receive_data(pair.client.data_to_send())
    to_client = pair.client.receive_data(answer)
    ended: list[Session] = []
    for _ in range(4):
        ended += [event.session for event in to_client if isinstance(event, SessionEnded)]
        for event in to_server:
            if isinstance(event, SessionBegan):
                event.session.open()
            elif isinstance(event, SessionEnded):
                event.session.close()
        to_client, to_server = pair.exchange()
    assert kept not in ended
    assert len(ended) == 1


@pytest.mark.parametrize("condition", ["", "amqp:connection:forced"])
def test_a_server_answers_a_close_when_it_is_ready(pair: Pair, condition: str) -> None:
    pair.client.close(condition, "bye")
    events, to_server = pair.exchange()
    assert to_server == [Closed(condition, "bye" if condition else "", not condition)]
    assert events == []
    assert pair.server.close_unanswered
    pair.server.close()
    assert pair.exchange() == ([Closed("", "", True)], [])
    assert pair.client.closed
    assert pair.server.closed
    assert not pair.server.close_unanswered


def test_a_client_answers_a_close_by_itself(pair: Pair) -> None:
    pair.server.close("amqp:connection:forced", "bye")
    events, to_server = pair.exchange()
    assert events == [Closed("amqp:connection:forced", "bye", False)]
    assert to_server == [Closed("", "", True)]


def test_what_was_pipelined_before_a_local_close_is_not_reported(pair: Pair) -> None:
    sender, _ = pair.outgoing()
    sender.send(b"late", b"t")
    sender.session.sender("more", target=Terminus(address="q"))
    pair.client.begin_session()
    data = pair.client.data_to_send()
    pair.server.close("amqp:connection:forced", "enough")
    assert pair.server.receive_data(data) == []
    assert [type(event) for event in pair.exchange()[0]] == [Closed]


def test_an_end_of_input_without_close_is_not_clean(pair: Pair) -> None:
    (closed,) = pair.server.receive_eof()
    assert isinstance(closed, Closed)
    assert not closed.clean
    assert pair.server.receive_eof() == []


def test_a_links_termini_reach_the_other_side(pair: Pair) -> None:
    session, _ = pair.session()
    source = Terminus(
        address="topic",
        durable=2,
        expiry_policy="never",
        timeout_s=5,
        distribution_mode="copy",
        capabilities=["topic", "shared"],
        filters=SELECTOR,
        outcomes=["amqp:accepted:list"],
        kind="source",
    )
    properties = {"legato:held": ULong(1 << 40), "flag": True}
    client_link = session.receiver("subscription|1", source=source, properties=properties, snd_settle_mode=1)
    _, events = pair.exchange()
    (attached,) = of(events, Attached)
    assert attached.link.name == "subscription|1"
    assert attached.link.remote_source == source
    assert attached.link.remote_target.kind == "target"
    assert attached.link.remote_properties == properties
    assert attached.link.remote_snd_settle_mode == 1
    attached.link.accept(properties={"answer": "yes"})
    events, _ = pair.exchange()
    assert of(events, Attached) == [Attached(client_link)]
    assert client_link.remote_source == source
    assert client_link.remote_properties == {"answer": "yes"}
    assert client_link.remote_snd_settle_mode == 1


def test_a_single_capability_may_come_without_an_array(pair: Pair) -> None:
    session, _ = pair.session()
    session.sender("s", target=Terminus(address="q", capabilities=["queue"]))
    _, events = pair.exchange()
    assert of(events, Attached)[0].link.remote_target.capabilities == ["queue"]


def test_a_coordinator_and_an_anonymous_relay_are_told_apart(pair: Pair) -> None:
    """amqp.md C2.6."""
    session, _ = pair.session()
    session.sender("tx", target=Terminus(kind="coordinator", capabilities=["amqp:local-transactions"]))
    session.sender("relay", target=Terminus())
    _, events = pair.exchange()
    coordinator, relay = [attached.link for attached in of(events, Attached)]
    assert coordinator.remote_target == Terminus(
        kind="coordinator", capabilities=["amqp:local-transactions"], expiry_policy="session-end"
    )
    assert (relay.remote_target.kind, relay.remote_target.address) == ("target", None)


def test_a_dynamic_node_gets_its_address(pair: Pair) -> None:
    session, _ = pair.session()
    lifetime = {"lifetime-policy": Described(ULong(0x2B), [])}
    link = session.sender("temp", target=Terminus(dynamic=True, properties=lifetime))
    _, events = pair.exchange()
    (attached,) = of(events, Attached)
    assert attached.link.remote_target.dynamic
    assert attached.link.remote_target.properties == lifetime
    attached.link.accept(target=Terminus(address="temp/1", dynamic=True))
    pair.exchange()
    assert (link.remote_target.address, link.remote_target.dynamic) == ("temp/1", True)


@pytest.mark.parametrize("receives", [False, True])
def test_a_refused_link_has_no_terminus_and_says_why(pair: Pair, receives: bool) -> None:
    session, _ = pair.session()
    if receives:
        link: Link = session.receiver("r", source=Terminus(address="q"))
    else:
        link = session.sender("s", target=Terminus(address="q"))
    _, events = pair.exchange()
    of(events, Attached)[0].link.refuse("amqp:not-found", "no q")
    events, _ = pair.exchange()
    attached, detached = events
    assert attached == Attached(link)
    missing = attached.link.remote_source if receives else attached.link.remote_target
    assert missing.kind == "none"
    assert detached == Detached(link, True, "amqp:not-found", "no q")


@pytest.mark.parametrize("closed", [False, True])
def test_detaching_tells_whether_it_is_for_good(pair: Pair, closed: bool) -> None:
    receiver, sender = pair.incoming()
    receiver.close() if closed else receiver.detach()
    _, events = pair.exchange()
    assert events == [Detached(sender, closed, "", "")]
    sender.close() if closed else sender.detach()
    events, _ = pair.exchange()
    assert events == [Detached(receiver, closed, "", "")]
    assert receiver.session.links == sender.session.links == []


def test_a_name_can_be_used_again_after_detaching(pair: Pair) -> None:
    session, remote = pair.session()
    for _ in range(3):
        receiver = session.receiver("again", source=Terminus(address="q"))
        _, events = pair.exchange()
        link = of(events, Attached)[0].link
        link.accept()
        receiver.detach()
        _, events = pair.exchange()
        assert of(events, Detached)
        link.detach()
        pair.exchange()
    assert remote.links == session.links == []


@pytest.mark.parametrize("closed", [False, True])
def test_a_name_can_be_used_again_in_one_breath(pair: Pair, closed: bool) -> None:
    """Left alone, the engine writes attaches before detaches, which costs the connection (amqp.md C2.4)."""
    receiver, old = pair.incoming()
    receiver.close() if closed else receiver.detach()
    fresh = receiver.session.receiver("in", source=Terminus(address="other"))
    fresh.add_credit(1)
    _, events = pair.exchange()
    (detached,), (attached,) = of(events, Detached), of(events, Attached)
    assert detached.link is old
    assert attached.link is not old
    detached.link.close() if closed else detached.link.detach()
    attached.link.accept()
    attached.link.send(b"m", b"t")
    events, _ = pair.exchange()
    assert [transfer.link for transfer in of(events, Transfer)] == [fresh]


@pytest.mark.parametrize("by_client", [False, True])
def test_ending_a_session_takes_its_links_along(pair: Pair, by_client: bool) -> None:
    receiver, sender = pair.incoming()
    first, second = receiver.session, sender.session
    if not by_client:
        first, second = second, first
    first.close("amqp:internal-error" if not by_client else "", "oops")
    events = pair.exchange()[1 if by_client else 0]
    (ended,) = of(events, SessionEnded)
    assert ended.session is second
    assert ended.condition == ("" if by_client else "amqp:internal-error")
    second.close()
    answer = pair.exchange()[0 if by_client else 1]
    assert of(answer, SessionEnded)[0].session is first
    assert receiver.closed
    assert sender.closed
    assert pair.client._sessions == pair.server._sessions == {}
    assert pair.client._links == pair.server._links == {}


def test_the_server_may_begin_as_many_sessions_as_the_client_likes(pair: Pair) -> None:
    for _ in range(5):
        pair.client.begin_session()
    _, events = pair.exchange()
    assert len(of(events, SessionBegan)) == 5


def test_everything_on_a_closed_connection_does_nothing() -> None:
    pair = Pair().opened()
    sender, receiver = pair.outgoing()
    handle = sender.send(b"m", b"t")
    _, events = pair.exchange()
    delivery = of(events, Transfer)[0].delivery
    pair.free()
    receiver.settle(delivery)
    receiver.update(delivery, ACCEPTED)
    receiver.add_credit(1)
    assert not receiver.drain(1)
    sender.confirm(handle)
    assert sender.send(b"m", b"t") == 0
    assert sender.drained() == sender.credit == receiver.queued == 0
    sender.close()
    receiver.detach()
    receiver.accept()
    receiver.refuse("a", "b")
    sender.session.open()
    sender.session.close()
    assert sender.session.sender("x", target=Terminus()).closed
    assert pair.client.begin_session().receiver("x", source=Terminus()).closed
    for end in (pair.client, pair.server):
        end.open()
        end.close("a:b", "c")
        end.refuse("a:b", "c")
        end.free()
        assert end.data_to_send() == b""
        assert end.receive_data(b"x") == end.receive_eof() == end.take_events() == []
        assert end.tick(1) == 0


def test_settings_do_not_share_their_lists() -> None:
    one, other = Settings(container_id="1"), Settings(container_id="2")
    one.properties["x"] = 1
    assert other.properties == {}
    connection = Connection(server=True, settings=one)
    assert not connection.closed
    connection.free()
