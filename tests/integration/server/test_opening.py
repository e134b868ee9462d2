"""Connections as they open: what is offered, and who may have which client id (AMQP.md A1)."""

from legato.amqp.connection import Connection, Settings
from legato.amqp.events import Closed, Opened
from legato.amqp.terminus import Terminus
from tests.integration.server.conftest import Connect
from tests.integration.server.wire import detached
from tests.support.amqp_peer import AmqpPeer, text
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
    """AMQP.md A1.4."""
    offered = {"ANONYMOUS-RELAY", "DELAYED_DELIVERY", "SHARED-SUBS", SOLE}
    assert offered <= set(peer.opened.offered_capabilities)


def test_a_client_id_in_use_is_refused_with_the_reason_that_clients_know(broker: Server, connect: Connect) -> None:
    """AMQP.md A1.7: an open with a property that says it failed, then a close that says why."""
    connect("taken")
    refused = SolePeer(broker.port, "taken")
    assert refused.opened.properties["amqp:connection-establishment-failed"] is True
    closed = refused.expect(Closed)
    assert closed.condition == "amqp:invalid-field"
    assert closed.info == {"invalid-field": "container-id"}
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
