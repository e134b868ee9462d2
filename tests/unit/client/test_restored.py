"""Links that come back after a loss of the connection, or do not: the last one ends the outage. Without sockets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from legato.amqp.engine.events import Detached
from legato.client.failover.contract import CONTRACTS
from legato.client.links.coordinator_end import CoordinatorEnd
from legato.client.links.receiver_end import ReceiverEnd
from legato.client.links.sender_end import SenderEnd
from legato.client.links.session_state import AcknowledgeMode, Send, Transaction
from legato.client.messages.destinations import Queue
from legato.errors import JMSError
from legato.limits import MAX_FRAME_BYTES


class Link:
    """A link that nobody has answered."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Channel(SimpleNamespace):
    """A session that remembers which links came back, or never will."""

    def __init__(self) -> None:
        connection = SimpleNamespace(remote_max_frame_bytes=MAX_FRAME_BYTES)
        super().__init__(
            mode=AcknowledgeMode.AUTO,
            contract=CONTRACTS["legato"],
            coordinator=None,
            closing=False,
            sends_given_up=0,
            session=SimpleNamespace(receiver=Link, sender=Link, connection=connection),
            reported=[],
            back=[],
        )

    def restored(self, end: Any) -> None:
        self.back.append(end)

    def report(self, error: JMSError, *, usual: bool = False) -> None:
        self.reported.append(error)

    def touch(self) -> None:
        pass

    def forget_sender(self, end: Any) -> None:
        pass

    forget_receiver = forget_sender


def sender(channel: Any) -> SenderEnd:
    return SenderEnd(channel, "p", Queue("q"))


def receiver(channel: Any) -> ReceiverEnd:
    source: Any = SimpleNamespace(
        properties=dict, terminus=lambda: None, destination=Queue("q"), selector=None, durable=False
    )
    return ReceiverEnd(channel, "c", source, 10)


def coordinator(channel: Any) -> CoordinatorEnd:
    return CoordinatorEnd(channel, "t", Transaction())


def refuse(end: Any) -> None:
    """The broker refuses a link."""
    end.on_detached(Detached(end.link, closed=True, condition="amqp:not-found", description="It is gone.", info={}))


@pytest.mark.parametrize("make", [sender, receiver, coordinator])
def test_a_link_that_is_refused_while_its_owner_closes_it_is_not_waited_for(make: Any) -> None:
    channel = Channel()
    end = make(channel)
    end.attach()
    link = end.link
    channel.closing = True
    if make is not coordinator:
        end.close()
        assert not end.closed
    refuse(end)
    assert channel.back == [end]
    assert link.closed
    assert end.link is None


def test_who_waits_for_the_sends_of_such_a_link_hears_of_the_refusal() -> None:
    """They were never done: a close waited for them as long as the option `close_timeout_s` says."""
    channel = Channel()
    end = sender(channel)
    end.ready = True
    send = Send(1, b"", None)
    end.outgoing.waiting.append(send)
    end.attach()
    end.close()
    refuse(end)
    assert send.done
    assert send.error is not None
    assert "It is gone" in str(send.error)
    assert end.closed
    assert channel.back == [end]
