"""A queue that gives nothing out gives nothing to pipelines."""

from __future__ import annotations

from legato.core.settings import AddressSettings
from tests.support.scenario import Scenario

PLENTY = 1 << 40


def assigned(s: Scenario) -> list[bytes]:
    """What a pipeline has, when it has asked for more."""
    assignment = s.broker.assignments.open("assignment://spark/q", s.broker.directory.queue("q"))
    s.broker.assignments.assign(assignment, assignment.fence, 100, PLENTY)
    s.run()
    return [message.body for message in s.store.messages(assignment.queue.id, 0, 1000, PLENTY)]


def test_nothing_of_a_paused_queue_is_assigned() -> None:
    """`legato queue pause` stopped consumers, and streams went on: nobody could stop them to look at what waits."""
    s = Scenario()
    s.publish("q", b"1", b"2")
    queue = s.broker.directory.queue("q")
    s.broker.administration.pause(queue, True)
    s.run()
    assert assigned(s) == []
    assert queue.depth == 2
    s.broker.administration.pause(queue, False)
    s.run()
    assert assigned(s) == [b"1", b"2"]


def test_nothing_is_assigned_of_a_queue_that_waits_for_a_redelivery() -> None:
    """With `redelivery_blocking = "queue"` nothing passes a message that failed, to keep them in order."""
    s = Scenario()
    s.settings["q"] = AddressSettings(redelivery_delay_s=5, redelivery_blocking="queue")
    s.publish("q", b"1", b"2")
    consumer = s.consumer("q", 1)
    s.broker.settlement.modify(consumer, s.in_hand(consumer)[0], failed=True, undeliverable_here=False)
    s.broker.receivers.detach(consumer, clean=True)
    s.run()
    assert assigned(s) == []
    s.wait(6)
    assert assigned(s) == [b"1", b"2"]
