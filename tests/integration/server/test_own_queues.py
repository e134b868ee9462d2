"""Queues of the broker's own: what waits there is not an administrator's to purge, move or delete as a queue."""

from __future__ import annotations

import pytest

from legato.amqp.engine.outcomes import ACCEPTED
from tests.integration.server.test_management import Manager
from tests.integration.server.wire import got, message
from tests.support.amqp_peer import AmqpPeer


@pytest.mark.parametrize(
    ("operation", "arguments"), [("DELETE", {}), ("PURGE", {}), ("MOVE", {"to": "moved here"}), ("PAUSE", {})]
)
def test_delayed_messages_are_not_lost_by_what_is_asked_of_the_schedule(
    peer: AmqpPeer, operation: str, arguments: dict[str, str]
) -> None:
    """Deleted, it went on to take messages, which were confirmed and lost."""
    manager = Manager(peer)
    address = f"delayed {operation}"
    sender = peer.sender(address)
    later = {"x-opt-delivery-delay": 1000}
    assert peer.send(sender, message(b"before", annotations=later)) == ACCEPTED
    status, _ = manager.ask(operation, "$schedule", **arguments)
    assert peer.send(sender, message(b"after", annotations=later)) == ACCEPTED
    assert manager.ask("CREATE", "moved here")[0] == 200
    receiver = peer.receiver(address, 2)
    bodies = got(peer, receiver, 2 if status != 200 else 1)
    assert bodies[-1] == b"after"
    assert status == 403


@pytest.mark.parametrize("operation", ["DELETE", "PURGE", "PAUSE"])
def test_what_a_pipeline_took_is_not_an_administrators(peer: AmqpPeer, operation: str) -> None:
    """What its pipeline acknowledged at the same time was counted twice; the type `assignment` has its own ways."""
    manager = Manager(peer)
    assert manager.ask("CREATE", "piped")[0] == 200
    assert manager.ask("open", type="assignment", subscription="table", address="piped")[0] == 200
    assert manager.ask(operation, "assignment://table/piped")[0] == 403
    assert manager.ask("READ", "assignment://table/piped")[0] == 200
