"""Transactions that send to addresses with limits: what has room is committed."""

from legato.core.settings import AddressSettings
from legato.core.traits import Traits
from tests.support.scenario import Scenario


def test_a_transaction_is_committed_if_what_it_sends_has_room_by_bytes() -> None:
    """It was reckoned with the average of what waits, with 1024 bytes in an empty queue: it could never commit."""
    s = Scenario()
    s.settings["q"] = AddressSettings(max_bytes=1000, when_full="fail")
    queue = s.broker.directory.queue("q")
    owner = object()
    transaction = s.broker.transactions.find(s.broker.transactions.declare(owner), owner)
    assert transaction is not None
    for body in (b"1", b"2", b"3"):
        s.broker.transactions.publish(transaction, queue, body, body.decode())
    s.broker.transactions.discharge(transaction.id, owner, fail=False, token="commit")
    s.run()
    assert s.reasons == {}
    assert s.discharged == ["commit"]
    assert queue.depth == 3


def test_bytes_that_a_transaction_has_no_room_for_are_refused() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(max_bytes=100, when_full="fail")
    s.publish("q", b"x")
    queue = s.broker.directory.queue("q")
    owner = object()
    transaction = s.broker.transactions.find(s.broker.transactions.declare(owner), owner)
    assert transaction is not None
    for body in (b"y" * 60, b"z" * 60, b"w" * 60):
        s.broker.transactions.publish(transaction, queue, body, body.decode())
    s.broker.transactions.discharge(transaction.id, owner, fail=False, token="commit")
    s.run()
    assert s.discharge_refused == {"commit": "amqp:transaction:rollback"}
    assert queue.depth == 1


def test_a_duplicate_needs_no_room_in_a_transaction_either() -> None:
    """A client that does not know whether its commit was stored sends it again: nothing of it is to be stored."""
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=1, when_full="fail")
    s.publish("q", b"1", duplicate_id=b"a")
    s.publish("q", b"1 again", duplicate_id=b"a")
    assert s.duplicates == [b"1 again"]
    queue = s.broker.directory.queue("q")
    owner = object()
    transaction = s.broker.transactions.find(s.broker.transactions.declare(owner), owner)
    assert transaction is not None
    s.broker.transactions.publish(transaction, queue, b"1", "1", Traits(duplicate_id=b"a"))
    s.broker.transactions.discharge(transaction.id, owner, fail=False, token="commit")
    s.run()
    assert s.reasons == {}
    assert s.discharged == ["commit"]
    assert queue.depth == 1
