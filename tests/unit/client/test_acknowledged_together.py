"""Sessions below one session are acknowledged together with it: one that raises leaves none of them out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from legato.client.calls.session_acknowledgements import SessionAcknowledgements
from legato.client.calls.session_guard import SessionGuard
from legato.client.calls.turn import ThreadTurn
from legato.client.calls.undertakings import Undertakings
from legato.client.links.channel import Channel
from legato.client.links.deliveries import ACKNOWLEDGED, AckBatch, Delivery, DeliveryState
from legato.client.links.session_state import AcknowledgeMode
from legato.client.steps import drive
from legato.errors import IllegalStateError
from tests.unit.client.test_session_parts import Line


def _received(state: DeliveryState) -> tuple[SessionAcknowledgements, Delivery]:
    """A session with one message, of which an acknowledgement makes that."""
    line: Any = Line()

    def acknowledge(batch: AckBatch) -> None:
        for delivery in batch.deliveries:
            delivery.state, delivery.batch = state, batch
            batch.open -= 1

    line.acknowledge = acknowledge
    guard = SessionGuard(cast("Channel", line), ThreadTurn())
    transactions: Any = SimpleNamespace(current=None, untold=None)
    made = SessionAcknowledgements(
        guard,
        Undertakings(guard),
        transactions,
        AcknowledgeMode.CLIENT,
        run=drive,
        held_by_listener=lambda: None,
    )
    delivery = Delivery(None, 1, 1, b"1", b"")
    made.unacknowledged[delivery] = None
    return made, delivery


def test_what_went_elsewhere_in_one_session_leaves_no_other_one_unacknowledged() -> None:
    """The error says that all else is acknowledged."""
    above, own = _received(ACKNOWLEDGED)
    below, lost = _received(DeliveryState.ELSEWHERE)
    below.join(above)
    with pytest.raises(IllegalStateError, match="all else is acknowledged"):
        drive(above.acknowledge(own))
    assert lost.state is DeliveryState.ELSEWHERE
    assert own.state is ACKNOWLEDGED
