"""The clients of a drill whose calls are interrupted: what they put on record, and what is found wrong with it."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.drill.checker import judge_records
from legato.drill.interrupted_client import Alarm
from legato.drill.records import REFUSED, STORED, Consuming, Identity, Producing, RecordWriter

WAIT_S = 60.0


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    before = signal.getsignal(signal.SIGALRM)
    yield Alarm()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_some_calls_are_interrupted_and_others_return(alarm: Alarm) -> None:
    deadline = time.monotonic() + WAIT_S
    returned = interrupted = 0
    while not (returned and interrupted):
        assert time.monotonic() < deadline
        outcome = alarm.call(lambda: time.sleep(0.06))
        returned += outcome is not None
        interrupted += outcome is None
    assert alarm.interruptions == interrupted


def test_nothing_is_interrupted_after_a_call_has_returned_or_raised(alarm: Alarm) -> None:
    def fail() -> None:
        raise ValueError

    for _ in range(50):
        outcome = None
        try:
            outcome = alarm.call(fail)
        except ValueError:
            signal.raise_signal(signal.SIGALRM)
        assert outcome is None


def test_what_is_insisted_on_is_called_until_it_returns(alarm: Alarm) -> None:
    def call() -> int:
        time.sleep(0.01)
        return 7

    assert [alarm.insist(call) for _ in range(30)] == [7] * 30


def test_an_interruption_excuses_neither_a_loss_nor_a_second_time_nor_a_false_refusal(tmp_path: Path) -> None:
    with RecordWriter(tmp_path, "p", Producing("p", "q")) as record:
        record.sent(STORED, [1, 2, 3])
        record.sent(REFUSED, [4])
    with RecordWriter(tmp_path, "c", Consuming("q", "q", exactly_once=True)) as record:
        for number, redelivered in ((1, False), (2, False), (2, True), (4, False)):
            message = Identity("p", number)
            record.seen(message, redelivered)
            record.trying([message])
            record.done([message])
    (finding,) = judge_records(tmp_path)
    assert (finding.lost, finding.duplicated, finding.falsely_told) == (1, 1, 1)
