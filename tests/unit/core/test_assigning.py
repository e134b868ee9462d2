"""Pipelines take messages by ranges of numbers that last, are done with them in order, and fence one another."""

import pytest

from legato import limits
from legato.core.assignments import Assignment
from legato.core.facts import AssignmentAcknowledged
from legato.core.refusals import AssignmentFencedOff, NotFound, Refusal
from legato.core.settings import AddressSettings
from tests.support.scenario import Scenario

NAME = "assignment://spark/q"
PLENTY = 1 << 40


@pytest.fixture
def s() -> Scenario:
    return Scenario()


def opened(s: Scenario, name: str = NAME, *, latest: bool = False) -> Assignment:
    assignment = s.broker.assignments.open(name, s.broker.directory.queue("q"), latest=latest)
    s.run()
    return assignment


def assigned(s: Scenario, assignment: Assignment, limit: int = 100) -> list[bytes]:
    """Take up to `limit` more; returns all that the assignment holds."""
    s.broker.assignments.assign(assignment, assignment.fence, limit, PLENTY)
    s.run()
    return bodies(s, assignment)


def bodies(s: Scenario, assignment: Assignment) -> list[bytes]:
    return [message.body for message in s.store.messages(assignment.queue.id, 0, 1000, PLENTY)]


def browsed(s: Scenario) -> list[int]:
    """What a browser shows that comes now, by sequence; what is to be committed waits meanwhile."""
    s.shown.clear()
    s.broker.browsers.flow(s.broker.browsers.browse(s.broker.directory.queue("q"), None), 100, True)
    s._perform(s.broker.take_effects())
    while s.go_on():
        pass
    return s.shown


def test_messages_are_assigned_in_order_and_leave_their_queue(s: Scenario) -> None:
    s.publish("q", b"1", b"2", b"3")
    assert assigned(s, opened(s), 2) == [b"1", b"2"]
    assert s.broker.directory.queue("q").depth == 1
    consumer = s.consumer("q", 10)
    assert [message.body for message in s.inbox[consumer]] == [b"3"]


def test_higher_priorities_are_assigned_first(s: Scenario) -> None:
    s.publish("q", b"normal")
    s.publish("q", b"urgent", priority=9)
    assert assigned(s, opened(s), 1) == [b"urgent"]
    assert assigned(s, opened(s), 1) == [b"urgent", b"normal"]


def test_what_a_consumer_has_is_not_assigned_until_it_comes_back(s: Scenario) -> None:
    s.publish("q", b"1", b"2", b"3")
    consumer = s.consumer("q", 1)
    assignment = opened(s)
    assert assigned(s, assignment) == [b"2", b"3"]
    s.broker.settlement.release(consumer, s.in_hand(consumer)[0])
    s.broker.receivers.detach(consumer, clean=True)
    s.run()
    assert assigned(s, assignment) == [b"2", b"3", b"1"]


@pytest.mark.parametrize("returned", [True, False])
def test_a_browser_shows_what_a_consumer_had_below_an_assignment(s: Scenario, returned: bool) -> None:
    """Everything that the queue has is shown, wherever its lanes' windows begin (Jakarta Messaging 4.1.6)."""
    s.publish("q", b"1", b"2", b"3", b"4")
    consumer = s.consumer("q", 1)
    assert assigned(s, opened(s), 2) == [b"2", b"3"]
    if returned:
        s.broker.settlement.release(consumer, s.in_hand(consumer)[0])
        s.broker.receivers.detach(consumer, clean=True)
        s.run()
    assert browsed(s) == [1, 4]


@pytest.mark.parametrize("latest", [True, False])
def test_a_browser_does_not_show_what_is_being_assigned(s: Scenario, latest: bool) -> None:
    s.publish("q", b"1")
    s.publish("q", b"2", priority=9)
    consumer = s.consumer("q", 2)
    assignment = opened(s, latest=latest)
    s.publish("q", b"3", b"4", b"5")
    s.publish("q", b"6", priority=9)
    s.broker.assignments.assign(assignment, assignment.fence, 3, PLENTY)
    shown = browsed(s)
    assert bodies(s, assignment) == []
    s.run()
    assert bodies(s, assignment) == [b"6", b"3", b"4"]
    assert [seq & 0xFF for seq in shown] == [1, 1, 4]
    assert consumer.unsettled_count == 2


def test_what_is_durable_and_not_announced_yet_is_not_assigned(s: Scenario) -> None:
    """The store has it, and a consumer was given it a moment later. The simulator's seed 12020939."""
    s.publish("q", b"1")
    assignment = opened(s)
    for body in (b"2", b"3"):
        s.broker.publisher.publish(s.broker.directory.queue("q"), body, "ID", None)
    batch = s.broker.take_batch(s.now_us)
    assert batch is not None
    s.store.commit(batch)
    stands = s.broker.assignments.assign(assignment, assignment.fence, 10, PLENTY)
    assert (stands.last, stands.waiting) == (1, 2)
    s.broker.committed(s.now_us)
    s.run()
    assert bodies(s, assignment) == [b"1"]
    assert s.received(s.consumer("q", 5)) == [b"2", b"3"]


def test_an_acknowledgement_counts_what_is_durable_and_not_announced_once(s: Scenario) -> None:
    s.publish("q", b"1", b"2")
    assignment = opened(s)
    s.broker.assignments.assign(assignment, assignment.fence, 10, PLENTY)
    batch = s.broker.take_batch(s.now_us)
    assert batch is not None
    s.store.commit(batch)
    s.broker.assignments.acknowledge_through(assignment, assignment.fence, 2)
    s.broker.committed(s.now_us)
    s.run()
    assert [fact.count for fact in s.facts if isinstance(fact, AssignmentAcknowledged)] == [2]
    assert (assignment.queue.depth, assignment.queue.bytes) == (0, 0)


def test_what_came_back_and_waits_is_assigned_and_given_to_nobody_else(s: Scenario) -> None:
    s.publish("q", b"1", b"2")
    first = s.consumer("q", 2)
    s.broker.receivers.detach(first, clean=True)
    s.run()
    assert assigned(s, opened(s)) == [b"1", b"2"]
    assert s.in_hand(s.consumer("q", 5)) == []


def test_what_came_back_twice_of_a_group_is_assigned_once(s: Scenario) -> None:
    """An assertion broke off in the middle: the message was in no place any more. The simulator's seed 5300848."""
    s.publish("q", b"group=g;1")
    consumer = s.consumer("q", 2)
    s.broker.settlement.release(consumer, s.in_hand(consumer)[0])
    s.run()
    assert len(s.in_hand(consumer)) == 1
    s.broker.receivers.detach(consumer, clean=True)
    s.run()
    assert assigned(s, opened(s)) == [b"group=g;1"]


def test_two_calls_before_a_commit_take_nothing_twice(s: Scenario) -> None:
    s.publish("q", b"1", b"2", b"3", b"4")
    assignment = opened(s)
    s.broker.assignments.assign(assignment, assignment.fence, 2, PLENTY)
    stand = s.broker.assignments.assign(assignment, assignment.fence, 2, PLENTY)
    assert stand.last == 4
    s.run()
    assert bodies(s, assignment) == [b"1", b"2", b"3", b"4"]


def test_what_is_being_assigned_is_not_dispatched_before_the_commit(s: Scenario) -> None:
    s.publish("q", b"1", b"2")
    assignment = opened(s)
    s.broker.assignments.assign(assignment, assignment.fence, 1, PLENTY)
    consumer = s.consumer("q", 5)
    assert [message.body for message in s.inbox[consumer]] == [b"2"]


def test_acknowledging_a_number_acknowledges_all_below_it(s: Scenario) -> None:
    s.publish("q", b"1", b"2", b"3")
    assignment = opened(s)
    assigned(s, assignment)
    s.broker.assignments.acknowledge_through(assignment, assignment.fence, 2)
    s.broker.assignments.acknowledge_through(assignment, assignment.fence, 1)
    s.run()
    assert bodies(s, assignment) == [b"3"]
    assert assignment.acknowledged == 2
    assert assignment.queue.depth == 1


def test_a_number_that_was_never_given_cannot_be_acknowledged(s: Scenario) -> None:
    s.publish("q", b"1")
    assignment = opened(s)
    assigned(s, assignment)
    with pytest.raises(Refusal, match="up to 1"):
        s.broker.assignments.acknowledge_through(assignment, assignment.fence, 2)


def test_a_later_run_fences_the_earlier(s: Scenario) -> None:
    s.publish("q", b"1")
    assignment = opened(s)
    old = assignment.fence
    opened(s)
    with pytest.raises(AssignmentFencedOff):
        s.broker.assignments.assign(assignment, old, 1, PLENTY)
    with pytest.raises(AssignmentFencedOff):
        s.broker.assignments.acknowledge_through(assignment, old, 0)
    assert assigned(s, assignment) == [b"1"]


def test_numbers_fence_and_acknowledgements_survive_a_takeover(s: Scenario) -> None:
    s.publish("q", b"1", b"2", b"3")
    assignment = opened(s)
    assigned(s, assignment, 2)
    s.broker.assignments.acknowledge_through(assignment, assignment.fence, 1)
    s.run()
    after = Scenario(s.store)
    again = opened(after)
    assert (again.fence, again.acknowledged, again.last) == (assignment.fence + 1, 1, 2)
    assert assigned(after, again) == [b"2", b"3"]


def test_latest_leaves_what_waits_to_others_also_after_a_takeover(s: Scenario) -> None:
    s.publish("q", b"old")
    s.publish("q", b"old and urgent", priority=9)
    assignment = opened(s, latest=True)
    s.publish("q", b"new")
    assert assigned(s, assignment) == [b"new"]
    after = Scenario(s.store)
    assert assigned(after, opened(after, latest=True)) == [b"new"]
    assert len(after.in_hand(after.consumer("q", 5))) == 2


def test_what_latest_leaves_to_others_goes_to_a_consumer_of_the_same_epoch(s: Scenario) -> None:
    """The window began above what was assigned: what is below waited for the next takeover."""
    s.publish("q", b"old", b"older")
    early = s.consumer("q", 1)
    assignment = opened(s, latest=True)
    s.publish("q", b"new", b"newer")
    assert assigned(s, assignment, 1) == [b"new"]
    assert assigned(s, assignment) == [b"new", b"newer"]
    late = s.consumer("q", 5)
    assert s.received(early) + s.received(late) == [b"old", b"older"]
    assert s.broker.directory.queue("q").main.claimed == set()


def test_what_is_assigned_above_a_floor_is_not_given_while_its_commit_is_under_way(s: Scenario) -> None:
    s.publish("q", b"old")
    assignment = opened(s, latest=True)
    s.publish("q", b"new")
    s.broker.assignments.assign(assignment, assignment.fence, 1, PLENTY)
    consumer = s.consumer("q", 5)
    assert s.received(consumer) == [b"old"]
    assert bodies(s, assignment) == [b"new"]


def test_the_bytes_of_an_assignment_go_with_what_is_acknowledged(s: Scenario) -> None:
    """Management showed 1,000 bytes of ten messages that were done with (`bytes` was never lowered)."""
    s.publish("q", b"1", b"22", b"333", b"4444")
    assignment = opened(s)
    assert assigned(s, assignment, 2) == [b"1", b"22"]
    s.broker.assignments.acknowledge_through(assignment, assignment.fence, 1)
    assert assignment.queue.bytes == 2
    s.broker.assignments.assign(assignment, assignment.fence, 2, PLENTY)
    s.broker.assignments.acknowledge_through(assignment, assignment.fence, 3)
    assert assignment.queue.bytes == 4
    s.broker.assignments.acknowledge_through(assignment, assignment.fence, 4)
    s.run()
    assert assignment.queue.bytes == assignment.queue.depth == 0


def test_a_crash_before_the_commit_assigns_nothing(s: Scenario) -> None:
    s.publish("q", b"1")
    assignment = opened(s)
    s.broker.assignments.assign(assignment, assignment.fence, 1, PLENTY)
    after = Scenario(s.store)
    assert len(after.in_hand(after.consumer("q", 5))) == 1


def test_a_full_store_puts_an_assignment_off(s: Scenario) -> None:
    s.publish("q", b"1", b"2")
    assignment = opened(s)
    s.full = True
    s.broker.assignments.assign(assignment, assignment.fence, 5, PLENTY)
    s.run()
    s.full = False
    s.run()
    assert bodies(s, assignment) == [b"1", b"2"]


def test_a_queue_whose_consumers_select_is_refused(s: Scenario) -> None:
    s.publish("q", b"1")
    assignment = opened(s)
    consumer = s.consumer("q", 0, wants=b"2")
    with pytest.raises(Refusal, match="selectors"):
        s.broker.assignments.assign(assignment, assignment.fence, 5, PLENTY)
    s.broker.receivers.detach(consumer, clean=True)
    assert assigned(s, assignment) == [b"1"]


def test_a_deleted_queue_has_nothing_to_assign(s: Scenario) -> None:
    assignment = opened(s)
    s.broker.deletion.delete(s.broker.directory.queue("q"))
    s.run()
    with pytest.raises(NotFound):
        s.broker.assignments.assign(assignment, assignment.fence, 5, PLENTY)


def test_expiry_leaves_alone_what_is_being_assigned(s: Scenario) -> None:
    s.publish("q", b"1", expires_us=s.now_us + 100)
    assignment = opened(s)
    s.broker.assignments.assign(assignment, assignment.fence, 1, PLENTY)
    s.now_us += 1_000_000
    s.broker.tick(s.now_us)
    s.run()
    assert bodies(s, assignment) == [b"1"]


@pytest.mark.parametrize("loaded", [False, True])
def test_what_has_expired_is_not_assigned(s: Scenario, loaded: bool) -> None:
    """Also where no look at the clock has removed it yet."""
    s.publish("q", b"1")
    s.publish("q", b"2", expires_us=s.now_us + 100)
    s.publish("q", b"3")
    if loaded:
        s.consumer("q", 0)
    assignment = opened(s)
    s.now_us = s.broker.now_us = s.now_us + 200
    assert assigned(s, assignment) == [b"1", b"3"]
    assert s.broker.directory.queue("q").depth == 0


def test_a_full_address_has_room_again_when_it_was_assigned(s: Scenario) -> None:
    s.settings["q"] = AddressSettings(max_messages=2, when_full="block")
    s.publish("q", b"1", b"2")
    queue = s.broker.directory.queue("q")
    assert s.broker.backpressure.room(queue) == 0
    assigned(s, opened(s))
    assert s.rooms == ["q"]
    assert s.broker.backpressure.room(queue) == 2


def test_what_is_released_goes_back_to_its_queue_and_the_assignment_can_be_deleted(s: Scenario) -> None:
    s.publish("q", b"1", b"2", b"3")
    assignment = opened(s)
    fence = assignment.fence
    assigned(s, assignment)
    s.broker.assignments.acknowledge_through(assignment, fence, 1)
    s.run()
    with pytest.raises(Refusal, match="release"):
        s.broker.assignments.delete(assignment)
    s.broker.assignments.release(assignment, "released")
    s.run()
    assert s.finished["released"] == 2
    with pytest.raises(AssignmentFencedOff):
        s.broker.assignments.assign(assignment, fence, 5, PLENTY)
    s.broker.assignments.delete(assignment)
    s.run()
    assert s.broker.assignments.find(NAME) is None
    assert [message.body for message in s.inbox[s.consumer("q", 5)]] == [b"2", b"3"]


@pytest.mark.parametrize("durable", [True, False])
def test_what_went_back_is_not_acknowledged_with_the_numbers_around_it(s: Scenario, durable: bool) -> None:
    """The log would say that it left twice, and the queue that more was consumed than was stored."""
    s.publish("q", b"1", b"2", b"3")
    assignment = opened(s)
    assigned(s, assignment)
    s.broker.assignments.release(assignment, "released")
    s.broker.go_on(s.now_us)
    if durable:
        s.run()
    s.broker.assignments.acknowledge_through(assignment, assignment.fence, 2)
    s.run()
    assert [fact.count for fact in s.facts if isinstance(fact, AssignmentAcknowledged)] == [0]
    assert (assignment.queue.stored, assignment.queue.consumed, assignment.queue.bytes) == (3, 3, 0)
    assert s.broker.directory.queue("q").depth == 3


def test_the_log_says_which_numbers_were_acknowledged_where_some_are_gone(s: Scenario) -> None:
    """It said the last ones: the audit found that number 3 was consumed, and had been moved, and that 1 was lost."""
    s.publish("q", *(b"%d" % number for number in range(1, 11)))
    assignment = opened(s)
    assigned(s, assignment)
    moved = s.broker.directory.queue("moved")
    for bodies_of in ({b"3"}, {b"9", b"10"}):
        s.broker.administration.move(assignment.queue, moved, "moved", matches=bodies_of.__contains__)
        s.broker.go_on(s.now_us)
        s.run()
    s.broker.assignments.acknowledge_through(assignment, assignment.fence, 5)
    s.broker.assignments.acknowledge_through(assignment, assignment.fence, 10)
    s.run()
    facts = [fact for fact in s.facts if isinstance(fact, AssignmentAcknowledged)]
    assert [(fact.through, fact.count) for fact in facts] == [(2, 2), (5, 2), (8, 3), (10, 0)]
    assert (assignment.queue.stored, assignment.queue.consumed, assignment.queue.bytes) == (10, 10, 0)
    after = s.crash().broker.assignments.find(NAME)
    assert after is not None
    assert after.acknowledged == 10


def test_what_is_being_acknowledged_is_not_released(s: Scenario) -> None:
    """It came again: the commit of the acknowledgement was under way, so the store still had it."""
    s.publish("q", b"1", b"2", b"3")
    assignment = opened(s)
    assigned(s, assignment)
    s.broker.assignments.acknowledge_through(assignment, assignment.fence, 2)
    s.broker.assignments.release(assignment, "released")
    s.broker.go_on(s.now_us)
    s.run()
    assert s.finished["released"] == 1
    assert [message.body for message in s.inbox[s.consumer("q", 5)]] == [b"3"]


def test_what_a_later_run_acknowledges_during_a_release_stays(s: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCAN_MESSAGES", 1)
    s.publish("q", b"1", b"2", b"3")
    assignment = opened(s)
    assigned(s, assignment)
    s.broker.assignments.release(assignment, "released")
    s.broker.go_on(s.now_us)
    s.broker.assignments.resume(assignment)
    s.broker.assignments.acknowledge_through(assignment, assignment.fence, 2)
    s.broker.go_on(s.now_us)
    s.run()
    assert s.finished["released"] == 2
    assert [message.body for message in s.inbox[s.consumer("q", 5)]] == [b"1", b"3"]


def test_what_is_being_assigned_is_released_too(s: Scenario) -> None:
    """It stayed in the assignment: the store did not have it there yet."""
    s.publish("q", b"1", b"2", b"3")
    assignment = opened(s)
    s.broker.assignments.assign(assignment, assignment.fence, 5, PLENTY)
    s.broker.assignments.release(assignment, "released")
    s.broker.go_on(s.now_us)
    s.run()
    assert s.finished["released"] == 3
    assert s.broker.directory.queue("q").depth == 3


def test_who_had_one_before_a_takeover_is_told_that_it_went_elsewhere(s: Scenario) -> None:
    s.publish("q", b"1", b"2")
    s.consumer("q", 2, exact=True)
    after = Scenario(s.store)
    assert assigned(after, opened(after)) == [b"1", b"2"]
    after.consumer("q", 5, exact=True, held=[1, 2])
    assert after.elsewhere == [1, 2]


def test_an_assignment_goes_on_with_the_queue_that_was_created_anew(s: Scenario) -> None:
    """It refused everything until it was deleted, so that a stream over a pattern ended for good."""
    s.publish("q", b"before", b"before")
    assignment = opened(s, latest=True)
    s.publish("q", b"1", b"2", b"3")
    assert assigned(s, assignment, 2) == [b"1", b"2"]
    s.broker.deletion.delete(s.broker.directory.queue("q"))
    s.run()
    assert not s.broker.assignments.has_source(assignment)
    s.broker.assignments.resume(assignment)
    s.run()
    with pytest.raises(NotFound):
        s.broker.assignments.assign(assignment, assignment.fence, 5, PLENTY)
    s.broker.assignments.acknowledge_through(assignment, assignment.fence, 1)
    s.publish("q", b"new")
    with pytest.raises(Refusal, match="takes from another queue"):
        opened(s)
    fence = assignment.fence
    assert s.broker.assignments.open(NAME, s.broker.directory.queue("q"), renew=True) is assignment
    s.run()
    assert assignment.fence == fence + 1
    assert assigned(s, assignment) == [b"2", b"new"]
    assert assignment.last == 3
    after = Scenario(s.store)
    after.publish("q", b"later")
    again = after.broker.assignments.open(NAME, after.broker.directory.queue("q"))
    assert again.acknowledged == 1
    assert assigned(after, again) == [b"2", b"new", b"later"]


def test_an_assignment_is_not_moved_from_a_queue_that_is_there(s: Scenario) -> None:
    opened(s)
    with pytest.raises(Refusal, match="takes from another queue"):
        s.broker.assignments.open(NAME, s.broker.directory.queue("other"), renew=True)
