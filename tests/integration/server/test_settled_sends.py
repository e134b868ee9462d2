"""Credit for what is sent settled: once for each message."""

from __future__ import annotations

from legato.amqp.engine.outcomes import ACCEPTED
from tests.support.amqp_peer import AmqpPeer, text

CONFIGURATION = '[[address]]\nmatch = "small"\nmax_messages = 5\nwhen_full = "block"\n'


def test_a_settled_send_of_an_unknown_transaction_gives_its_credit_back_once(peer: AmqpPeer) -> None:
    """Its producer got credit twice for it, more each time, and could pass the limit of the address."""
    sender = peer.sender("small")
    assert sender.credit == 5
    for _ in range(3):
        for _ in range(sender.credit):
            sender.send(text(b"lost"), peer._name().encode(), settled=True, txn_id=b"unknown")
        peer.flush()
        # Whose answer comes behind all of these.
        assert peer.send(peer.sender("other"), text(b"x")) == ACCEPTED
    assert sender.credit <= 5
