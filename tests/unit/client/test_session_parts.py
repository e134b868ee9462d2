"""Parts of a session, each alone: the guard, what was begun, transactions, acknowledgements, members and listeners."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from legato.client.calls.session_acknowledgements import SessionAcknowledgements
from legato.client.calls.session_guard import SessionGuard
from legato.client.calls.session_listeners import Dispatcher, SessionListeners
from legato.client.calls.session_members import SessionMembers
from legato.client.calls.session_transactions import SessionTransactions
from legato.client.calls.turn import ThreadTurn
from legato.client.calls.undertakings import Undertaking, Undertakings
from legato.client.failover.contract import CONTRACTS
from legato.client.gate import Gate
from legato.client.links.channel import Channel
from legato.client.links.session_state import AcknowledgeMode, Transaction
from legato.client.steps import NOTHING, Steps, drive
from legato.errors import IllegalStateError, JMSError


class IoThread:
    """What a guard asks a channel and its transport for; `post` does at once what the I/O thread would do soon."""

    is_current_thread = False
    disowned = False
    ended = False
    error: JMSError | None = None
    frame_bytes_max = 1 << 18

    def __init__(self) -> None:
        self.notifier = SimpleNamespace(is_current=False)
        self.posted: list[str] = []

    def hurry(self) -> None:
        """Nothing waits here."""

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Do it."""
        self.posted.append(function.__name__)
        function(*arguments)


class Line:
    """A channel without links."""

    def __init__(self) -> None:
        self.transport = IoThread()
        self.gate = Gate()
        self.contract = CONTRACTS["legato"]
        self.error: JMSError | None = None
        self.interruptions = 0
        self.aborted: JMSError | None = None
        self.listening = False
        self.resolving = False
        self.coordinator = SimpleNamespace(end=self._end)
        self.commits = True

    def _end(self, transaction: Transaction, commit: bool, following: Transaction) -> None:
        transaction.outcome = commit and self.commits

    def hear_abort(self) -> JMSError | None:
        """As a channel's."""
        aborted, self.aborted = self.aborted, None
        return aborted

    def grant(self) -> None:
        """Nothing to grant."""

    def recover(self, batch: Any) -> None:
        """It is done at once."""
        batch.open = 0


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def guard(line: Line) -> SessionGuard:
    return SessionGuard(cast("Channel", line), ThreadTurn())


@pytest.fixture
def undertakings(guard: SessionGuard) -> Undertakings:
    return Undertakings(guard)


def transactions_of(guard: SessionGuard, undertakings: Undertakings, first: Transaction | None) -> SessionTransactions:
    def tell() -> Steps[None]:
        yield from NOTHING

    return SessionTransactions(
        guard,
        undertakings,
        first,
        tell_duplicates=tell,
        open_ids=set,
        ask_groups=None,  # type: ignore[arg-type]
    )


# -- the guard -----------------------------------------------------------------------------------------------


def test_a_guard_lets_no_second_user_in(guard: SessionGuard) -> None:
    guard.turn = cast("Any", SimpleNamespace(acquire=lambda _wait: False))
    with pytest.raises(IllegalStateError, match="Another thread or task"), guard.used():
        pass


def test_a_guard_of_a_closed_session_lets_nobody_in_and_gives_the_turn_up(guard: SessionGuard) -> None:
    guard.closed = True
    with pytest.raises(IllegalStateError, match="closed"), guard.used():
        pass
    assert guard.turn.holder == {}  # type: ignore[attr-defined]


def test_a_call_of_a_session_below_does_not_end_the_turn(guard: SessionGuard, line: Line) -> None:
    """It did: another thread was let in while the call above was still at it."""
    below = SessionGuard(cast("Channel", line), guard.turn)
    with guard.used():
        with guard.keeping_turn(), below.used():
            pass
        assert guard.turn.holder  # type: ignore[attr-defined]
    assert guard.turn.holder == {}  # type: ignore[attr-defined]
    assert guard.turn.keep(True) is False
    with guard.used(), guard.keeping_turn(), below.used():
        pass
    assert guard.turn.keep(False) is True  # as a listener's


@pytest.mark.parametrize("frame_bytes_max", [512, 600, 1 << 18])
def test_a_short_name_fits_whatever_the_broker_takes(guard: SessionGuard, line: Line, frame_bytes_max: int) -> None:
    """With the least frame that AMQP allows none fitted."""
    line.transport.frame_bytes_max = frame_bytes_max
    guard.check_fits("orders.new")
    with pytest.raises(JMSError, match="what the broker takes"):
        guard.check_fits("n" * frame_bytes_max)


def test_a_wait_raises_what_ended_the_session_meanwhile(guard: SessionGuard, line: Line) -> None:
    line.error = JMSError("It is gone.")
    with pytest.raises(JMSError, match="gone"):
        drive(guard.wait(lambda: False, "send"))
    assert not guard.blocked


# -- what was begun ------------------------------------------------------------------------------------------


def test_what_an_interrupted_call_had_begun_is_asked_for_again_and_concluded_once(undertakings: Undertakings) -> None:
    asked: list[int] = []
    concluded: list[int] = []
    undertakings.current = Undertaking(
        "commit", lambda: asked.append(1), lambda: len(asked) == 2, lambda: concluded.append(1)
    )
    undertakings.ask_again()
    assert drive(undertakings.hear(timeout_s=0))
    assert (len(asked), concluded) == (2, [1])
    assert undertakings.current is None


def test_what_ends_later_than_a_call_waits_stays_begun(undertakings: Undertakings) -> None:
    undertakings.current = Undertaking("commit", lambda: None, lambda: False, lambda: None)
    assert not drive(undertakings.hear(timeout_s=0))
    assert undertakings.current is not None


# -- transactions --------------------------------------------------------------------------------------------


def test_after_a_commit_the_next_transaction_is_the_current_one(
    guard: SessionGuard, undertakings: Undertakings
) -> None:
    first = Transaction()
    transactions = transactions_of(guard, undertakings, first)
    drive(transactions.commit())
    assert first.outcome is True
    assert transactions.current is not None
    assert transactions.current is not first


def test_a_session_that_is_not_transacted_cannot_commit(guard: SessionGuard, undertakings: Undertakings) -> None:
    with pytest.raises(IllegalStateError, match="not transacted"):
        drive(transactions_of(guard, undertakings, None).commit())


# -- acknowledgements ----------------------------------------------------------------------------------------


def test_recovery_gives_back_what_a_listener_holds(guard: SessionGuard, undertakings: Undertakings, line: Line) -> None:
    held = cast("Any", object())
    given_back: list[Any] = []

    def recover(batch: Any) -> None:
        given_back.extend(batch.deliveries)
        batch.open = 0

    line.recover = recover  # type: ignore[method-assign]
    transactions = transactions_of(guard, undertakings, None)
    acknowledgements = SessionAcknowledgements(
        guard, undertakings, transactions, AcknowledgeMode.CLIENT, run=drive, held_by_listener=lambda: held
    )
    received = cast("Any", object())
    acknowledgements.unacknowledged[received] = None
    drive(acknowledgements.recover())
    assert given_back == [received, held]
    assert acknowledgements.unacknowledged == {}


# -- members and listeners -----------------------------------------------------------------------------------


class Receiver:
    """A consumer as its session sees it."""

    destination = cast("Any", None)

    def __init__(self, listener: object = None) -> None:
        self.message_listener = listener
        self.released = 0
        self._closed = False
        self._end = cast("Any", SimpleNamespace(close=self._close, closed=False, released=True))

    def _close(self) -> None:
        self._end.closed = True

    def _take_back(self) -> None:
        """It has taken nothing."""

    def _release(self) -> None:
        """It has no link."""

    def _release_subscription(self) -> None:
        self.released += 1


def test_a_consumer_that_no_call_returned_is_closed_and_forgotten(guard: SessionGuard) -> None:
    members: SessionMembers[Receiver] = SessionMembers(guard)
    consumer = Receiver()
    channel = SimpleNamespace(transport=guard.channel.transport, owner=SimpleNamespace(_members=members))
    consumer._end.channel = cast("Any", channel)
    members.making = consumer
    members.consumers.append(consumer)
    members.unmake()
    assert members.making is None
    assert members.consumers == []
    assert consumer._end.closed
    assert consumer.released


def test_a_closed_consumer_with_messages_is_swept_once_its_link_is_closed(guard: SessionGuard) -> None:
    members: SessionMembers[Receiver] = SessionMembers(guard)
    consumer = Receiver()
    members.consumers.append(consumer)
    members.forget_consumer(consumer, closed=False)
    drive(members.sweep(guard))
    assert (members.closing, consumer.released) == ([consumer], 0)
    consumer._close()
    drive(members.sweep(guard))
    assert (members.closing, consumer.released) == ([], 1)


def test_the_first_listener_makes_the_one_dispatcher(guard: SessionGuard, line: Line) -> None:
    members: SessionMembers[Receiver] = SessionMembers(guard)
    made: list[Any] = []

    def make() -> Dispatcher:
        made.append(SimpleNamespace(current=None, is_current=True, waits_for_asker=True))
        return cast("Dispatcher", made[-1])

    listeners = SessionListeners(members, line.gate, make)
    assert listeners.held() is None
    members.consumers.append(Receiver(print))
    listeners.changed()
    listeners.changed()
    assert len(made) == 1
    assert line.listening
    with pytest.raises(IllegalStateError, match="listener"):
        listeners.check_not_in_listener("close")
