"""A client that closes behind the last part of a large message, without waiting: what came before is handled first."""

import pytest

from legato.amqp.codec.message import Properties
from legato.amqp.engine.events import Closed
from legato.amqp.engine.outcomes import ACCEPTED
from legato.server.messages import translator
from tests.integration.server.wire import message
from tests.support.amqp_peer import AmqpPeer
from tests.support.broker_in_process import broker_in_process
from tests.support.large import MIB, head, push_large


def test_a_large_message_whose_sender_closes_behind_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its upload was given up as soon as the Close was read, while its last part waited for its turn: an internal error
    cut the client off."""
    monkeypatch.setattr(translator, "SLICE_MS", 0)
    with broker_in_process() as broker:
        peer = AmqpPeer(broker.port)
        sender, relay = peer.sender("large"), peer.sender(None)
        sender.begin(b"large", None, settled=True)
        sender.push(head(2 * MIB))
        push_large(peer, sender, 2 * MIB)
        # Whose answer comes when all parts but the last one have been sent.
        assert peer.send(relay, message(b"x", properties=Properties(to="small"))) == ACCEPTED
        for _ in range(40):
            relay.send(message(b"x", properties=Properties(to="small")), peer._name().encode(), settled=True)
        sender.finish()
        peer.amqp.close()
        peer.flush()
        closed = peer.expect(Closed)
        peer.drop()
        assert (closed.condition, broker.ask(lambda service: service.internal_errors)) == ("", 0)
        assert broker.ask(lambda service: service.broker.directory.queue("small").depth) == 41
        assert broker.ask(lambda service: service.broker.directory.queue("large").depth) == 1
