"""A session keeps nothing of producers and links that are closed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from legato.client import Connection
from tests.integration.client.helpers import WAIT_S

Connect = Callable[..., Connection]


def links(session: Any) -> list[object]:
    """What the I/O thread has for the session's producers, once it has done what it was told to."""
    transport = session._channel.transport
    done = threading.Event()
    transport.post(done.set)
    transport.hurry()
    assert done.wait(WAIT_S)
    return list(session._channel.senders)


def reply_to_deleted(connect: Connect, producer: Any) -> None:
    """Send to a queue for replies that is deleted, as who has asked does when he has his reply."""
    asking = connect()
    queue = asking.create_session().create_temporary_queue()
    producer.send("reply", destination=queue)
    end = producer._routes[queue].end
    asking.close()
    assert end.channel.gate.wait(lambda: end.closed, WAIT_S)


def test_a_producer_keeps_no_links_to_deleted_destinations(connect: Connect, queue_name: str) -> None:
    """It kept one for each, and each commit and failover looked at all of them."""
    session = connect().create_session()
    producer = session.create_producer()
    for _ in range(5):
        reply_to_deleted(connect, producer)
    producer.send("stays", destination=session.create_queue(queue_name))
    assert len(producer._routes) == 1
    assert len(links(session)) == 1
    producer.close()
    assert links(session) == []
