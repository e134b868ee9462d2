"""Closing because of an exception: what is waited for, and for how long."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from legato.client.calls.leaving import AWAY_WAIT_S, SILENT_WAIT_S, in_flight, leaving
from legato.client.calls.patience import Patience
from legato.client.gate import Gate
from legato.client.steps import Steps, Wait
from legato.errors import JMSError


class Close:
    """A close of three waits, each of them for the broker; it sees to it that it is cleaned up after."""

    def __init__(self, *timeouts: float | None, for_listener: bool = False) -> None:
        self.timeouts = timeouts or (None,)
        self.for_listener = for_listener
        self.answers: list[bool] = []
        self.interrupted = False

    def steps(self) -> Steps[None]:
        try:
            for timeout_s in self.timeouts:
                self.answers.append((yield Wait(Gate(), lambda: False, timeout_s, for_listener=self.for_listener)))
        except BaseException:
            self.interrupted = True
            raise


class Broker:
    """What closing sees of the connection, and the time that it waits."""

    def __init__(self, *, connected: bool, talks: bool = False) -> None:
        self.wire = object() if connected else None
        self.heard = 0
        self.outages = SimpleNamespace(unconfirmed=lambda: 3)
        self.talks = talks
        self.waited_s = 0.0

    def take(self, close: Close, error: BaseException | None, longest_s: float = 100.0) -> bool:
        """Take its steps; returns whether they ended by themselves before that time."""
        steps = leaving(close.steps(), self, error)  # type: ignore[arg-type]
        try:
            step: Any = next(steps)
            while self.waited_s < longest_s:
                assert not step.ready()
                self.waited_s += longest_s if step.timeout_s is None else step.timeout_s
                self.heard += self.talks
                step = steps.send(False)
        except StopIteration:
            return True
        return False


def test_without_an_exception_it_waits_as_it_does() -> None:
    broker, close = Broker(connected=False), Close(60.0, 60.0)
    assert broker.take(close, None, 200.0)
    assert broker.waited_s == 120.0
    assert close.answers == [False, False]


@pytest.mark.parametrize(
    ("connected", "bound_s", "why"),
    [(False, AWAY_WAIT_S, "to which there is no connection"), (True, SILENT_WAIT_S, "which does not answer")],
)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("broken"), asyncio.CancelledError()], ids=repr)
def test_it_waits_only_briefly_for_a_broker_that_is_away_and_says_so(
    connected: bool, bound_s: float, why: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "legato")
    vars(error).clear()
    broker, close = Broker(connected=connected), Close(None)
    assert broker.take(close, error)
    assert (broker.waited_s, close.interrupted) == (bound_s, True)
    assert caplog.messages == [
        f"Closing because of {type(error).__name__}, without waiting for the broker, {why}. "
        "Messages that it has not confirmed, and that may be lost: 3."
    ]
    outer = Close(None)
    assert broker.take(outer, error)
    assert (broker.waited_s, outer.interrupted) == (bound_s, True), "the blocks around it do not wait again"
    assert len(caplog.messages) == 1


def test_it_waits_for_a_broker_that_talks_and_for_listeners_as_long_as_ever() -> None:
    talking = Broker(connected=True, talks=True)
    assert not talking.take(Close(None), ValueError())
    silent = Broker(connected=True)
    assert not silent.take(Close(None, for_listener=True), ValueError())
    bounded = Close(60.0)
    assert talking.take(bounded, ValueError(), 1000.0)
    assert bounded.answers == [False]


def test_a_second_ctrl_c_ends_the_closes_further_out_at_once() -> None:
    caught: list[BaseException] = []
    try:
        try:
            raise KeyboardInterrupt
        finally:
            raise KeyboardInterrupt
    except KeyboardInterrupt as second:
        caught.append(second)
    broker, close = Broker(connected=True), Close(None, 60.0)
    assert broker.take(close, caught[0])
    assert (broker.waited_s, close.interrupted) == (0.0, True)


def test_ctrl_c_while_an_error_is_handled_is_the_first_one() -> None:
    caught: list[BaseException] = []
    try:
        try:
            raise ValueError
        finally:
            raise KeyboardInterrupt
    except KeyboardInterrupt as first:
        caught.append(first)
    broker = Broker(connected=False)
    assert broker.take(Close(None), caught[0])
    assert broker.waited_s == AWAY_WAIT_S


def test_a_close_in_a_finally_block_hurries_after_ctrl_c_and_not_while_an_error_is_handled() -> None:
    assert in_flight() is None
    for error in (KeyboardInterrupt(), SystemExit(), asyncio.CancelledError(), ValueError()):
        found: list[BaseException | None] = []
        try:
            try:
                raise error
            finally:
                found.append(in_flight())
        except BaseException:
            assert found == [None if isinstance(error, Exception) else error]


@pytest.mark.parametrize(
    ("timeout_s", "why"), [(60.0, "it ended the link or the session"), (0.0, "it did not answer within the 0 s")]
)
def test_what_closes_says_why_sends_are_given_up(timeout_s: float, why: str) -> None:
    """It said that the broker had not answered for a minute, at once, if that had ended the producer's link."""
    transport: Any = SimpleNamespace(is_stopping=False, wire=object(), failed=False)
    patience = Patience("producer", timeout_s, transport)
    patience.lost(1, 0)
    with pytest.raises(JMSError, match=f"has not confirmed 1 sent message, which may be lost: {why}") as raised:
        patience.check()
    assert raised.value.code == "TIMEOUT"
