"""Open transactions by owner: what each of them takes, and that nothing is left of those that ended."""

from __future__ import annotations

import pytest

from legato import limits
from legato.core.transactions import MESSAGE_BYTES, TRANSACTION_BYTES
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
    assert (transactions.count("ann"), transactions.held_bytes("ann")) == (
        2,
        2 * TRANSACTION_BYTES + 123 + 3 * MESSAGE_BYTES,
    )
    transactions.discharge(first.id, "ann", fail=False, token="t")
    assert (transactions.count("ann"), transactions.held_bytes("ann")) == (
        1,
        TRANSACTION_BYTES + 3 + MESSAGE_BYTES,
    )
    transactions.roll_back(second, "client")
    transactions.roll_back(second, "client")
    assert (transactions.count("ann"), transactions.held_bytes("ann")) == (0, 0)
    assert transactions.held_bytes("bob") == TRANSACTION_BYTES + 7 + MESSAGE_BYTES
    transactions.disconnect("ann")
    transactions.disconnect("bob")
    assert transactions.held_bytes("bob") == 0
    assert not broker.open_transactions.by_id


@pytest.mark.parametrize("sent", [0, 2, 4])
def test_one_with_too_many_messages_can_only_roll_back(sent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end is one piece of work: with millions of small sends or acknowledgements the loop stood still."""
    monkeypatch.setattr(limits, "TRANSACTION_MESSAGES_MAX", 3)
    scenario = Scenario()
    scenario.publish("in", b"1", b"2", b"3", b"4")
    consumer = scenario.consumer("in", credit=10)
    scenario.run()
    broker, transactions = scenario.broker, scenario.broker.transactions
    txn_id = transactions.declare("ann")
    transaction = transactions.find(txn_id, "ann")
    assert transaction is not None
    for _ in range(sent):
        transactions.publish(transaction, broker.directory.queue("out"), b"x", "")
    for message in scenario.in_hand(consumer)[: 4 - sent]:
        transactions.acknowledge(transaction, consumer, message)
    assert transactions.held_bytes("ann") == TRANSACTION_BYTES + 4 * MESSAGE_BYTES + sent
    transactions.discharge(txn_id, "ann", fail=False, token="t")
    scenario.run()
    assert scenario.reasons == {"t": "it has more than 3 messages; commit more often"}
    assert (broker.directory.queue("in").depth, broker.directory.queue("out").depth) == (4, 0)
    scenario.check()
