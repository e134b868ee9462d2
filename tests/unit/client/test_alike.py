"""Messages that begin alike are decoded together, and each says what is its own."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from legato.amqp.codec.sections import with_delivery
from legato.client import DeliveryMode, Message, TextMessage
from tests.unit.client.passing import encoded, read

_KINDS = st.tuples(
    st.integers(0, 9), st.sampled_from(DeliveryMode), st.integers(0, 3), st.booleans(), st.booleans(), st.booleans()
)


@given(st.lists(_KINDS, min_size=1, max_size=20), st.booleans())
def test_each_message_says_what_is_its_own_whatever_came_before(kinds: list[tuple[Any, ...]], later: bool) -> None:
    """Those that begin as the one before are read with what is known of that: whenever their headers are asked for."""
    received: list[Message] = []
    for number, (priority, mode, count, flagged, named, typed) in enumerate(kinds):
        message = TextMessage("tea") if typed else Message()
        if named:
            message.properties["name"] = "value"
        data = encoded(message, message_id=f"ID:m:{number}", priority=priority, delivery_mode=mode)
        received.append(read(with_delivery(data, count, flagged)))
        if not later:
            assert received[-1].message_id == f"ID:m:{number}"
    for number, (message, kind) in enumerate(zip(received, kinds, strict=True)):
        priority, mode, count, flagged, named, typed = kind
        assert type(message) is (TextMessage if typed else Message)
        assert message.message_id == f"ID:m:{number}"
        assert (message.priority, message.delivery_mode) == (priority, mode)
        assert message.delivery_count == count + 1
        assert message.redelivered == (flagged or count > 0)
        assert ("name" in message.properties) == named
        assert str(message.destination) == "orders"
