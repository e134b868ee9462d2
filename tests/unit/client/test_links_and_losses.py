"""Transactions and links of a session whose connection is lost at one moment, and at another: without sockets."""

from __future__ import annotations

import contextlib
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from legato.amqp.codec.coordinator import Declare, Discharge, decode_coordinator
from legato.amqp.engine.outcomes import ACCEPTED, Declared, Rejected, Transactional
from legato.client.calls.session_guard import SessionGuard
from legato.client.calls.session_transactions import SessionTransactions
from legato.client.calls.turn import ThreadTurn
from legato.client.calls.undertakings import Undertakings
from legato.client.failover.contract import CONTRACTS
from legato.client.failover.disconnect_reason import Detection, Loss
from legato.client.failover.uri import Host
from legato.client.links.channel import Channel
from legato.client.links.completion import Completion, Completions
from legato.client.links.outages import Outages
from legato.client.links.session_state import AcknowledgeMode, Send, Transaction
from legato.client.steps import Steps
from legato.errors import JMSError, TransactionRolledBackError
from tests.unit.client.scripted import CONSUMER, COORDINATOR, PRODUCER, Broker, TransactedClient

GONE = JMSError("gone")


def _asked(broker: Broker) -> list[Any]:
    return [(decode_coordinator(each.data), each.delivery) for each in broker.taken(COORDINATOR)]


def _committed_in_doubt(client: TransactedClient, broker: Broker, body: bytes) -> Transaction:
    """A commit is on the wire when the connection is lost."""
    client.connect(broker)
    broker.attach(COORDINATOR)
    broker.attach(PRODUCER)
    broker.declare(b"1")
    client.send(body)
    (sent,) = broker.taken(PRODUCER)
    broker.links[PRODUCER].settle(sent.delivery, Transactional(b"1", ACCEPTED))
    ended = client.commit()
    assert [each for each, _ in _asked(broker)] == [Discharge(b"1", False), Declare()]
    client.lose()
    assert ended.outcome is False
    return ended


def test_a_transaction_is_declared_once(brokers: list[Broker]) -> None:
    """It was declared twice: what was sent under the first name was not committed, and commit() returned."""
    first, second, third = brokers
    client = TransactedClient("hornetq")
    _committed_in_doubt(client, first, b"doubtful")
    client.connect(second)
    second.attach(COORDINATOR)
    client.send(b"doomed")
    client.lose()
    client.connect(third)
    third.attach(COORDINATOR)
    third.giving[CONSUMER].accept()
    third.exchange()
    # commit() of the doomed one: messages have to stop first.
    assert client.commit().outcome is None
    ((query, delivery),) = _asked(third)
    assert query == Discharge(b"1", False)
    third.links[COORDINATOR].settle(delivery, ACCEPTED)
    third.exchange()
    third.giving[CONSUMER].drained()
    third.exchange()
    client.send(b"kept")
    third.attach(PRODUCER)
    for number, (asked, declare) in enumerate(_asked(third)):
        assert asked == Declare()
        third.links[COORDINATOR].settle(declare, Declared(b"3%d" % number))
    third.exchange()
    committing = client.commit()
    (sent,) = third.taken(PRODUCER)
    discharges = [asked for asked, _ in _asked(third) if isinstance(asked, Discharge)]
    assert committing.outcome is None
    assert sent.txn_id is not None
    assert discharges == [Discharge(sent.txn_id, False)]


def _transactions(client: TransactedClient) -> SessionTransactions:
    """The application's side, as far as `replay()` needs it."""
    guard: Any = SimpleNamespace(used=contextlib.nullcontext, channel=client.channel)
    undertakings: Any = SimpleNamespace(current=None)
    return SessionTransactions(
        guard,
        undertakings,
        client.current,
        tell_duplicates=None,  # type: ignore[arg-type]
        open_ids=set,
        ask_groups=None,  # type: ignore[arg-type]
    )


def _replay(client: TransactedClient, transactions: SessionTransactions, aborted: Transaction) -> int:
    """`commit()` has told that `aborted` is rolled back; then `replay()`."""
    transactions._disposed = deque(aborted.sends)
    transactions.current = client.current
    return transactions.replay()


def test_what_was_replayed_twice_is_not_sent_if_it_is_stored(brokers: list[Broker]) -> None:
    """It was sent twice if the connection was lost again before the broker said that the first commit was done."""
    first, second, third = brokers
    client = TransactedClient("gigaspaces")
    transactions = _transactions(client)
    doubtful = _committed_in_doubt(client, first, b"once")
    assert _replay(client, transactions, doubtful) == 1
    client.connect(second)
    second.attach(COORDINATOR)
    second.attach(PRODUCER)
    client.lose()
    doomed = client.commit()
    assert doomed.outcome is False
    assert _replay(client, transactions, doomed) == 1
    committing = client.commit()
    client.connect(third)
    third.attach(COORDINATOR)
    third.attach(PRODUCER)
    ((query, delivery),) = _asked(third)
    assert query == Discharge(b"1", False)
    third.links[COORDINATOR].settle(delivery, ACCEPTED)
    third.exchange()
    third.declare(b"3")
    assert [each.data for each in third.taken(PRODUCER)] == []
    assert [each for each, _ in _asked(third)] == [Discharge(b"3", False), Declare()]
    assert committing.outcome is None


def test_a_failover_ends_though_a_session_closes_meanwhile(brokers: list[Broker]) -> None:
    """It never did, and no failover listener heard of it: the session's coordinator was waited for."""
    ended: list[bool] = []
    outages = Outages(lambda: ended.append(True))
    client = TransactedClient("legato")
    transport = client.transport
    transport.outages = outages
    transport.awaits, transport.restored, transport.forget = outages.awaits, outages.restored, outages.forget
    client.channel = Channel(transport, "s", AcknowledgeMode.SESSION_TRANSACTED, client.current, CONTRACTS["legato"])
    outages.add(client.channel)
    wire = _wire(brokers[0])
    transport.wire = wire
    outages.begin(wire)
    brokers[0].exchange()
    brokers[0].attach(COORDINATOR)
    transport.wire = None
    outages.lost(wire, Loss(Host("h", 1), Detection.LOST, GONE), 0.0)
    wire = transport.wire = _wire(brokers[1])
    outages.begin(wire)
    assert client.commit().outcome is True
    client.channel.close()
    assert client.channel.closed
    brokers[1].exchange()
    assert ended == [True]


def _wire(broker: Broker) -> Any:
    return SimpleNamespace(engine=broker.pair.client, broker="b", epoch=0, host=Host("h", 1))


def test_a_producer_that_the_broker_closed_is_not_attached_again(brokers: list[Broker]) -> None:
    """It was, after a failover: a queue that had been deleted could come into being again by that."""
    first, second, _ = brokers
    client = TransactedClient()
    client.connect(first)
    first.attach(COORDINATOR)
    first.attach(PRODUCER)
    first.links[PRODUCER].close("amqp:resource-deleted", "q was deleted")
    first.exchange()
    assert client.producer.closed
    client.lose()
    client.connect(second)
    second.attach(COORDINATOR)
    assert PRODUCER not in second.links


@pytest.mark.parametrize("contract", ["legato", "hornetq"])
def test_what_closes_is_closed_when_a_loss_leaves_nothing_to_wait_for(brokers: list[Broker], contract: str) -> None:
    """It was not before the next connection: `close()` waited for all of close_timeout_s, and that for nothing."""
    first = brokers[0]
    client = TransactedClient(contract)
    client.connect(first)
    first.attach(COORDINATOR)
    first.attach(PRODUCER)
    first.declare(b"1")
    if contract == "legato":
        client.send(b"of a transaction")
    else:
        completions = Completions(client.channel.gate)
        outgoing = client.producer.outgoing
        outgoing.last_number += 1
        outgoing.waiting.append(Send(1, b"x", None, completion=Completion(lambda message, error: None, completions)))
        client.channel.wake_sender(client.producer)
    assert len(first.taken(PRODUCER)) == 1
    client.producer.close()
    assert not client.producer.closed
    client.lose()
    assert not client.producer.outgoing.under_way
    assert client.producer.closed


def _nothing_to_tell() -> Steps[None]:
    yield from ()


def _callable(client: TransactedClient) -> SessionTransactions:
    guard = SessionGuard(client.channel, ThreadTurn())
    return SessionTransactions(
        guard,
        Undertakings(guard),
        client.current,
        tell_duplicates=_nothing_to_tell,
        open_ids=set,
        ask_groups=None,  # type: ignore[arg-type]
    )


def _interrupt(transactions: SessionTransactions) -> None:
    interrupted = transactions.commit()
    next(interrupted)
    interrupted.close()


@pytest.mark.parametrize("asks_before", [True, False])
def test_a_commit_that_was_interrupted_is_in_doubt_if_the_connection_goes_for_good(asks_before: bool) -> None:
    """The second call said that the connection was lost, and neither that nor which commit is in doubt."""
    client = TransactedClient("legato")
    transactions = _callable(client)
    client.send(b"x")
    client.current.name = b"1"
    _interrupt(transactions)
    again = transactions.commit()
    if asks_before:
        wait: Any = next(again)
        client.channel.abandon(JMSError("gone for good"))
        assert wait.ready()
    else:
        client.channel.abandon(JMSError("gone for good"))
    with pytest.raises(JMSError) as raised:
        again.send(True if asks_before else None)
    assert raised.value.code == "IN_DOUBT"
    assert raised.value.transaction_id == b"1"


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_that_was_interrupted_is_told_after_the_connection_is_gone_for_good(
    brokers: list[Broker], committed: bool
) -> None:
    """It was known, and what was told was only that the connection is lost."""
    first = brokers[0]
    client = TransactedClient("legato")
    transactions = _callable(client)
    client.connect(first)
    first.attach(COORDINATOR)
    first.attach(PRODUCER)
    first.declare(b"1")
    client.send(b"x")
    _interrupt(transactions)
    (sent,) = first.taken(PRODUCER)
    first.links[PRODUCER].settle(sent.delivery, Transactional(b"1", ACCEPTED))
    (_, discharge), _ = _asked(first)
    first.links[COORDINATOR].settle(discharge, ACCEPTED if committed else Rejected("amqp:transaction:rollback", ""))
    first.exchange()
    client.channel.abandon(JMSError("gone for good"))
    again = transactions.commit()
    next(again)
    with pytest.raises(StopIteration if committed else TransactionRolledBackError):
        again.send(True)
