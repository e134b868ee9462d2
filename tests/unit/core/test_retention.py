"""What is forgotten after a while, and what no wrong clock makes a broker forget (promises 1 and 2)."""

from __future__ import annotations

import pytest

from legato import limits
from legato.core.facts import DuplicateDropped, MessageStored, ProducerForgotten, ProducerRegistered
from legato.core.records import ProducerRecord
from legato.core.steady import STEP_MAX_US
from legato.ids import make_txn_id
from tests.support.scenario import Scenario

HOUR_S = 3600.0
HOUR_US = 3_600_000_000
WALL_US = 1_700_000_000_000_000
JUMPS_S = [25 * HOUR_S, 8 * 24 * HOUR_S, -25 * HOUR_S, -8 * 24 * HOUR_S]


@pytest.fixture
def s(monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """A broker that keeps no producer beyond the retention."""
    monkeypatch.setattr(limits, "PRODUCERS_KEPT", 0)
    monkeypatch.setattr(limits, "OUTCOMES_KEPT", 0)
    scenario = Scenario()
    scenario.now_us = scenario.broker.now_us = WALL_US
    scenario.wait(0.2)
    return scenario


def jump(s: Scenario, seconds: float) -> None:
    """The wall clock jumps, and the broker does what it does each minute."""
    s.now_us += round(seconds * 1_000_000)
    s.wait(0.2)
    upkeep(s)


def upkeep(s: Scenario) -> None:
    s.broker.producers.forget_unused()
    s.run()
    while s.store.prune(s.now_us):
        pass


def serve(s: Scenario, seconds: float) -> None:
    """So much time passes, in the largest steps that count."""
    for _ in range(round(seconds * 1_000_000 / STEP_MAX_US) + 1):
        s.now_us += STEP_MAX_US
        s.broker.tick(s.now_us)
    s.run()


def send(s: Scenario, name: str, number: int, token: str) -> None:
    s.broker.publisher.publish_numbered(
        s.broker.directory.queue("q"), b"x", f"{name}-{number}", token, s.broker.producers.attach(name), number
    )
    s.run()


def stored(s: Scenario) -> list[int]:
    return [fact.number for fact in s.facts if isinstance(fact, MessageStored)]


# -- producers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", JUMPS_S)
def test_no_jump_of_the_clock_makes_an_attached_producer_forgotten(s: Scenario, seconds: float) -> None:
    """A repaired clock, a resumed machine: what is sent again after a takeover is stored once (promise 1)."""
    send(s, "p", 7, "sent")
    jump(s, seconds)
    send(s, "p", 8, "in flight")
    jump(s, seconds)
    after = s.crash()
    jump(after, seconds)
    send(after, "p", 8, "again")
    assert (stored(s), stored(after)) == ([7, 8], [])
    assert after.confirmed == ["again"]
    assert DuplicateDropped(1, 8) in after.facts


@pytest.mark.parametrize("seconds", JUMPS_S)
def test_no_jump_makes_a_producer_forgotten_that_is_away_for_a_moment(s: Scenario, seconds: float) -> None:
    """Its client lost the connection and comes back within the reconnect time, before or after a takeover."""
    producer = s.broker.producers.attach("p")
    s.broker.publisher.publish_numbered(s.broker.directory.queue("q"), b"x", "x", "in flight", producer, 1)
    s.broker.producers.detach(producer, forget=False)
    s.run()
    jump(s, seconds)
    after = s.crash()
    jump(after, seconds)
    send(after, "p", 1, "again")
    assert stored(after) == []


def test_an_idle_producer_that_is_attached_is_never_forgotten(s: Scenario) -> None:
    producer = s.broker.producers.attach("p")
    s.broker.publisher.publish_numbered(s.broker.directory.queue("q"), b"x", "x", "t", producer, 7)
    s.run()
    serve(s, limits.PRODUCER_RETENTION_S + HOUR_S)
    upkeep(s)
    s.broker.producers.detach(producer, forget=False)
    s.publish("q", b"a commit")
    serve(s, HOUR_S)
    upkeep(s)
    assert s.store.producer("p") == ProducerRecord(
        1, "p", 7, seen_us=s.broker.kernel.steady.now_us - HOUR_US - STEP_MAX_US
    )
    serve(s, limits.PRODUCER_RETENTION_S)
    upkeep(s)
    assert s.store.producer("p") is None


def test_a_producer_whose_numbers_are_not_durable_yet_is_not_forgotten(s: Scenario) -> None:
    send(s, "p", 1, "t")
    producer = s.broker.producers.attach("p")
    for _ in range(2):
        s.broker.producers.detach(producer, forget=False)
    s.run()
    serve(s, limits.PRODUCER_RETENTION_S + HOUR_S)
    producer = s.broker.producers.attach("p")
    s.broker.publisher.publish_numbered(s.broker.directory.queue("q"), b"x", "x", "in flight", producer, 2)
    s.broker.producers.detach(producer, forget=False)
    upkeep(s)
    assert s.crash().broker.producers.attach("p").last == 2


def test_producers_are_forgotten_only_beyond_the_number_kept(s: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was stopped for days goes on with a send in flight: it is known unless there are very many."""
    monkeypatch.setattr(limits, "PRODUCERS_KEPT", 2)
    monkeypatch.setattr(limits, "PRODUCERS_REVIEWED", 2)
    for name in ("a", "b", "c", "d", "e"):
        send(s, name, 1, name)
    after = s.crash()
    serve(after, limits.PRODUCER_RETENTION_S + HOUR_S)
    attached = after.broker.producers.attach("a")
    for _ in range(9):
        upkeep(after)
    assert after.store.producers_count() == 2
    assert sum(isinstance(fact, ProducerForgotten) for fact in after.facts) == 3
    assert after.crash().broker.producers.attach("a").last == attached.last == 1


def test_a_producer_that_comes_back_while_it_is_being_forgotten_is_a_new_one(s: Scenario) -> None:
    """The store still has its record when it attaches: it must not be attached to what the next commit removes."""
    send(s, "p", 5, "t")
    old = s.broker.producers.attach("p")
    s.broker.producers.detach(old, forget=False)
    s.broker.producers.detach(old, forget=True)
    new = s.broker.producers.attach("p")
    assert (new.id, new.last) == (old.id + 1, 0)
    s.run()
    s.broker.publisher.publish_numbered(s.broker.directory.queue("q"), b"x", "x", "in flight", new, 1)
    s.run()
    after = s.crash()
    assert after.broker.producers.attach("p").last == 1
    assert ProducerRegistered(new.id, "p") in s.facts


def test_a_producer_that_comes_back_before_its_end_is_stored_survives_a_full_disk(s: Scenario) -> None:
    send(s, "p", 5, "t")
    old = s.broker.producers.attach("p")
    s.broker.producers.detach(old, forget=False)
    s.broker.producers.detach(old, forget=True)
    s.full = True
    s.run()
    send(s, "p", 1, "u")
    assert s.crash().broker.producers.attach("p").last == 1


# -- outcomes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", JUMPS_S)
def test_no_jump_of_the_clock_leaves_the_outcome_of_a_commit_unknown(s: Scenario, seconds: float) -> None:
    """Promise 2: committed, or rolled back by the takeover; both are known."""
    committed, rolled_back = s.broker.transactions.declare("me"), s.broker.transactions.declare("me")
    for txn in (committed, rolled_back):
        live = s.broker.transactions.find(txn, "me")
        assert live is not None
        s.broker.transactions.publish(live, s.broker.directory.queue("q"), b"x", "x")
    s.broker.transactions.discharge(committed, "me", fail=False, token="cut off")
    s.run()
    after = s.crash()
    jump(after, seconds)
    after.broker.transactions.discharge(committed, "me again", fail=False, token="committed")
    after.broker.transactions.discharge(rolled_back, "me again", fail=False, token="rolled back")
    after.run()
    assert after.discharged == ["committed"]
    assert after.discharge_refused == {"rolled back": "amqp:transaction:rollback"}


def test_an_outcome_is_forgotten_after_its_retention_and_that_is_said(s: Scenario) -> None:
    committed = s.broker.transactions.declare("me")
    live = s.broker.transactions.find(committed, "me")
    assert live is not None
    s.broker.transactions.publish(live, s.broker.directory.queue("q"), b"x", "x")
    s.broker.transactions.discharge(committed, "me", fail=False, token="t")
    s.run()
    serve(s, limits.OUTCOME_RETENTION_S)
    s.publish("q", b"the steady clock is stored with a commit")
    upkeep(s)
    assert not s.store.outcome(committed)
    s.broker.transactions.discharge(committed, "me", fail=False, token="late")
    s.run()
    assert s.discharge_refused == {"late": "amqp:transaction:unknown-id"}


def test_a_session_that_waited_for_days_for_its_first_message_learns_its_outcome(
    s: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction was declared when the one before ended: it is old, and what became of it is known."""
    monkeypatch.setattr(limits, "OUTCOMES_KEPT", 1)
    declared = s.broker.transactions.declare("me")
    serve(s, 2 * limits.OUTCOME_RETENTION_S)
    s.publish("q", b"the first message")
    upkeep(s)
    after = s.crash()
    after.broker.transactions.discharge(declared, "me again", fail=False, token="rolled back")
    after.run()
    assert after.discharge_refused == {"rolled back": "amqp:transaction:rollback"}


def test_ids_of_transactions_rise_when_the_clock_goes_back(s: Scenario) -> None:
    first = s.broker.transactions.declare("me")
    jump(s, -25 * HOUR_S)
    assert first < s.broker.transactions.declare("me") < make_txn_id(s.broker.epoch + 1, 0)


# -- what is kept for clients that return --------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", JUMPS_S)
def test_no_jump_of_the_clock_takes_from_a_client_the_time_to_come_back(s: Scenario, seconds: float) -> None:
    """CONTRACT B21: what its application has seen is still its own."""
    s.publish("q", b"1")
    consumer = s.consumer("q", 1, exact=True, link="l")
    s.present(consumer, 1)
    s.lose(consumer)
    s.now_us += round(seconds * 1_000_000)
    s.wait(1.0)
    other = s.consumer("q", 1, name="other")
    assert s.received(other) == []
    s.consumer("q", 1, exact=True, link="l", held=[1])
    assert s.elsewhere == []
