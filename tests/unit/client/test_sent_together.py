"""What a producer sends without waiting goes to the engine together. Without sockets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from legato.amqp.engine import batch
from legato.amqp.engine.events import Attached
from legato.amqp.engine.link import Receiver
from legato.client.failover.contract import CONTRACTS
from legato.client.links.routing import route
from legato.client.links.sender_end import SenderEnd
from legato.client.links.session_state import Send
from legato.client.messages.destinations import Queue
from tests.unit.amqp.pair import Pair


@pytest.mark.skipif(not batch.bypasses, reason="the module was not compiled, is forbidden, or of before")
def test_large_messages_are_not_joined() -> None:
    pair = Pair().opened()
    session, _ = pair.session()
    channel: Any = SimpleNamespace(
        contract=CONTRACTS["legato"],
        coordinator=None,
        session=session,
        restored=lambda end: None,
        touch=lambda: None,
    )
    end = SenderEnd(channel, "p", Queue("q"))
    end.attach()
    _, events = pair.exchange()
    (receiver,) = [event.link for event in events if isinstance(event, Attached)]
    assert isinstance(receiver, Receiver)
    receiver.accept()
    receiver.add_credit(9)
    to_client, _ = pair.exchange()
    assert [*route(to_client)] == []
    sends = [Send(number, bytes(3000), None) for number in (1, 2, 3, 4)]
    end.outgoing.waiting.extend(sends)
    end.pump()
    assert pair.client._bypass is not None
    given = [sent.content.obj for sent in pair.client._bypass._sent.values()]
    assert len(given) == 4
    assert all(mine is send.data for mine, send in zip(given, sends, strict=True))
    pair.free()
