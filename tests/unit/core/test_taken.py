"""Who took what others had had: an acknowledgement tells the truth, however many brokers died since (promise 5)."""

from __future__ import annotations

import pytest

from legato import limits
from legato.core.facts import MessageTaken
from legato.core.settings import AddressSettings
from legato.store.memory import MemoryStore
from tests.support.scenario import Scenario


def presented(s: Scenario, *bodies: bytes) -> Scenario:
    """A container `me` has messages, its broker dies; the next one."""
    s.publish("q", *bodies)
    s.consumer("q", len(bodies), exact=True, name="me", link="one")
    return s.crash()


def test_what_another_consumed_in_the_epoch_between_went_elsewhere() -> None:
    """CONTRACT B12: whose acknowledgement was cut off two takeovers ago is told that another receiver had it."""
    s = presented(Scenario(), b"1", b"2", b"3")
    other = s.consumer("q", 2, exact=True, name="other", link="one")
    s.accept(other, *s.in_hand(other))
    third = s.crash()
    back = third.consumer("q", 3, exact=True, name="me", link="one", held=[1, 2, 3])
    assert (third.elsewhere, sorted(back.unsettled)) == ([1, 2], [3])


def test_what_one_consumed_oneself_in_the_epoch_between_did_not_go_elsewhere() -> None:
    """CONTRACT B13: the confirmation was cut off; the acknowledgement counted."""
    s = presented(Scenario(), b"1")
    back = s.consumer("q", 1, exact=True, name="me", link="one", held=[1])
    s.accept(back, *s.in_hand(back))
    third = s.crash()
    third.consumer("q", 1, exact=True, name="me", link="one", held=[1])
    assert third.elsewhere == []


def test_another_link_of_the_same_container_is_another_receiver() -> None:
    s = presented(Scenario(), b"1")
    sibling = s.consumer("q", 1, exact=True, name="me", link="two")
    s.accept(sibling, *s.in_hand(sibling))
    s.consumer("q", 1, exact=True, name="me", link="one", held=[1])
    assert s.elsewhere == [1]


def test_what_another_has_in_an_open_transaction_is_elsewhere() -> None:
    s = presented(Scenario(), b"1")
    other = s.consumer("q", 1, name="other")
    transaction = s.broker.transactions.find(s.broker.transactions.declare("owner"), "owner")
    assert transaction is not None
    s.broker.transactions.acknowledge(transaction, other, other.unsettled[1])
    s.consumer("q", 1, exact=True, name="me", link="one", held=[1])
    assert s.elsewhere == [1]


def test_what_died_expired_or_was_dropped_between_was_not_acknowledged_by_anybody() -> None:
    s = presented(Scenario(), b"1")
    other = s.consumer("q", 1, name="other")
    s.broker.settlement.reject(other, other.unsettled[1], "no")
    s.run()
    third = s.crash()
    third.consumer("q", 1, exact=True, name="me", link="one", held=[1])
    assert third.elsewhere == [1]


def test_what_was_delivered_once_costs_no_record() -> None:
    s = Scenario()
    s.publish("q", b"1", b"2")
    consumer = s.consumer("q", 2, exact=True, name="me")
    s.present(consumer, 1, 2)
    s.accept(consumer, *s.in_hand(consumer))
    assert not [fact for fact in s.facts if isinstance(fact, MessageTaken)]


def test_the_record_is_bounded_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TAKEN_MESSAGES", 2)
    s = presented(Scenario(), b"1", b"2", b"3")
    other = s.consumer("q", 3, exact=True, name="other")
    s.accept(other, *s.in_hand(other))
    assert len(s.broker.directory.queue("q").taken_again) == 2
    third = s.crash()
    third.consumer("q", 0, exact=True, name="me", link="one", held=[1, 2, 3])
    assert third.elsewhere == [2, 3]


def test_of_a_batch_that_found_no_room_only_what_left_is_remembered() -> None:
    """A dead letter that was not stored is still in its queue; what was consumed beside it has left."""
    s = Scenario(MemoryStore())
    s.settings["q"] = AddressSettings(maximum_deliveries=1)
    s = presented(s, b"1", b"2")
    other = s.consumer("q", 2, exact=True, name="other")
    s.broker.settlement.modify(other, other.unsettled[1], failed=True, undeliverable_here=False)
    s.broker.settlement.acknowledge(other, other.unsettled[2], confirm=False)
    s.full = True
    s.run()
    taken = [fact.seq for fact in s.facts if isinstance(fact, MessageTaken)]
    assert (taken, s.broker.directory.queue("q").depth) == ([2], 1)
    back = s.consumer("q", 2, exact=True, name="me", link="one", held=[1, 2])
    assert (s.elsewhere, sorted(back.unsettled)) == ([2], [1])
