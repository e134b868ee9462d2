"""Questions that are not answered yet: they are counted and bounded, and go with who asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from legato import limits
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import Properties, encode_message
from legato.amqp.engine.events import Disposition
from legato.amqp.engine.link import Sender
from legato.amqp.engine.outcomes import ACCEPTED, Rejected
from legato.amqp.names import MANAGEMENT_ADDRESS
from legato.server.links.membership import Membership
from legato.server.process.service import Service
from tests.support.amqp_peer import AmqpPeer
from tests.support.broker_in_process import BrokerInProcess, broker_in_process

PADDING = "x" * 2000


def question(to: str = "", padding: str = PADDING) -> bytes:
    """What anybody may ask."""
    return encode_message(
        header=Header(),
        properties=Properties(message_id="question", to=to or None),
        application_properties={"operation": "read", "type": "group", "padding": padding},
    )


class Held:
    """Questions are not answered until they are `released`."""

    def __init__(self) -> None:
        self.released = False
        self.begun = self.ended = 0

    def whereabouts(
        self, _: Membership, addresses: Iterable[str], done: Callable[[dict[str, Any]], None]
    ) -> Iterator[None]:
        """See `Membership.whereabouts`."""
        self.begun += 1
        try:
            while not self.released:
                yield
            done({})
        finally:
            self.ended += 1


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    held = Held()
    monkeypatch.setattr(
        Membership, "whereabouts", lambda membership, *arguments: held.whereabouts(membership, *arguments)
    )
    return held


@pytest.fixture
def broker(held: Held) -> Iterator[BrokerInProcess]:
    with broker_in_process() as running:
        yield running


def pose(peer: AmqpPeer, link: Sender, count: int, data: bytes) -> None:
    """Ask so often; who asks hears at once that it was asked."""
    for number in range(count):
        link.send(data, number.to_bytes(4, "big"), None)
    peer.flush()
    for _ in range(count):
        assert peer.expect(Disposition, lambda event: event.link is link).outcome == ACCEPTED


def unread_bytes(service: Service) -> int:
    return sum(peer.unread_bytes for peer in service.peers)


@pytest.mark.parametrize("relay", [False, True])
def test_credit_comes_back_with_the_answer_and_until_then_a_question_counts(
    relay: bool, held: Held, broker: BrokerInProcess
) -> None:
    """Else one peer asks faster than the broker answers, without end."""
    peer = AmqpPeer(broker.port)
    peer.receiver(MANAGEMENT_ADDRESS, 100)
    link = peer.sender(None if relay else MANAGEMENT_ADDRESS)
    granted = link.credit
    pose(peer, link, 100, question(MANAGEMENT_ADDRESS))
    peer.sender("orders")  # Whatever credit was given came before this.
    assert link.credit == granted - 100
    assert broker.ask(unread_bytes) > 100 * len(PADDING)
    held.released = True
    broker.until(lambda service: held.ended == 100 and unread_bytes(service) == 0)
    pose(peer, link, 1, question(MANAGEMENT_ADDRESS))
    if not relay:
        peer.sender("orders")
        assert link.credit >= granted // 2
    peer.drop()


def test_questions_go_with_who_asked(held: Held, broker: BrokerInProcess) -> None:
    """Nothing of them is left, though they were not answered."""
    peer = AmqpPeer(broker.port)
    pose(peer, peer.sender(MANAGEMENT_ADDRESS), 30, question())
    other = AmqpPeer(broker.port, container="other")
    pose(other, other.sender(MANAGEMENT_ADDRESS), 1, question())
    broker.until(lambda service: held.begun == 31)
    peer.drop()
    broker.until(lambda service: held.ended == 30)
    held.released = True
    broker.until(lambda service: held.ended == 31)
    other.drop()


def test_the_relay_takes_no_larger_request_than_a_link_of_the_management_address(broker: BrokerInProcess) -> None:
    peer = AmqpPeer(broker.port)
    relay = peer.sender(None)
    outcome = peer.send(relay, question(MANAGEMENT_ADDRESS, "x" * limits.REQUEST_BYTES_MAX))
    assert isinstance(outcome, Rejected)
    assert outcome.condition == "amqp:link:message-size-exceeded"
    assert "262144 bytes" in outcome.description
    assert peer.send(relay, question(MANAGEMENT_ADDRESS)) == ACCEPTED
    peer.drop()
