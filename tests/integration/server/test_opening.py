"""Connections as they open: what is offered, and who may have which client id (amqp.md A1)."""

from collections.abc import Iterator

import pytest

from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import Closed, Event, Opened
from legato.amqp.engine.link import Link
from legato.amqp.engine.outcomes import ACCEPTED, Rejected
from legato.amqp.engine.settings import Settings
from legato.amqp.engine.terminus import Terminus
from legato.server.links.attachment import Links
from legato.server.links.link_endings import LinkEnding
from legato.server.messages import translator
from legato.server.process.service import Service
from legato.server.shell import Peer
from tests.integration.server.conftest import Connect
from tests.integration.server.wire import detached
from tests.support.amqp_peer import AmqpPeer, text
from tests.support.broker_in_process import BrokerInProcess, broker_in_process
from tests.support.server import Server

SOLE = "sole-connection-for-container"


class SolePeer(AmqpPeer):
    """Wants to be the only connection of its container id, as Qpid JMS does."""

    def __init__(self, port: int, container: str, policy: int | None = None) -> None:
        self._policy = policy
        super().__init__(port, container=container)

    def _negotiate(self, sasl: object) -> bytes:
        leftover = super()._negotiate(sasl)  # type: ignore[arg-type]
        properties = {} if self._policy is None else {"sole-connection-enforcement-policy": self._policy}
        settings = Settings(
            container_id=self.amqp.settings.container_id, desired_capabilities=[SOLE], properties=properties
        )
        self.amqp.free()
        self.amqp = Connection(server=False, settings=settings)
        return leftover


def test_the_open_offers_what_qpid_jms_looks_for(peer: AmqpPeer) -> None:
    """amqp.md A1.4."""
    offered = {"ANONYMOUS-RELAY", "DELAYED_DELIVERY", "SHARED-SUBS", SOLE}
    assert offered <= set(peer.opened.offered_capabilities)


def test_a_client_id_in_use_is_refused_with_the_reason_that_clients_know(broker: Server, connect: Connect) -> None:
    """amqp.md A1.7: an open with a property that says it failed, then a close that says why."""
    connect("taken")
    refused = SolePeer(broker.port, "taken")
    assert refused.opened.properties["amqp:connection-establishment-failed"] is True
    closed = refused.expect(Closed)
    assert closed.condition == "amqp:invalid-field"
    assert closed.info == {"invalid-field": "container-id"}
    refused.drop()


def test_an_empty_container_id_is_refused(broker: Server) -> None:
    """A container's id is what tells it from others (AMQP 2.4.1, 2.7.1). All with an empty one were one container: they
    took each other's links over, and their durable subscriptions were those that are shared by all."""
    for _ in range(2):
        refused = AmqpPeer(broker.port, container="")
        assert refused.opened.properties["amqp:connection-establishment-failed"] is True
        closed = refused.expect(Closed)
        assert closed.condition == "amqp:invalid-field"
        assert closed.info == {"invalid-field": "container-id"}
        assert "client id" in closed.description
        refused.drop()


def test_a_client_id_is_free_again_when_its_connection_is_closed(broker: Server) -> None:
    first = SolePeer(broker.port, "again")
    first.close()
    second = SolePeer(broker.port, "again")
    assert "amqp:connection-establishment-failed" not in second.opened.properties
    second.drop()


def test_who_does_not_ask_to_be_alone_may_share_a_container_id(connect: Connect) -> None:
    for _ in range(2):
        assert isinstance(connect("common").opened, Opened)


def test_a_client_may_ask_that_its_older_connection_gives_way(broker: Server, connect: Connect) -> None:
    older = connect("moving")
    receiver = older.receiver("moved", 5)
    newer = SolePeer(broker.port, "moving", policy=1)
    closed = older.expect(Closed)
    assert closed.condition == "amqp:resource-locked"
    assert closed.info == {"sole-connection-enforcement": True}
    assert receiver.closed
    newer.drop()


def test_a_session_that_ends_takes_its_links_along(connect: Connect, peer: AmqpPeer) -> None:
    peer.receiver("ended", 5)
    peer.session.close()
    peer.session = peer.amqp.begin_session()
    other = connect()
    other.send(other.sender("ended"), text(b"x"))
    assert peer.receiver("ended", 1)
    assert peer.transfer()


def test_a_refused_link_says_why_and_the_session_goes_on(peer: AmqpPeer) -> None:
    link = peer.session.sender("null", target=Terminus(kind="none"))
    peer.flush()
    assert detached(peer, link).condition == "amqp:invalid-field"
    assert peer.sender("fine").credit


@pytest.mark.parametrize(("asked", "told"), [(None, 0), (0, 0), (1, 1)])
def test_who_wants_to_be_alone_is_told_how_that_is_kept(broker: Server, asked: int | None, told: int) -> None:
    """AMQP, Enforcing Connection Uniqueness 2: detection is strong, since one process serves."""
    sole = SolePeer(broker.port, f"told {asked}", policy=asked)
    assert sole.opened.properties["sole-connection-detection-policy"] == 0
    assert sole.opened.properties["sole-connection-enforcement-policy"] == told
    sole.drop()


@pytest.mark.parametrize("kind", ["sender", "receiver"])
def test_a_link_is_attached_in_one_session_at_a_time(peer: AmqpPeer, kind: str) -> None:
    """AMQP 2.6.1: the second attach of a name succeeds, and the first link is closed as stolen."""
    terminus = {"target" if kind == "sender" else "source": Terminus(address="one", kind="")}
    first = getattr(peer.session, kind)("the link", **terminus)
    peer._attached(first)
    peer.session = peer.amqp.begin_session()
    second = getattr(peer.session, kind)("the link", **terminus)
    peer._attached(second)
    assert detached(peer, first).condition == "amqp:link:stolen"
    assert not second.closed


def test_links_of_either_direction_may_have_the_same_name(peer: AmqpPeer) -> None:
    """AMQP 2.6.1: a link's name is unique among those of its direction."""
    receiver = peer.receiver("both", 5, name="same")
    sender = peer.sender("both", name="same")
    assert peer.send(sender, text(b"x")) == ACCEPTED
    peer.transfer()
    assert not receiver.closed


def test_coordinators_of_several_sessions_may_have_the_same_name(peer: AmqpPeer) -> None:
    """python-proton calls all of them alike."""
    links = []
    for _ in range(2):
        link = peer.session.sender("txn-ctrl", target=Terminus(kind="coordinator"))
        peer._attached(link)
        links.append(link)
        peer.session = peer.amqp.begin_session()
    while any(link.credit == 0 for link in links):
        peer.events += peer.amqp.receive_data(peer.socket.recv(1 << 16))
    for link in links:
        assert peer.discharge(link, peer.declare(link)) == ACCEPTED


def test_a_message_without_a_section_is_none(peer: AmqpPeer) -> None:
    """AMQP 3.2."""
    sender = peer.sender("empty")
    outcome = peer.send(sender, b"")
    assert isinstance(outcome, Rejected)
    assert outcome.condition == "amqp:decode-error"


MANY = 20
"""Links that one connection has."""


class Leaving:
    """How many links left the broker in each piece of work, where each is over as soon as it may be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pieces = [0]
        handle, gone = Service.handle, Links.gone

        def watched_handle(service: Service, peer: Peer, events: list[Event]) -> list[Event]:
            self.pieces.append(0)
            return handle(service, peer, events)

        def watched_gone(links: Links, peer: Peer, link: Link, ending: LinkEnding) -> None:
            self.pieces[-1] += 1
            gone(links, peer, link, ending)

        monkeypatch.setattr(Service, "handle", watched_handle)
        monkeypatch.setattr(Links, "gone", watched_gone)
        monkeypatch.setattr(translator, "SLICE_MS", 0)


@pytest.fixture
def in_process() -> Iterator[BrokerInProcess]:
    with broker_in_process() as running:
        yield running


def consumers(service: Service) -> int:
    return len(service.broker.directory.queue("many").consumers)


def test_what_gives_way_leaves_in_slices_and_is_gone_before_the_new_one_is_answered(
    in_process: BrokerInProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = AmqpPeer(in_process.port, container="moving")
    for number in range(MANY):
        older.receiver("many", 0, name=f"link {number}")
    assert in_process.ask(consumers) == MANY
    leaving = Leaving(monkeypatch)
    newer = SolePeer(in_process.port, "moving", policy=1)
    assert in_process.ask(consumers) == 0
    assert (sum(leaving.pieces), max(leaving.pieces)) == (MANY, 1)
    closed = older.expect(Closed)
    assert (closed.condition, closed.info) == ("amqp:resource-locked", {"sole-connection-enforcement": True})
    newer.receiver("many", 0)
    assert in_process.ask(lambda service: [peer.container for peer in service.peers if peer.opened]) == ["moving"]
    newer.drop()


def test_who_is_cut_off_leaves_in_slices_and_hears_why_in_the_end(
    in_process: BrokerInProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = AmqpPeer(in_process.port, container="unwanted")
    for number in range(MANY):
        peer.receiver("many", 0, name=f"link {number}")
    leaving = Leaving(monkeypatch)

    def expel(service: Service) -> int:
        unwanted = next(peer for peer in service.peers if peer.container == "unwanted")
        service.expel(unwanted, "it is not wanted")
        service.expel(unwanted, "it is not wanted")
        return consumers(service)

    assert in_process.ask(expel) == MANY - 1
    assert peer.expect(Closed).description == "it is not wanted"
    assert in_process.ask(consumers) == 0
    assert (sum(leaving.pieces), max(leaving.pieces)) == (MANY, 1)
