"""How the application's threads and the I/O thread wake each other."""

from __future__ import annotations

import threading

import pytest

from legato.client.gate import Gate
from legato.client.links.mailbox import Mailbox
from legato.client.links.notifier import ThreadNotifier, calling
from legato.client.steps import drive

WAIT_S = 60.0


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


def test_commands_run_in_the_order_in_which_they_were_posted(mailbox: Mailbox) -> None:
    done: list[int] = []
    for number in range(3):
        mailbox.post(done.append, number)
    assert mailbox.run()
    assert done == [0, 1, 2]
    assert not mailbox.run()


def test_a_command_posted_before_the_sleep_prevents_it(mailbox: Mailbox) -> None:
    mailbox.post(lambda: None)
    assert mailbox.sleep(None) == []
    assert mailbox.run()


def test_a_command_wakes_a_sleeping_thread(mailbox: Mailbox) -> None:
    about_to_sleep, done = threading.Event(), threading.Event()

    def io_thread() -> None:
        about_to_sleep.set()
        while not done.is_set():
            mailbox.sleep(None)
            mailbox.run()

    thread = threading.Thread(target=io_thread)
    thread.start()
    assert about_to_sleep.wait(WAIT_S)
    mailbox.post(done.set)
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_a_doze_ends_by_itself_and_at_once_when_somebody_waits(mailbox: Mailbox) -> None:
    mailbox.sleep(None, doze=True)
    mailbox.post(lambda: None)
    mailbox.hurry()
    mailbox.sleep(None, doze=True)
    assert mailbox.run()


def test_many_threads_can_post_and_none_is_overlooked(mailbox: Mailbox) -> None:
    posts, posters = 2_000, 4
    count = 0

    def add() -> None:
        nonlocal count
        count += 1

    def poster() -> None:
        for _ in range(posts):
            mailbox.post(add)
        mailbox.hurry()

    threads = [threading.Thread(target=poster) for _ in range(posters)]
    for thread in threads:
        thread.start()
    while count < posts * posters:
        mailbox.sleep(WAIT_S, doze=mailbox.run())
    for thread in threads:
        thread.join(WAIT_S)


def test_posting_to_a_closed_mailbox_is_harmless(mailbox: Mailbox) -> None:
    mailbox.close()
    mailbox._asleep = True
    mailbox.post(lambda: None)


def test_a_gate_lets_its_waiters_look_again() -> None:
    gate = Gate()
    values: list[int] = []
    looked = threading.Event()

    def ready() -> bool:
        looked.set()
        return bool(values)

    passed: list[bool] = []
    thread = threading.Thread(target=lambda: passed.append(gate.wait(ready, WAIT_S)))
    thread.start()
    assert looked.wait(WAIT_S)
    values.append(1)
    gate.open()
    thread.join(WAIT_S)
    assert passed == [True]


def test_a_gate_waits_no_longer_than_asked() -> None:
    assert Gate().wait(lambda: False, 0.01) is False
    assert Gate().wait(lambda: True, 0) is True


def test_a_listener_that_raises_does_not_keep_others_from_being_called() -> None:
    notifier = ThreadNotifier("listeners")
    called: list[str] = []

    def broken() -> None:
        raise ValueError("broken")

    notifier.call(calling(broken))
    notifier.call(calling(called.append, "next"))
    drive(notifier.stop())
    assert called == ["next"]
