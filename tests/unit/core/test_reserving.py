"""What is kept for a client whose connection was lost, for how long, and what becomes of it (CONTRACT B21)."""

from __future__ import annotations

import pytest

from legato.core.consumers import Consumer
from legato.core.facts import MessageConsumed, MessageReturned
from legato.core.queues import Queue
from legato.core.settings import AddressSettings
from tests.support.scenario import Scenario


def numbers(consumer: Consumer) -> list[int]:
    return sorted(consumer.unsettled)


def lost(s: Scenario, *presented: int, hold_s: float = 60.0) -> Queue:
    """Five messages wait, a consumer has all, has presented some, and loses its connection."""
    s.publish("q", b"1", b"2", b"3", b"4", b"5")
    consumer = s.consumer("q", 5, exact=True, name="me", link="one")
    s.present(consumer, *presented)
    s.lose(consumer, hold_s=hold_s)
    return s.broker.directory.queue("q")


def test_what_was_presented_is_kept_and_the_rest_goes_to_others_at_once_flagged() -> None:
    """CONTRACT B11, B16, B21."""
    s = Scenario()
    queue = lost(s, 1, 3)
    other = s.consumer("q", 10, exact=True, name="other")
    assert s.received(other) == [b"2", b"4", b"5"]
    assert {s.seen["q", seq] for seq in (2, 4, 5)} == {(0, True)}
    assert (queue.held, queue.depth) == (2, 5)


def test_who_comes_back_in_time_has_its_messages_first_in_order_and_uncounted() -> None:
    """CONTRACT B21; promise 4: it is still the same delivery."""
    s = Scenario()
    queue = lost(s, 1, 3)
    s.publish("q", b"6")
    back = s.consumer("q", 10, exact=True, name="me", link="one", held=[1, 3])
    assert s.received(back) == [b"1", b"3", b"2", b"4", b"5", b"6"]
    assert s.elsewhere == []
    assert (queue.held, back.unsettled[1].count) == (0, 0)
    assert not [fact for fact in s.facts if isinstance(fact, MessageReturned)]


def test_after_the_time_it_goes_to_others_flagged_and_counted() -> None:
    """CONTRACT B16, B21."""
    s = Scenario()
    lost(s, 1, 3)
    other = s.consumer("q", 10, exact=True, name="other")
    s.wait(59.9)
    assert numbers(other) == [2, 4, 5]
    s.wait(0.2)
    assert numbers(other) == [1, 2, 3, 4, 5]
    assert s.seen["q", 1][0] == s.seen["q", 3][0] == 1


def test_without_a_time_nothing_is_kept() -> None:
    """CONTRACT B11: 0 means at once."""
    s = Scenario()
    lost(s, 1, 3, hold_s=0)
    other = s.consumer("q", 10, exact=True, name="other")
    assert numbers(other) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("name", "link"), [("me", "two"), ("other", "one")])
def test_it_is_kept_for_the_same_link_of_the_same_container_alone(name: str, link: str) -> None:
    s = Scenario()
    lost(s, 1, 3)
    assert numbers(s.consumer("q", 10, exact=True, name=name, link=link, held=[1, 3])) == [2, 4, 5]
    assert s.elsewhere == [1, 3]


def test_what_its_application_does_not_hold_any_more_was_a_failed_delivery() -> None:
    """CONTRACT A17."""
    s = Scenario()
    lost(s, 1, 3)
    back = s.consumer("q", 10, exact=True, name="me", link="one", held=[3])
    assert numbers(back) == [1, 2, 3, 4, 5]
    assert (back.unsettled[1].count, back.unsettled[3].count) == (1, 0)


def test_a_connection_that_was_closed_properly_keeps_nothing() -> None:
    s = Scenario()
    s.publish("q", b"1", b"2")
    consumer = s.consumer("q", 2, exact=True, name="me", link="one")
    s.present(consumer, 1)
    s.broker.receivers.detach(consumer, clean=True)
    s.run()
    assert s.broker.directory.queue("q").held == 0
    assert numbers(s.consumer("q", 2, name="other")) == [1, 2]


def test_closing_the_next_connection_properly_lets_go_of_what_the_lost_one_had() -> None:
    s = Scenario()
    queue = lost(s, 1, 3)
    other = s.consumer("q", 10, name="other")
    s.broker.reservations.release_container("other")
    s.run()
    assert queue.held == 2
    s.broker.reservations.release_container("me")
    s.run()
    assert (queue.held, numbers(other)) == (0, [1, 2, 3, 4, 5])


def test_one_that_does_not_tell_what_it_presented_keeps_nothing() -> None:
    s = Scenario()
    s.publish("q", b"1")
    s.lose(s.consumer("q", 1, name="me", link="one"))
    assert numbers(s.consumer("q", 1, name="other")) == [1]


def test_it_is_kept_again_when_the_connection_is_lost_again() -> None:
    s = Scenario()
    queue = lost(s, 1, 3)
    for credit in (0, 5):
        back = s.consumer("q", credit, exact=True, name="me", link="one", held=[1, 3])
        s.lose(back)
        assert queue.held == 2
    back = s.consumer("q", 5, exact=True, name="me", link="one", held=[1, 3])
    assert [back.unsettled[seq].count for seq in (1, 3)] == [0, 0]


def test_what_is_kept_is_consumed_once_by_who_came_back() -> None:
    """CONTRACT B9."""
    s = Scenario()
    lost(s, 1, 3)
    back = s.consumer("q", 10, exact=True, name="me", link="one", held=[1, 3])
    s.accept(back, *s.in_hand(back))
    assert [fact.attempt for fact in s.facts if isinstance(fact, MessageConsumed)] == [1] * 5
    s.wait(61)
    assert s.broker.directory.queue("q").depth == 0


# -- counts --------------------------------------------------------------------------------------------------


def test_giving_back_what_one_held_through_a_loss_counts_once() -> None:
    """Promise 4: it must not reach its maximum too early."""
    s = Scenario()
    s.settings["q"] = AddressSettings(maximum_deliveries=2)
    queue = lost(s, 1)
    back = s.consumer("q", 1, exact=True, name="me", link="one", held=[1])
    s.broker.settlement.modify(back, back.unsettled[1], failed=True, undeliverable_here=False)
    s.run()
    s.broker.receivers.flow(back, 1, False, s.now_us)
    s.run()
    assert (queue.depth, back.unsettled[1].count) == (5, 1)


def test_who_comes_back_late_takes_the_count_of_its_loss_back() -> None:
    s = Scenario()
    lost(s, 1, hold_s=0)
    back = s.consumer("q", 1, exact=True, name="me", link="one", held=[1])
    assert back.unsettled[1].count == 0
    s.broker.settlement.modify(back, back.unsettled[1], failed=True, undeliverable_here=False)
    s.run()
    s.broker.receivers.flow(back, 1, False, s.now_us)
    s.run()
    assert back.unsettled[1].count == 1


def test_a_late_return_takes_back_its_own_count_and_not_that_of_others() -> None:
    s = Scenario()
    lost(s, 1, hold_s=0)
    other = s.consumer("q", 1, exact=True, name="other")
    assert numbers(other) == [1]
    s.present(other, 1)
    s.broker.settlement.modify(other, other.unsettled[1], failed=True, undeliverable_here=False)
    s.broker.receivers.detach(other, clean=True)
    s.run()
    back = s.consumer("q", 1, exact=True, name="me", link="one", held=[1])
    assert back.unsettled[1].count == 1


def test_a_presentation_is_counted_by_the_next_broker_unless_the_same_application_claims_it() -> None:
    """Promise 4: counts survive a takeover and count presentations."""
    s = Scenario()
    s.publish("q", b"1", b"2")
    consumer = s.consumer("q", 2, exact=True, name="me", link="one")
    s.present(consumer, 1)
    s.wait(0.2)
    after = s.crash()
    after.consumer("q", 2, exact=True, name="other")
    assert (after.seen["q", 1], after.seen["q", 2]) == ((1, True), (0, True))

    again = s.crash()
    back = again.consumer("q", 2, exact=True, name="me", link="one", held=[1])
    assert back.unsettled[1].count == 0
    third = again.crash()
    back = third.consumer("q", 2, exact=True, name="me", link="one", held=[1])
    third.broker.settlement.modify(back, back.unsettled[1], failed=True, undeliverable_here=False)
    third.run()
    third.broker.receivers.flow(back, 2, False, third.now_us)
    third.run()
    assert back.unsettled[1].count == 1


def test_a_count_given_up_is_taken_back_over_a_takeover_too() -> None:
    """The disconnect was counted durably, the broker died, the application comes back with the message."""
    s = Scenario()
    lost(s, 1, hold_s=0)
    after = s.crash()
    back = after.consumer("q", 1, exact=True, name="me", link="one", held=[1])
    assert back.unsettled[1].count == 0
    after.run()
    again = after.crash()
    assert again.consumer("q", 1, exact=True, name="other").unsettled[1].count == 1


def test_a_delivery_that_a_takeover_ended_is_taken_back_though_others_had_the_message_since() -> None:
    """Presented to one, who still has it; rolled back by another in the next epoch; claimed in the third."""
    s = Scenario()
    s.publish("q", b"1")
    s.present(s.consumer("q", 1, exact=True, name="me", link="one"), 1)
    s.wait(0.2)
    s = s.crash()
    other = s.consumer("q", 1, exact=True, name="other")
    assert other.unsettled[1].count == 1
    s.present(other, 1)
    s.broker.settlement.modify(other, other.unsettled[1], failed=True, undeliverable_here=False)
    s.run()
    s = s.crash()
    back = s.consumer("q", 1, exact=True, name="me", link="one", held=[1])
    assert back.unsettled[1].count == 1
    s.broker.settlement.modify(back, back.unsettled[1], failed=True, undeliverable_here=False)
    s.run()
    assert s.consumer("q", 1, name="other").unsettled[1].count == 2


def test_presentations_in_several_epochs_are_all_counted() -> None:
    """Promise 4: counts survive takeovers, however many."""
    s = Scenario()
    s.publish("q", b"1")
    for epoch in range(4):
        consumer = s.consumer("q", 1, exact=True, name=f"application {epoch}")
        assert consumer.unsettled[1].count == epoch
        s.present(consumer, 1)
        s.wait(0.2)
        s = s.crash()


def test_a_loss_puts_presentations_on_record_before_the_next_tick() -> None:
    s = Scenario()
    lost(s, 1)
    after = s.crash()
    after.consumer("q", 5, exact=True, name="other")
    assert after.seen["q", 1] == (1, True)


def test_a_broker_that_ends_cleanly_puts_presentations_on_record() -> None:
    s = Scenario()
    s.publish("q", b"1", b"2")
    s.present(s.consumer("q", 2, exact=True, name="me", link="one"), 1)
    s.broker.end("shutdown")
    s.run()
    after = s.crash()
    after.consumer("q", 2, exact=True, name="other")
    assert (after.seen["q", 1], after.seen["q", 2]) == ((1, True), (0, True))


def test_a_broker_ends_with_what_it_keeps_still_in_the_queue() -> None:
    s = Scenario()
    lost(s, 1, 3)
    s.broker.end("shutdown")
    s.run()
    after = s.crash()
    assert numbers(after.consumer("q", 5, name="other")) == [1, 2, 3, 4, 5]


# -- groups, exclusive queues ----------------------------------------------------------------------------------


def grouped(s: Scenario) -> tuple[Consumer, Consumer]:
    """Two consumers; the first one has group a."""
    first = s.consumer("q", 1, exact=True, name="me", link="one")
    s.publish("q", b"group=a;1")
    other = s.consumer("q", 10, exact=True, name="other")
    assert numbers(first) == [1]
    return first, other


def test_groups_stay_with_who_comes_back() -> None:
    s = Scenario()
    first, other = grouped(s)
    s.lose(first)
    s.publish("q", b"group=a;2", b"group=b;3")
    assert s.received(other) == [b"group=b;3"]
    back = s.consumer("q", 10, exact=True, name="me", link="one")
    assert s.received(back) == [b"group=a;1", b"group=a;2"]


def test_groups_of_who_does_not_come_back_go_to_others() -> None:
    s = Scenario()
    first, other = grouped(s)
    s.lose(first)
    s.publish("q", b"group=a;2")
    assert s.received(other) == []
    s.wait(60.1)
    assert s.received(other) == [b"group=a;1", b"group=a;2"]


def test_groups_of_what_is_claimed_after_a_takeover_are_its_holder_s() -> None:
    s = Scenario()
    first, _ = grouped(s)
    s.publish("q", b"group=a;2", b"group=b;3")
    s.present(first, 1)
    s = s.crash()
    back = s.consumer("q", 1, exact=True, name="me", link="one", held=[1])
    other = s.consumer("q", 10, exact=True, name="other")
    assert s.received(other) == [b"group=b;3"]
    s.broker.receivers.flow(back, 5, False, s.now_us)
    s.run()
    assert s.received(back) == [b"group=a;1", b"group=a;2"]


def test_what_was_claimed_and_failed_does_not_wait_at_who_has_not_its_group() -> None:
    """CONTRACT D16: its redelivery goes to the consumer that has the group by then."""
    s = Scenario()
    s.settings["q"] = AddressSettings(redelivery_delay_s=1, redelivery_blocking="consumer")
    s.publish("q", b"group=a;1", b"group=a;2")
    s.present(s.consumer("q", 2, exact=True, name="me", link="one"), 2)
    s = s.crash()
    other = s.consumer("q", 1, exact=True, name="other", held=[2])
    back = s.consumer("q", 10, exact=True, name="me", link="one", held=[1])
    assert (s.received(other), s.received(back)) == ([b"group=a;2"], [b"group=a;1"])
    s.broker.settlement.modify(back, s.in_hand(back)[0], failed=True, undeliverable_here=False)
    s.broker.receivers.flow(other, 10, False, s.now_us)
    s.run()
    s.wait(1.1)
    assert (s.received(other), s.received(back)) == ([b"group=a;1"], [])


def test_a_group_that_was_closed_is_of_the_consumer_at_which_its_last_message_waits() -> None:
    """CONTRACT D16: until that has come, nobody else gets the group."""
    s = Scenario()
    s.settings["q"] = AddressSettings(redelivery_delay_s=1, redelivery_blocking="consumer")
    s.publish("q", b"group=a!;1")
    one = s.consumer("q", 10)
    other = s.consumer("q", 10)
    assert s.received(one) == [b"group=a!;1"]
    s.broker.settlement.modify(one, s.in_hand(one)[0], failed=True, undeliverable_here=False)
    s.run()
    s.publish("q", b"group=a;2")
    assert s.received(other) == []
    s.wait(1.1)
    assert s.received(one) == [b"group=a!;1", b"group=a;2"]


def test_what_closed_a_group_waits_at_its_consumer_though_others_are_to_look_again() -> None:
    """CONTRACT D16: what others had passed over of the group waits behind it."""
    s = Scenario()
    s.settings["q"] = AddressSettings(redelivery_delay_s=1, redelivery_blocking="consumer")
    s.publish("q", b"group=a;1", b"b;2", b"group=a!;3", b"group=a;4", b"c;5")
    owner, other = s.consumer("q", 1), s.consumer("q", 2)
    assert (s.received(owner), s.received(other)) == ([b"group=a;1"], [b"b;2", b"c;5"])
    s.broker.receivers.flow(owner, 1, False, s.now_us)
    s.run()
    assert s.received(owner) == [b"group=a!;3"]
    s.broker.settlement.modify(owner, s.in_hand(owner)[-1], failed=True, undeliverable_here=False)
    for consumer in (owner, other):
        s.broker.receivers.flow(consumer, 5, False, s.now_us)
    s.run()
    assert s.received(owner) == s.received(other) == []
    s.wait(1.1)
    assert (s.received(owner), s.received(other)) == ([b"group=a!;3", b"group=a;4"], [])


def exclusive(s: Scenario) -> tuple[Consumer, Consumer]:
    s.settings["q"] = AddressSettings(exclusive=True)
    s.publish("q", b"1", b"2")
    first = s.consumer("q", 1, exact=True, name="me", link="one")
    return first, s.consumer("q", 10, exact=True, name="other")


def test_an_exclusive_queue_waits_for_its_consumer() -> None:
    s = Scenario()
    first, other = exclusive(s)
    s.lose(first)
    assert s.received(other) == []
    back = s.consumer("q", 2, exact=True, name="me", link="one")
    assert s.received(back) == [b"1", b"2"]
    assert s.received(other) == []


def test_an_exclusive_queue_whose_consumer_does_not_come_back_goes_to_the_next() -> None:
    """CONTRACT B14: from then on a late acknowledgement may fail."""
    s = Scenario()
    first, other = exclusive(s)
    s.present(first, 1)
    s.lose(first)
    s.wait(60.1)
    assert s.received(other) == [b"1", b"2"]
    s.consumer("q", 1, exact=True, name="me", link="one", held=[1])
    assert s.elsewhere == [1]


def test_who_claims_what_it_holds_gets_it_though_an_exclusive_queue_has_another_to_give_to() -> None:
    """CONTRACT B21."""
    s = Scenario()
    first, _ = exclusive(s)
    s.present(first, 1)
    s = s.crash()
    s.settings["q"] = AddressSettings(exclusive=True)
    leader = s.consumer("q", 0, exact=True, name="other")
    back = s.consumer("q", 2, exact=True, name="me", link="one", held=[1])
    assert s.received(back) == [b"1"]
    s.broker.receivers.flow(leader, 10, False, s.now_us)
    s.run()
    assert s.received(leader) == [b"2"]


def test_who_claimed_of_an_exclusive_queue_and_gave_back_does_not_wait_for_the_same_again() -> None:
    """CONTRACT D15: a policy that blocks the consumer keeps for it only what the queue would give to it."""
    s = Scenario()
    settings = AddressSettings(exclusive=True, redelivery_delay_s=1, redelivery_blocking="consumer")
    first, _ = exclusive(s)
    s.present(first, 1)
    s = s.crash()
    s.settings["q"] = settings
    leader = s.consumer("q", 0, exact=True, name="other")
    back = s.consumer("q", 2, exact=True, name="me", link="one", held=[1])
    [message] = s.in_hand(back)
    assert s.broker.settlement.modify(back, message, failed=True, undeliverable_here=False)
    s.run()
    s.wait(1.1)
    assert s.in_hand(back) == []
    s.broker.receivers.flow(leader, 10, False, s.now_us)
    s.run()
    assert sorted(s.received(leader)) == [b"1", b"2"]


# -- administration, time ----------------------------------------------------------------------------------------


def test_a_purge_spares_what_is_kept() -> None:
    s = Scenario()
    queue = lost(s, 1, 3)
    s.broker.administration.purge(queue, "purge")
    s.run()
    assert s.finished == {"purge": 3}
    back = s.consumer("q", 10, exact=True, name="me", link="one", held=[1, 3])
    assert numbers(back) == [1, 3]
    s.accept(back, *s.in_hand(back))
    assert (queue.depth, queue.main.claimed) == (0, set())


def test_deleting_a_queue_deletes_what_is_kept() -> None:
    s = Scenario()
    s.broker.deletion.delete(lost(s, 1, 3))
    s.wait(61)
    assert s.broker.directory.find_queue("q") is None


def test_what_is_kept_may_be_consumed_after_its_expiry_and_expires_if_nobody_comes_back() -> None:
    """As what is in flight may."""
    for returns in (True, False):
        s = Scenario()
        s.publish("q", b"1", expires_us=s.now_us + 1_000_000)
        consumer = s.consumer("q", 1, exact=True, name="me", link="one")
        s.present(consumer, 1)
        s.lose(consumer)
        s.wait(2)
        assert s.broker.directory.queue("q").depth == 1
        if returns:
            back = s.consumer("q", 1, exact=True, name="me", link="one", held=[1])
            s.accept(back, *s.in_hand(back))
        else:
            s.wait(60)
            assert s.received(s.consumer("q", 1, name="other")) == []
        assert s.broker.directory.queue("q").depth == 0
        assert any(isinstance(fact, MessageConsumed) for fact in s.facts) is returns


def test_what_waits_for_its_redelivery_to_its_consumer_expires_meanwhile() -> None:
    """CONTRACT C9, C11(c)."""
    s = Scenario()
    s.settings["q"] = AddressSettings(redelivery_delay_s=2, redelivery_blocking="consumer")
    s.publish("q", b"1", expires_us=s.now_us + 1_000_000)
    consumer = s.consumer("q", 5, exact=True, name="me", link="one")
    assert s.received(consumer) == [b"1"]
    s.broker.settlement.modify(consumer, consumer.unsettled[1], failed=True, undeliverable_here=False)
    s.wait(2.1)
    assert s.received(consumer) == []
    assert s.broker.directory.queue("q").depth == 0


def test_a_drain_does_not_wait_for_what_is_kept() -> None:
    s = Scenario()
    lost(s, 1, 3)
    other = s.consumer("q", 0, name="other")
    s.broker.receivers.flow(other, 10, True, s.now_us)
    s.run()
    assert (numbers(other), s.drained) == ([2, 4, 5], [other])


def test_browsers_see_what_is_kept() -> None:
    s = Scenario()
    browser = s.broker.browsers.browse(lost(s, 1, 3), None)
    s.broker.browsers.flow(browser, 10, False)
    s.run()
    assert s.shown == [1, 2, 3, 4, 5]


def test_selectors_do_not_give_away_what_is_kept_and_let_it_go_in_its_place() -> None:
    s = Scenario()
    s.publish("q", b"red 1", b"blue 2", b"red 3")
    consumer = s.consumer("q", 3, exact=True, name="me", link="one")
    s.present(consumer, 1, 2)
    s.lose(consumer)
    red = s.consumer("q", 10, name="other", wants=b"red")
    assert s.received(red) == [b"red 3"]
    s.wait(60.1)
    assert s.received(red) == [b"red 1"]
    assert s.received(s.consumer("q", 10, name="all")) == [b"blue 2"]


def test_a_limit_drops_nothing_that_is_kept() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=5, when_full="drop-oldest")
    queue = lost(s, 1)
    s.publish("q", b"6")
    assert numbers(s.consumer("q", 10, exact=True, name="me", link="one", held=[1])) == [1, 3, 4, 5, 6]
    assert queue.depth == 5


def test_a_volatile_subscription_ends_with_what_is_kept_in_it() -> None:
    """CONTRACT A17, on a topic: flagged when it comes back, and gone with the subscription."""
    s = Scenario()
    topic = s.broker.directory.topic("t")
    queue = s.broker.subscriptions.subscribe(topic, "volatile", container="me", durable=False, shared=False)
    consumer = s.consumer(queue, 5, exact=True, name="me", link="one")
    s.publish(topic, b"1", b"2")
    s.present(consumer, 1)
    s.broker.receivers.detach(consumer, clean=False, hold_until_us=s.now_us + 60_000_000, moving=True)
    s.run()
    back = s.consumer(queue, 5, exact=True, name="me", link="one", held=[1])
    assert s.received(back) == [b"1", b"2"]
    assert s.seen["volatile", 2] == (0, True)
    s.broker.receivers.detach(back, clean=False, hold_until_us=s.now_us + 60_000_000, moving=True)
    s.broker.subscriptions.unsubscribe(queue)
    s.wait(61)
    assert s.broker.directory.find_queue("volatile") is None


def test_what_was_claimed_from_beyond_the_window_is_not_read_again_when_its_consumer_leaves() -> None:
    s = Scenario()
    s.publish("q", *[b"%d" % number for number in range(1, 11)])
    s.consumer("q", 10, name="dies")
    after = s.crash()
    back = after.consumer("q", 2, exact=True, name="me", link="one", held=[5])
    assert after.received(back) == [b"5", b"1"]
    after.broker.receivers.detach(back, clean=False)
    after.run()
    other = after.consumer("q", 20, name="other")
    assert numbers(other) == [*range(1, 11)]
    assert len(after.received(other)) == 10
