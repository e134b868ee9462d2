"""Open transactions: they count from their declaration on, and who has thousands costs nobody else any time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from legato.amqp.codec.coordinator import encode_declare
from legato.amqp.engine.events import Disposition
from legato.amqp.engine.outcomes import Declared
from legato.core.transactions import TRANSACTION_BYTES
from legato.server.config.addresses import Addresses
from legato.server.process.service import Service
from tests.support.amqp_peer import AmqpPeer
from tests.support.broker_in_process import BrokerInProcess, broker_in_process

COUNT = 400


@pytest.fixture
def broker() -> Iterator[BrokerInProcess]:
    with broker_in_process() as running:
        yield running


def declare(broker: BrokerInProcess, count: int = COUNT) -> AmqpPeer:
    """A peer with so many transactions that do nothing."""
    peer = AmqpPeer(broker.port)
    coordinator = peer.coordinator()
    for _ in range(count // 50):
        for _ in range(50):
            coordinator.send(encode_declare(), peer._name().encode(), None)
        for _ in range(50):
            assert isinstance(peer.expect(Disposition).outcome, Declared)
    return peer


def test_a_transaction_that_does_nothing_counts(broker: BrokerInProcess) -> None:
    peer = declare(broker)
    broker.until(lambda service: service.accounts.total.held_bytes >= COUNT * TRANSACTION_BYTES)
    peer.close()
    broker.until(lambda service: service.accounts.total.held_bytes == 0)
    assert not broker.ask(lambda service: service.broker.open_transactions.by_id)


def steps(service: Service, timeout_s: float = 0.0) -> int:
    """How many steps a review of transactions takes, if addresses have such a time-out."""
    tables = [{"match": "bounded.#", "transaction_timeout_s": timeout_s}] if timeout_s else []
    service.addresses.replace(Addresses(tables))
    return sum(1 for _ in service.timeouts.transactions_in_steps())


def test_a_review_looks_at_what_may_be_due_only_and_in_steps(broker: BrokerInProcess) -> None:
    """Four times a second all were looked at in one go: with many connections the loop stood still."""
    peer = declare(broker)
    assert broker.ask(steps) == 0
    assert broker.ask(lambda service: steps(service, 3600.0)) == 0
    assert broker.ask(lambda service: steps(service, 1e-6)) == COUNT
    assert broker.ask(lambda service: len(service.broker.open_transactions.by_id)) == COUNT
    peer.drop()
