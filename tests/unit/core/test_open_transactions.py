"""Open transactions by owner: what each of them takes, and that nothing is left of those that ended."""

from __future__ import annotations

from legato.core.transactions import TRANSACTION_BYTES
from tests.support.scenario import Scenario


def test_what_those_of_an_owner_take_is_known_without_looking_at_each() -> None:
    scenario = Scenario()
    broker = scenario.broker
    transactions, queue = broker.transactions, broker.directory.queue("q")
    first, second = (transactions.find(transactions.declare("ann"), "ann") for _ in range(2))
    other = transactions.find(transactions.declare("bob"), "bob")
    assert first is not None
    assert second is not None
    assert other is not None
    for transaction, body in ((first, b"x" * 100), (first, b"y" * 20), (second, b"z" * 3), (other, b"o" * 7)):
        transactions.publish(transaction, queue, body, "")
    assert transactions.of("ann") == [first, second]
    assert (transactions.count("ann"), transactions.held_bytes("ann")) == (2, 2 * TRANSACTION_BYTES + 123)
    transactions.discharge(first.id, "ann", fail=False, token="t")
    assert (transactions.count("ann"), transactions.held_bytes("ann")) == (1, TRANSACTION_BYTES + 3)
    transactions.roll_back(second, "client")
    transactions.roll_back(second, "client")
    assert (transactions.count("ann"), transactions.held_bytes("ann")) == (0, 0)
    assert transactions.held_bytes("bob") == TRANSACTION_BYTES + 7
    transactions.disconnect("ann")
    transactions.disconnect("bob")
    assert transactions.held_bytes("bob") == 0
    assert not broker.open_transactions.by_id
