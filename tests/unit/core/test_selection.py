"""Selectors on queues, message groups, exclusive consumers, consumer priorities."""

from collections.abc import Callable, Sized
from typing import Any

import pytest

from legato import limits
from legato.core.consumers import Cursor
from legato.core.settings import AddressSettings
from tests.support.bodies import TextBodies
from tests.support.scenario import Scenario


def test_a_selector_finds_what_it_wants_far_behind_what_it_does_not_want() -> None:
    """Jakarta Messaging 3.8: no message is out of its sight."""
    s = Scenario()
    s.publish("q", *(b"blue %d" % n for n in range(limits.WINDOW_MESSAGES + 50)), b"red", b"blue")
    assert s.received(s.consumer("q", 10, wants=b"red")) == [b"red"]


def test_what_was_looked_at_once_is_not_looked_at_again() -> None:
    s = Scenario()
    looked_at = 0

    def matches(body: bytes) -> bool:
        nonlocal looked_at
        looked_at += 1
        return b"red" in body

    s.publish("q", *(b"blue %d" % n for n in range(2000)), b"red 1", b"red 2")
    consumer, _ = s.broker.receivers.attach(s.broker.directory.queue("q"), None, "c", matches=matches)
    s.inbox[consumer] = []
    for expected in ([b"red 1"], [b"red 2"], []):
        s.broker.receivers.flow(consumer, 1, True, s.now_us)
        s.run()
        assert s.received(consumer) == expected
        assert looked_at <= 2004, "each message once, and once more those found above the dispatch mark"
    s.publish("q", b"red 3")
    s.broker.receivers.flow(consumer, 1, True, s.now_us)
    s.run()
    assert s.received(consumer) == [b"red 3"]


def test_a_long_search_is_made_in_slices_and_a_drain_waits_for_its_end() -> None:
    """amqp.md A5: everything deliverable comes before the credit goes back."""
    s = Scenario()
    s.publish("q", *(b"blue" for _ in range(3 * limits.SCAN_MESSAGES)), b"red")
    consumer, _ = s.broker.receivers.attach(
        s.broker.directory.queue("q"), None, "c", matches=lambda body: body == b"red"
    )
    s.inbox[consumer] = []
    s.broker.receivers.flow(consumer, 5, True, s.now_us)
    s.step()
    assert s.drained == []
    s.run()
    assert s.scans >= 3
    assert s.received(consumer) == [b"red"]
    assert s.drained == [consumer]


def test_others_get_what_a_selector_leaves() -> None:
    s = Scenario()
    red = s.consumer("q", 10, wants=b"red")
    rest = s.consumer("q", 10, wants=b"blue")
    s.publish("q", b"red 1", b"blue 2", b"red 3", b"green 4")
    assert s.received(red) == [b"red 1", b"red 3"]
    assert s.received(rest) == [b"blue 2"]
    assert s.received(s.consumer("q", 10)) == [b"green 4"]


def test_nothing_is_given_twice_when_selecting_begins_and_ends() -> None:
    s = Scenario()
    s.publish("q", *(b"%d" % n for n in range(20)))
    plain = s.consumer("q", 5)
    selecting = s.consumer("q", 5, wants=b"1")
    got = s.received(plain) + s.received(selecting)
    s.broker.receivers.detach(selecting, clean=True)
    s.run()
    again = [m.body for m in s.inbox.pop(selecting, [])]
    assert again == []
    s.broker.receivers.flow(plain, 100, False, s.now_us)
    s.run()
    rest = s.received(plain)
    assert sorted(got[:5] + rest) == sorted(b"%d" % n for n in range(20))
    s.accept(plain, *s.in_hand(plain))
    assert s.crash().broker.directory.queue("q").depth == 0


def test_what_a_selecting_consumer_gives_back_is_found_by_all_who_want_it() -> None:
    s = Scenario()
    s.publish("q", b"red 1", b"red 2", b"blue 3")
    one = s.consumer("q", 10, wants=b"red")
    two = s.consumer("q", 10, wants=b"red")
    for message in s.in_hand(one):
        s.broker.settlement.release(one, message)
    one.credit = 0
    s.broker.receivers.flow(one, 0, False, s.now_us)
    s.run()
    assert s.received(two)[-2:] == [b"red 1", b"red 2"]
    s.accept(two, *s.in_hand(two))
    assert s.broker.directory.queue("q").depth == 1


def test_acknowledged_messages_are_not_seen_by_a_scan_before_their_commit() -> None:
    s = Scenario()
    s.publish("q", b"red 1", b"red 2")
    plain = s.consumer("q", 1)
    assert s.broker.settlement.acknowledge(plain, s.in_hand(plain)[0], confirm=False)
    red = s.consumer("q", 10, wants=b"red")
    assert s.received(red) == [b"red 2"]


@pytest.mark.parametrize("then", [None, b"e"])
def test_what_a_selector_prefetched_and_nobody_saw_goes_back_to_its_place(then: bytes | None) -> None:
    """Jakarta Messaging 6.2.10: it was behind what no selector wanted, and overtook that."""
    s = Scenario()
    published = [b"blue 1", b"red 2", b"blue 3", b"red 4", b"blue 5"]
    s.publish("q", *published)
    red = s.consumer("q", 10, wants=b"red")
    assert s.received(red) == [b"red 2", b"red 4"]
    s.broker.receivers.detach(red, clean=True)
    s.run()
    rest = s.consumer("q", 10, wants=then)
    assert s.received(rest) == published
    s.accept(rest, *s.in_hand(rest))
    assert s.broker.directory.queue("q").main.claimed == set()


@pytest.mark.parametrize("credits", [(3000,), (7, 3000), (7, 7, 3000)])
def test_what_comes_back_far_behind_the_window_goes_back_to_its_place(credits: tuple[int, ...]) -> None:
    s = Scenario()
    count = 2 * limits.WINDOW_MESSAGES
    s.publish("q", *(b"red %d" % n if n % 100 == 99 else b"blue %d" % n for n in range(count)))
    red = s.consumer("q", 50, wants=b"red")
    assert len(s.received(red)) == min(50, count // 100)
    s.broker.receivers.detach(red, clean=True)
    s.run()
    consumers = [s.consumer("q", 0) for _ in credits]
    had: list[int] = []
    while len(had) < count:
        before = len(had)
        for consumer, credit in zip(consumers, credits, strict=True):
            s.broker.receivers.flow(consumer, credit, False, s.now_us)
            s.run()
            in_hand = s.in_hand(consumer)
            had += [message.seq for message in in_hand]
            s.accept(consumer, *in_hand)
            s.broker.receivers.flow(consumer, 0, False, s.now_us)
        assert len(had) > before
    assert had == [*range(1, count + 1)]


def test_the_oldest_is_dropped_before_what_came_back() -> None:
    """`drop-oldest` drops by place, not by who came back first."""
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=3, when_full="drop-oldest")
    s.publish("q", b"blue 1", b"blue 2", b"red 3")
    red = s.consumer("q", 1, wants=b"red")
    s.broker.receivers.detach(red, clean=True)
    s.run()
    s.publish("q", b"blue 4")
    assert s.received(s.consumer("q", 10)) == [b"blue 2", b"red 3", b"blue 4"]


def test_a_group_stays_with_its_consumer_until_that_leaves() -> None:
    """JMSXGroupID, Jakarta Messaging 3.5.9."""
    s = Scenario()
    one, two = s.consumer("q", 10), s.consumer("q", 10)
    s.publish("q", b"group=a;1", b"group=b;2", b"group=a;3", b"group=b;4", b"group=a;5")
    first, second = s.received(one), s.received(two)
    assert sorted([first, second]) == [[b"group=a;1", b"group=a;3", b"group=a;5"], [b"group=b;2", b"group=b;4"]]
    owner, other = (one, two) if first[0].startswith(b"group=a") else (two, one)
    s.broker.receivers.detach(owner, clean=True)
    s.run()
    assert s.received(other) == [b"group=a;1", b"group=a;3", b"group=a;5"]


def test_a_group_waits_for_its_consumer_while_other_groups_go_on() -> None:
    s = Scenario()
    one, two = s.consumer("q", 1), s.consumer("q", 5)
    s.publish("q", b"group=a;1")
    owner = one if s.received(one) else two
    other = two if owner is one else one
    s.broker.receivers.flow(owner, 0, False, s.now_us)
    s.received(owner)
    s.publish("q", b"group=a;2", b"group=b;3")
    assert s.received(other) == [b"group=b;3"]
    s.broker.receivers.flow(owner, 5, False, s.now_us)
    s.run()
    assert s.received(owner) == [b"group=a;2"]


def test_a_closed_group_may_go_to_another_consumer() -> None:
    """JMSXGroupSeq below zero closes a group."""
    s = Scenario()
    one, two = s.consumer("q", 1), s.consumer("q", 1)
    s.publish("q", b"group=a!;last")
    owner, other = (one, two) if s.received(one) else (two, one)
    s.publish("q", b"group=a;first of a new one")
    assert s.received(other) == [b"group=a;first of a new one"]
    assert s.received(owner) == []


def test_what_was_passed_over_of_a_group_that_is_closed_goes_to_who_has_credit() -> None:
    """Nobody has the group any more, and its former owner has no credit: nothing need wait."""
    s = Scenario()
    s.publish("q", b"group=a;1", b"group=a!;2", b"group=a;3", b"group=b;4", b"group=a;5")
    owner = s.consumer("q", 1)
    other = s.consumer("q", 5)
    assert (s.received(owner), s.received(other)) == ([b"group=a;1"], [b"group=b;4"])
    s.broker.receivers.flow(owner, 1, False, s.now_us)
    s.run()
    assert (s.received(owner), s.received(other)) == ([b"group=a!;2"], [b"group=a;3", b"group=a;5"])


def test_a_group_that_is_closed_goes_on_with_what_was_passed_over_first() -> None:
    """While it is being closed another consumer is beyond that already: its next message is a later one."""
    s = Scenario()
    s.publish("q", b"group=a;1", b"group=a!;2", b"group=a;3", b"group=b;4", b"group=b;5", b"group=a;6")
    owner, other = s.consumer("q", 0), s.consumer("q", 0)
    for consumer in (owner, other):
        for credit in (8, 1):  # The dispatch mark is for the larger one.
            s.broker.receivers.flow(consumer, credit, False, s.now_us)
    s.run()
    assert (s.received(owner), s.received(other)) == ([b"group=a;1"], [b"group=b;4"])
    s.broker.receivers.flow(owner, 1, False, s.now_us)
    s.broker.receivers.flow(other, 5, False, s.now_us)
    s.run()
    assert s.received(owner) == [b"group=a!;2"]
    assert [body for body in s.received(other) if body.startswith(b"group=a")] == [b"group=a;3", b"group=a;6"]


def test_what_came_back_of_a_group_that_is_closed_goes_to_who_has_credit() -> None:
    s = Scenario()
    s.publish("q", b"group=a;1", b"group=a;2", b"group=a!;3")
    owner = s.consumer("q", 2)
    other = s.consumer("q", 5)
    first, _ = s.in_hand(owner)
    assert s.broker.settlement.modify(owner, first, failed=False, undeliverable_here=True)
    s.run()
    assert s.received(other) == [], "the group is the owner's, which is not to have it again"
    s.broker.receivers.flow(owner, 1, False, s.now_us)
    s.run()
    assert s.in_hand(owner)[-1].seq == 3
    assert s.received(other) == [b"group=a;1"]


def test_a_group_that_is_forgotten_is_free_for_who_has_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many groups have owners: the one that has nothing in flight loses its own."""
    monkeypatch.setattr("legato.core.groups.GROUPS_MAX", 1)
    s = Scenario()
    s.publish("q", b"group=a;1")
    owner = s.consumer("q", 1)
    s.accept(owner, *s.in_hand(owner))
    other = s.consumer("q", 5)
    s.publish("q", b"group=a;2")
    s.received(owner)
    assert s.received(other) == []
    s.publish("q", b"group=b;3")
    assert s.received(other) == [b"group=b;3", b"group=a;2"]


def test_a_drain_waits_for_what_a_closed_group_leaves() -> None:
    """amqp.md A5: everything deliverable comes before the credit goes back."""
    s = Scenario()
    s.publish("q", b"group=a;1", b"group=a!;2", b"group=a;3")
    owner, other = s.consumer("q", 0), s.consumer("q", 0)
    for credit in (3, 1):  # The dispatch mark is for the larger one.
        s.broker.receivers.flow(owner, credit, False, s.now_us)
    s.run()
    assert s.received(owner) == [b"group=a;1"]
    s.broker.receivers.flow(owner, 1, False, s.now_us)
    s.broker.receivers.flow(other, 5, True, s.now_us)
    s.run()
    assert (s.received(owner), s.received(other), s.drained) == ([b"group=a!;2"], [b"group=a;3"], [other])


@pytest.mark.parametrize("opens", [True, False])
def test_groups_that_are_closed_cost_no_search_of_the_whole_queue(opens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened and closed all along a backlog, a group changes hands: nobody looks through all of it each time."""
    s = Scenario()
    count = 1200
    s.publish("q", *(b"group=a%s;%d" % (b"" if opens and number % 3 else b"!", number) for number in range(count)))
    looked_at = _looks(monkeypatch)
    consumers = [s.consumer("q", 4) for _ in range(3)]
    done = 0
    while done < count:
        for consumer in consumers:
            in_hand = s.in_hand(consumer)
            s.accept(consumer, *in_hand)
            done += len(in_hand)
            s.received(consumer)
            s.broker.receivers.flow(consumer, 4, False, s.now_us)
            s.run()
    assert len(looked_at) < 12 * count


def test_a_group_that_its_last_message_closes_costs_no_search_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is left: who passed it over need not look for it among all that waits behind."""
    s = Scenario()
    small = 20
    s.publish("q", b"group=hot;", *(b"group=%d;" % number for number in range(small)))
    owner = s.consumer("q", small + 1)
    s.publish("q", *(b"group=%d!;" % number for number in range(small)), *(b"group=hot;" for _ in range(400)))
    idle = s.consumer("q", 10)
    looked_at = _looks(monkeypatch)
    for _ in range(small):
        s.accept(owner, s.in_hand(owner)[0])
        s.broker.receivers.flow(owner, 1, False, s.now_us)
        s.run()
    assert s.received(owner)[-1].endswith(b"!;")
    assert s.received(idle) == []
    assert len(looked_at) < 10 * small


def test_consumers_remember_nothing_of_each_group_that_they_pass_over() -> None:
    """The queue does, once: there may be many thousands of both."""
    s = Scenario()
    groups = 1000
    s.publish("q", *(b"group=%d;" % number for number in range(groups)))
    s.consumer("q", groups)
    s.publish("q", *(b"group=%d;" % number for number in range(groups)))
    consumers = [s.consumer("q", 10) for _ in range(8)]
    cursors = [consumer.cursor(s.broker.directory.queue("q").main) for consumer in consumers]
    assert {cursor.seen for cursor in cursors} == {2 * groups}
    remembered = [getattr(cursor, name) for cursor in cursors for name in Cursor.__slots__]
    assert [each for each in remembered if isinstance(each, Sized) and len(each)] == []


def _looks(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Bodies of which somebody asks for the group, from now on."""
    looked_at: list[bytes] = []

    def group(self: TextBodies, body: bytes, read: Callable[..., tuple[str, bool]] = TextBodies.group) -> Any:
        looked_at.append(body)
        return read(self, body)

    monkeypatch.setattr(TextBodies, "group", group)
    return looked_at


def test_groups_are_remembered_to_be_groups_after_a_takeover() -> None:
    s = Scenario()
    s.publish("q", b"group=a;1", b"group=a;2")
    other = s.crash()
    one, two = other.consumer("q", 1), other.consumer("q", 1)
    assert [len(other.received(one)), len(other.received(two))] == [1, 0]


def test_only_the_first_consumer_of_an_exclusive_queue_receives() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(exclusive=True)
    one, two = s.consumer("q", 1), s.consumer("q", 10)
    s.publish("q", b"1", b"2")
    assert (s.received(one), s.received(two)) == ([b"1"], [])
    s.broker.receivers.detach(one, clean=True)
    s.run()
    assert s.received(two) == [b"1", b"2"]


def test_consumers_of_high_priority_come_first_as_long_as_they_have_credit() -> None:
    s = Scenario()
    low, high = s.consumer("q", 10), s.consumer("q", 2, priority=5)
    s.publish("q", b"1", b"2", b"3")
    assert s.received(high) == [b"1", b"2"]
    assert s.received(low) == [b"3"]


def test_what_a_returning_client_claims_is_not_given_to_another_as_well() -> None:
    """CONTRACT C9: it came back to the queue before its holder came back to it."""
    s = Scenario()
    s.publish("q", b"1")
    first = s.consumer("q", 1)
    s.broker.receivers.detach(first, clean=False)
    s.run()
    holder = s.consumer("q", 1, held=[1])
    assert s.received(holder) == [b"1"]
    assert s.received(s.consumer("q", 5)) == []


def test_nothing_is_remembered_of_what_a_selecting_queue_has_delivered() -> None:
    s = Scenario()
    consumer = s.consumer("q", 10, wants=b"red")
    s.publish("q", b"red 1", b"red 2")
    s.accept(consumer, *s.in_hand(consumer))
    assert s.broker.directory.queue("q").main.claimed == set()


def test_what_comes_back_time_and_again_is_remembered_once() -> None:
    """A queue with groups selects for good: each return of a message added to what its lane remembers."""
    s = Scenario()
    s.publish("q", b"group=b;1", *(b"group=a;%d" % number for number in range(10)))
    first = s.consumer("q", 1)
    consumer = s.consumer("q", 10)
    message = s.in_hand(first)[0]
    assert s.broker.settlement.modify(first, message, failed=False, undeliverable_here=True)
    s.run()
    for _ in range(100):
        for message in s.in_hand(consumer):
            s.broker.settlement.release(consumer, message)
        s.broker.receivers.flow(consumer, 10, False, s.now_us)
        s.run()
    assert len(s.in_hand(consumer)) == 10
    assert len(s.broker.directory.queue("q").main.returned) <= 100
