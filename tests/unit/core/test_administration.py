"""Administration: purge, move, pause, delete, temporary addresses, settings, browsers."""

import pytest

from legato import limits
from legato.core.refusals import Exists, NotFound
from legato.core.settings import AddressSettings
from tests.support.scenario import Scenario


def test_a_move_to_what_is_deleted_meanwhile_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stored messages in a queue that was not there: the broker stopped."""
    monkeypatch.setattr(limits, "SCAN_MESSAGES", 1)
    s = Scenario()
    s.publish("q", b"1", b"2", b"3")
    to = s.broker.directory.queue("to")
    s.run()
    s.broker.administration.move(s.broker.directory.queue("q"), to, "moved")
    s.broker.go_on(s.now_us)
    s.broker.deletion.delete(to)
    s.run()
    assert s.finished["moved"] == 1
    assert s.broker.directory.queue("q").depth == 2


def test_a_move_says_how_many_found_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said so before it was known: all were moved, it said, and none was."""
    monkeypatch.setattr(limits, "SCAN_MESSAGES", 2)
    s = Scenario()
    s.publish("q", b"1", b"2", b"3", b"4", b"5", b"6")
    queue, to = s.broker.directory.queue("q"), s.broker.directory.queue("to")
    s.run()
    s.broker.administration.move(queue, to, "moved")
    s.broker.take_effects()
    s.broker.go_on(s.now_us)
    assert s.step()
    assert s.finished == {}
    s.full = True
    s.run()
    assert (s.finished, s.reasons) == ({"moved": 2}, {"moved": "no room, once"})
    assert (queue.depth, to.depth) == (4, 2)
    s.broker.administration.move(queue, to, "again")
    s.run()
    assert s.finished["again"] == 4
    assert to.depth == 6


def test_a_purge_that_is_committed_the_second_time_counts_once() -> None:
    s = Scenario()
    s.publish("q", b"1", b"2")
    s.broker.administration.purge(s.broker.directory.queue("q"), "purge")
    s.full = True
    s.run()
    assert (s.finished, s.reasons) == ({"purge": 2}, {})
    assert s.broker.directory.queue("q").depth == 0


def test_what_came_back_is_purged_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it went in one turn of the loop, and each may have to be read from the disk."""
    s = Scenario()
    s.publish("q", *(b"%d" % n for n in range(20)))
    s.broker.receivers.detach(s.consumer("q", 20), clean=True)
    s.run()
    monkeypatch.setattr(limits, "SCAN_MESSAGES", 5)
    before = s.scans
    s.broker.administration.purge(s.broker.directory.queue("q"), "purge")
    s.run()
    assert s.finished == {"purge": 20}
    assert s.scans - before >= 4


@pytest.mark.parametrize("to", ["", "to"], ids=["purge", "move"])
@pytest.mark.parametrize("commit", ["gathering", "in flight", "refused"])
def test_what_was_coming_back_when_it_was_asked_for_goes_too(commit: str, to: str) -> None:
    """It was in its place after the job had looked at what had come back, and nobody looked there again."""
    s = Scenario()
    s.publish("q", *(b"%d" % n for n in range(3 * limits.SCAN_MESSAGES)))
    s.broker.directory.queue("to")
    consumer = s.consumer("q", 3)
    for message in s.in_hand(consumer):
        s.broker.settlement.modify(consumer, message, failed=True, undeliverable_here=False)
    s.broker.receivers.flow(consumer, 0, False, s.now_us)
    s.full = commit == "refused"
    batch = s.broker.take_batch(s.now_us) if commit == "in flight" else None
    ask_for_all(s, to)
    if batch is not None:
        while s.go_on():  # the disk is slow
            pass
        s.store.commit(batch)
        s.broker.committed(s.now_us)
    s.run()
    assert s.finished == {"all": 3 * limits.SCAN_MESSAGES}
    assert s.broker.directory.queue("q").depth == 0
    assert s.broker.directory.queue("to").depth == (3 * limits.SCAN_MESSAGES if to else 0)
    assert s.crash().broker.directory.queue("q").depth == 0


def ask_for_all(s: Scenario, to: str) -> None:
    queue = s.broker.directory.queue("q")
    if to:
        s.broker.administration.move(queue, s.broker.directory.queue(to), "all")
    else:
        s.broker.administration.purge(queue, "all")


def test_what_came_back_in_any_order_is_moved_the_oldest_first() -> None:
    s = Scenario()
    s.publish("q", b"1", b"2", b"3", priority=4)
    s.publish("q", b"a", b"b", b"c", priority=9)
    s.run()
    consumer = s.consumer("q", 6)
    held = {message.seq: message for message in s.in_hand(consumer)}
    s.broker.receivers.flow(consumer, 0, False, s.now_us)
    for place in (5, 3, 4, 0, 2, 1):
        s.broker.settlement.release(consumer, held[sorted(held)[place]])
        s.run()
    s.broker.directory.queue("to")
    s.broker.receivers.detach(consumer, clean=True)
    s.broker.administration.move(s.broker.directory.queue("q"), s.broker.directory.queue("to"), "moved")
    s.run()
    assert s.received(s.consumer("to", 6)) == [b"a", b"b", b"c", b"1", b"2", b"3"]


@pytest.mark.parametrize("to", ["", "to"], ids=["purge", "move"])
def test_a_job_ends_although_messages_come_back_all_the_time(to: str) -> None:
    """And leaves what was in somebody's hands when their turn came."""
    s = Scenario()
    s.publish("q", b"1", b"2", b"3")
    s.broker.directory.queue("to")
    consumer = s.consumer("q", 10)

    def fail_all() -> None:
        for message in s.in_hand(consumer):
            s.broker.settlement.modify(consumer, message, failed=True, undeliverable_here=False)

    fail_all()
    ask_for_all(s, to)
    for _ in range(4):
        assert s.step()
        s.go_on()
        fail_all()
    assert s.finished == {"all": 0}
    s.run()
    assert s.broker.directory.queue("q").depth == 3


def test_a_job_whose_queue_is_deleted_before_what_comes_back_is_there_ends() -> None:
    s = Scenario()
    s.publish("q", b"1")
    consumer = s.consumer("q", 1)
    s.broker.settlement.modify(consumer, s.in_hand(consumer)[0], failed=True, undeliverable_here=False)
    ask_for_all(s, "")
    s.broker.deletion.delete(s.broker.directory.queue("q"))
    s.run()
    assert s.finished == {"all": 0}


def test_a_purge_leaves_what_somebody_has_and_what_comes_later() -> None:
    s = Scenario()
    s.publish("q", *(b"%d" % n for n in range(2 * limits.SCAN_MESSAGES)))
    s.publish("q", b"high", priority=8)
    consumer = s.consumer("q", 2)
    s.broker.receivers.flow(consumer, 0, False, s.now_us)
    s.broker.administration.purge(s.broker.directory.queue("q"), "purge")
    s.publish("q", b"late")
    assert s.finished == {"purge": 2 * limits.SCAN_MESSAGES - 1}
    assert s.broker.directory.queue("q").depth == 3
    s.broker.receivers.flow(consumer, 5, False, s.now_us)
    s.run()
    assert s.received(consumer) == [b"high", b"0", b"late"]
    assert s.crash().broker.directory.queue("q").depth == 3


def test_messages_move_to_another_queue_by_selector_and_limit() -> None:
    s = Scenario()
    s.publish("q", b"red 1", b"blue 2", b"red 3", b"red 4")
    s.broker.administration.move(
        s.broker.directory.queue("q"),
        s.broker.directory.queue("r"),
        "move",
        matches=lambda body: b"red" in body,
        limit=2,
    )
    s.run()
    assert s.finished == {"move": 2}
    assert s.received(s.consumer("r", 9)) == [b"red 1", b"red 3"]
    assert s.received(s.consumer("q", 9)) == [b"blue 2", b"red 4"]


def test_a_paused_queue_takes_but_does_not_give_also_after_a_takeover() -> None:
    s = Scenario()
    s.broker.administration.pause(s.broker.directory.queue("q"), True)
    consumer = s.consumer("q", 5)
    s.publish("q", b"1")
    assert s.received(consumer) == []
    s.broker.receivers.flow(consumer, 5, True, s.now_us)
    s.run()
    assert s.drained == [consumer]
    other = s.crash()
    again = other.consumer("q", 5)
    assert other.received(again) == []
    other.broker.administration.pause(other.broker.directory.queue("q"), False)
    other.run()
    assert other.received(again) == [b"1"]


def test_a_deleted_queue_is_gone_with_its_messages_and_its_name_is_free() -> None:
    s = Scenario()
    s.publish("q", b"1")
    consumer = s.consumer("q", 1)
    queue = s.broker.directory.queue("q")
    [message] = s.in_hand(consumer)
    assert s.broker.deletion.delete(queue) == [consumer]
    assert not s.broker.settlement.acknowledge(consumer, message, confirm=False)
    assert s.broker.directory.find_queue("q") is None
    s.publish("q", b"2")
    assert s.received(s.consumer("q", 5)) == [b"2"]
    assert s.crash().broker.directory.queue("q").depth == 1


def test_a_transaction_over_a_deleted_queue_does_no_harm() -> None:
    s = Scenario()
    s.publish("q", b"1")
    consumer = s.consumer("q", 1)
    txn = s.broker.transactions.declare("me")
    transaction = s.broker.transactions.find(txn, "me")
    assert transaction is not None
    s.broker.transactions.acknowledge(transaction, consumer, s.in_hand(consumer)[0])
    s.broker.deletion.delete(s.broker.directory.queue("q"))
    s.run()
    s.broker.transactions.discharge(txn, "me", fail=False, token="end")
    s.run()
    assert s.discharged == ["end"]


def test_an_address_is_not_made_by_use_if_its_settings_say_so() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(auto_create=False)
    with pytest.raises(NotFound, match="auto_create"):
        s.broker.directory.queue("q")
    with pytest.raises(NotFound, match="auto_create"):
        s.broker.directory.topic("q")


def test_temporary_addresses_have_names_of_their_own_and_end() -> None:
    s = Scenario()
    node = s.broker.directory.create_temporary("temp", topic=False, container="me")
    with pytest.raises(Exists, match="temp"):
        s.broker.directory.create_temporary("temp", topic=True, container="me")
    s.publish(node, b"1")
    s.broker.deletion.delete(node)
    s.run()
    assert s.broker.directory.lookup("temp") is None
    assert s.crash().broker.directory.lookup("temp") is None


def test_settings_that_change_hold_at_once() -> None:
    s = Scenario()
    one, two = s.consumer("q", 1), s.consumer("q", 10)
    s.settings["q"] = AddressSettings(exclusive=True)
    s.reload()
    s.publish("q", b"1", b"2")
    assert (s.received(one), s.received(two)) == ([b"1"], [])


def test_a_browser_sees_by_priority_and_selector_what_waits_when_it_comes() -> None:
    """Jakarta Messaging 6.1.8."""
    s = Scenario()
    s.publish("q", *(b"blue" for _ in range(2 * limits.SCAN_MESSAGES)), b"red 1")
    s.publish("q", b"red 2", priority=9)
    browser = s.broker.browsers.browse(s.broker.directory.queue("q"), None, lambda body: b"red" in body)
    s.publish("q", b"red 3")
    s.broker.browsers.flow(browser, 10, True)
    s.run()
    assert len(s.shown) == 2
    assert s.shown[0] > s.shown[1], "the higher priority's lane has higher sequences"
    assert s.drained == [browser]


def test_a_browser_does_not_see_what_was_acknowledged_a_moment_ago() -> None:
    s = Scenario()
    s.publish("q", b"1", b"2")
    consumer = s.consumer("q", 1)
    assert s.broker.settlement.acknowledge(consumer, s.in_hand(consumer)[0], confirm=False)
    browser = s.broker.browsers.browse(s.broker.directory.queue("q"), None)
    s.broker.browsers.flow(browser, 10, True)
    s.run()
    assert s.shown == [2]
