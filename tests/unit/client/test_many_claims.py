"""Thousands of messages that the application holds over a failover: what is decided costs one look at each."""

from __future__ import annotations

from collections import deque

from legato.client.links.deliveries import Delivery, DeliveryState, Incoming


class _Inbox(deque[Delivery]):
    """Counts what is looked for in it."""

    searches = 0

    def remove(self, delivery: Delivery, /) -> None:
        self.searches += 1
        super().remove(delivery)


def test_what_does_not_come_again_is_not_looked_for_among_what_does() -> None:
    """With 16,000 messages that took a second, in which the I/O thread did nothing else."""
    incoming = Incoming()
    tags = [number.to_bytes(8, "big") for number in range(1, 101)]
    held = [Delivery(None, 0, number, tag, b"") for number, tag in enumerate(tags)]
    incoming.outstanding = dict(zip(tags, held, strict=True))
    incoming.connection_lost(keep=True, again=True, resolve=False)
    incoming.inbox = inbox = _Inbox()
    incoming.claims_answered(50, [])
    for number, tag in enumerate(tags[:50]):
        incoming.arrived(None, number, tag, b"")
    assert list(inbox) == held[:50]
    assert {delivery.state for delivery in held[50:]} == {DeliveryState.ELSEWHERE}
    assert inbox.searches == 0


def test_what_a_call_gave_back_leaves_the_inbox_with_what_is_decided() -> None:
    incoming = Incoming()
    delivery = Delivery(None, 0, 1, b"1", b"")
    incoming.outstanding[b"1"] = delivery
    incoming.connection_lost(keep=True)
    incoming.inbox.append(delivery)
    incoming.claims_answered(0, [])
    assert not incoming.inbox
