"""Who only looks whether a message is there hears, too, that the broker has closed the consumer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from legato.client import Connection, InvalidDestinationError, Queue, management
from tests.integration.client.calling import until
from tests.support.broker import BrokerPair


@pytest.mark.parametrize("prefetch", [0, 10])
def test_who_polls_hears_that_the_queue_was_deleted(
    connect: Callable[..., Connection], brokers: BrokerPair, queue_name: str, prefetch: int
) -> None:
    session = connect().create_session()
    consumer = session.create_consumer(Queue(queue_name), prefetch=prefetch)
    assert consumer.receive_no_wait() is None
    management.request(brokers.url, "delete", "queue", queue_name)
    until(lambda: consumer._end.error is not None)
    with pytest.raises(InvalidDestinationError, match="deleted"):
        consumer.receive_no_wait()
    with pytest.raises(InvalidDestinationError, match="deleted"):
        consumer.receive(timeout_s=0)
    consumer.close()
    assert consumer.receive_no_wait() is None
