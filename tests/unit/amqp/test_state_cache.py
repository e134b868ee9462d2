"""States of transactions are kept in their encoded form: each delivery still has its own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.amqp.engine import state_cache
from legato.amqp.engine.events import Disposition, Transfer
from legato.amqp.engine.outcomes import ACCEPTED, DELIVERY_FAILED, IS_DUPLICATE, RELEASED, Modified, Outcome, Rejected
from legato.amqp.engine.outcomes import Transactional as In
from tests.support.examples import examples
from tests.unit.amqp.pair import Pair, of

_IDS = st.sampled_from([b"t1", b"t2", b"\x00" * 32])
_OUTCOMES = st.sampled_from(
    [
        *(ACCEPTED, RELEASED, DELIVERY_FAILED, IS_DUPLICATE, Rejected(), Rejected("a:b", "why"), Rejected("a:b", "no")),
        *(Rejected("a:b", "why", (("count", 1),)), Modified(text="tea"), Modified(text="long " * 100)),
    ]
)


@pytest.mark.usefixtures("either_way")
@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.tuples(_IDS, _OUTCOMES), min_size=1, max_size=20))
def test_each_delivery_has_the_state_that_was_stated_for_it(stated: list[tuple[bytes, Outcome]]) -> None:
    """AMQP 4.5.6: the transaction of a transfer, and the outcome that holds once it commits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_cache, "_KEPT_MAX", 3)
        pair = Pair().opened()
        sender, receiver = pair.outgoing(credit=len(stated))
        for number, (txn_id, _) in enumerate(stated):
            sender.send(b"m", number.to_bytes(8, "big"), number, txn_id=txn_id)
        _, events = pair.exchange()
        transfers = of(events, Transfer)
        assert [transfer.txn_id for transfer in transfers] == [txn_id for txn_id, _ in stated]
        for transfer, (txn_id, outcome) in zip(transfers, stated, strict=True):
            receiver.settle(transfer.delivery, In(txn_id, outcome))
        events, _ = pair.exchange()
        told = {event.context: event.outcome for event in of(events, Disposition)}
        assert told == {number: In(*each) for number, each in enumerate(stated)}
        pair.free()
