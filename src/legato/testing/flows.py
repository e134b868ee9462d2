"""A test harness for flows: no broker, one thread, virtual time, mocked endpoints."""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from legato.errors import FlowError, FlowFailedError
from legato.flows import Flows
from legato.flows.database.transactions import Database, Received
from legato.flows.model.calls import Calls, Place
from legato.flows.model.definitions import Stage
from legato.flows.model.envelope import Call, Envelope, Frame, Outgoing, Reach, Saved
from legato.flows.model.failure_propagation import consequences
from legato.flows.model.joins import Join, join_of, too_late
from legato.flows.model.payloads import from_json, to_json
from legato.flows.model.stage_run import Ran, run_stage
from legato.flows.stages.coroutines import complete
from legato.flows.stages.failure_report import HOPELESS
from legato.quoting import quoted

logger = logging.getLogger(__name__)

START_US = 1_767_225_600_000_000
"""The first of January 2026: tests that depend on a date say so."""
HERE = "the test"


class VirtualClock:
    """A clock that a test sets (`legato.clock.Clock`)."""

    def __init__(self, now_us: int = START_US) -> None:
        self._now_us = now_us

    def now_us(self) -> int:
        return self._now_us

    def monotonic_ms(self) -> int:
        return self._now_us // 1000

    def advance_to(self, now_us: int) -> None:
        """Go on; never back."""
        self._now_us = max(now_us, self._now_us)


@dataclass
class MockedEndpoint:
    """A mocked endpoint: the test answers its calls.

    Attributes:
        requests: what it was asked, as plain data, in order.
    """

    answer: Callable[[Any], Any]
    requests: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class DeadLetter:
    """A message that no stage could take.

    Attributes:
        stage_id: where it failed.
        envelope: it.
        error: the last attempt's.
        attempts: how many there were.
    """

    stage_id: str
    envelope: Envelope
    error: BaseException
    attempts: int


@dataclass(order=True)
class _Due:
    at_us: int
    lane: int
    """Of what is due at the same time, calls for which a person waits come first: they overtake others in a queue."""
    order: int
    outgoing: Outgoing = field(compare=False)
    attempt: int = field(compare=False, default=1)


class FlowHarness:
    """Runs the stages of a service as its workers would: the same transactions, the same database, no threads.

    with FlowHarness(flows) as harness:
        harness.mock("Prices.of", lambda item: 3.0)
        assert harness.request("Orders.place", Order("tea", 2), reply=Receipt) == Receipt("tea", 6.0)

    Args:
        flows: the service; it must not have been started, and needs no broker.

    Attributes:
        clock: the service's, while the harness is used.
        dead_letters: what no stage could take.
        calls: all messages that were sent, in order.
        messages: by queue, the data of what other programs would have got (`Context.send_message`).
    """

    def __init__(self, flows: Flows) -> None:
        self.flows = flows
        self.clock = VirtualClock()
        self.dead_letters: list[DeadLetter] = []
        self.calls: list[Envelope] = []
        self.messages: dict[str, list[Any]] = {}
        self._mocks: dict[str, MockedEndpoint] = {}
        self._joins: dict[str, Join] = {}
        self._replies: dict[str, Envelope] = {}
        self._due: list[_Due] = []
        self._orders = itertools.count()
        self._known: set[str] = set()
        self._stages: dict[str, Stage] = {}

    def __enter__(self) -> Self:
        self.flows.clock = self.clock
        self.flows.redirect(self._send)
        self._stages = {stage.id: stage for stage in self.flows.registry.stages()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flows.stop()

    # -- what a test does

    def mock(self, endpoint: str, answer: Callable[[Any], Any]) -> MockedEndpoint:
        """Answer for an endpoint: `answer` gets the request as plain data, and returns the reply or raises."""
        self._mocks[endpoint] = mocked = MockedEndpoint(answer)
        return mocked

    def request(
        self,
        to: str,
        data: Any,
        *,
        reply: Any = Any,
        trace_id: str = "test",
        timeout_s: float = 0,
        interactive: bool = False,
    ) -> Any:
        """Begin a flow, run it, and return its reply.

        Args:
            reply: the class of the reply.
            timeout_s: seconds of virtual time that it may take.
            interactive: whether a person waits.

        Raises:
            FlowFailedError: it ended among the dead letters.
            FlowError: no reply came.
        """
        key = str(next(self._orders))
        frame = Frame(HERE, Saved(to_json(key)), Reach.ADDRESS)
        with self.flows.initiate(trace_id, interactive=interactive) as initiation:
            initiation.begin(Call.REQUEST, to, data, (frame,))
        self.advance(timeout_s)
        envelope = self._replies.pop(key, None)
        if envelope is None:
            raise FlowError(f"{to} did not reply; {self._state()}.")
        if envelope.call is Call.FAILURE:
            cause = self.dead_letters[-1].error if self.dead_letters else None
            raise FlowFailedError(f"Flow {trace_id} failed: {envelope.failure}") from cause
        return from_json(envelope.data, reply)

    def send(self, to: str, data: Any, *, trace_id: str = "test") -> None:
        """Begin a flow and run it as far as it goes now."""
        with self.flows.initiate(trace_id) as initiation:
            initiation.send(to, data)
        self.run()

    def publish(self, to: str, data: Any, *, trace_id: str = "test") -> None:
        """Publish, and run what hears it."""
        with self.flows.initiate(trace_id) as initiation:
            initiation.publish(to, data)
        self.run()

    def initiation(self, trace_id: str = "test", **options: Any) -> Any:
        """As `Flows.initiate`, with its options: a `with` block of an `Initiation`; call `run()` after it."""
        return self.flows.initiate(trace_id, **options)

    def run(self) -> None:
        """Run all that is due now."""
        self.advance(0)

    def advance(self, seconds: float) -> None:
        """Let virtual time go on, and run what comes due at its own time."""
        until_us = self.clock.now_us() + round(seconds * 1_000_000)
        while self._due and self._due[0].at_us <= until_us:
            due = heapq.heappop(self._due)
            self.clock.advance_to(due.at_us)
            self._deliver(due)
        self.clock.advance_to(until_us)

    def assert_no_dead_letters(self) -> None:
        """Fail, with the first one's error, if there are any.

        Raises:
            AssertionError: there are.
        """
        if self.dead_letters:
            letter = self.dead_letters[0]
            raise AssertionError(
                f"{len(self.dead_letters)} dead letters; the first is of {letter.stage_id}: {letter.error!r}"
            ) from letter.error

    # -- what brokers and workers do otherwise

    def _send(self, outgoing: Sequence[Outgoing], *, once: bool = False) -> None:
        for one in outgoing:
            if once and one.envelope.message_id in self._known:
                continue
            self._known.add(one.envelope.message_id)
            self.calls.append(one.envelope)
            self._put(one, self.clock.now_us() + one.delay_ms * 1000)

    def _put(self, outgoing: Outgoing, at_us: int, attempt: int = 1) -> None:
        lane = 0 if outgoing.envelope.interactive else 1
        heapq.heappush(self._due, _Due(at_us, lane, next(self._orders), outgoing, attempt))

    def _deliver(self, due: _Due) -> None:
        envelope = due.outgoing.envelope
        match due.outgoing.reach:
            case Reach.ADDRESS:
                self._replies[from_json(envelope.state.data, str)] = envelope
            case Reach.JOINED:
                join = join_of(envelope)
                self._joins[join.id] = join
            case Reach.ANSWERS:
                self._answer(envelope)
            case Reach.QUEUE:
                self.messages.setdefault(envelope.to, []).append(from_json(envelope.data, Any))
            case Reach.STAGE | Reach.TOPIC:
                self._call(due)
            case Reach.QUEUE:
                pass  # Other programs take it; `calls` has it.

    def _answer(self, envelope: Envelope) -> None:
        join = self._joins.get(envelope.join)
        if join is None:
            self._send(too_late(envelope, self.clock.now_us()))
            return
        join = join.with_answer(envelope) if envelope.key else join.timed_out()
        self._joins[join.id] = join
        if join.complete:
            del self._joins[join.id]
            self._send(join.outcome(self.clock.now_us()))

    def _call(self, due: _Due) -> None:
        envelope = due.outgoing.envelope
        mocked, stage = self._mocks.get(envelope.to), self._stages.get(envelope.to)
        if mocked is None and stage is None:
            if due.outgoing.reach is Reach.STAGE:
                raise FlowError(f"{envelope.sender} called {envelope.to}, which is neither declared nor mocked.")
            return
        try:
            if mocked is not None:
                self._answer_for(mocked, envelope)
            elif stage is not None:
                self._run(stage, envelope, due.attempt)
        except Exception as error:
            self._failed(due, stage, error)

    def _answer_for(self, mocked: MockedEndpoint, envelope: Envelope) -> None:
        data = from_json(envelope.data, Any)
        mocked.requests.append(data)
        calls = Calls(envelope, Place(envelope.to, None), self.clock.now_us())
        calls.reply(to_json(mocked.answer(data)))
        self._send(calls.outgoing)

    def _run(self, stage: Stage, envelope: Envelope, attempt: int) -> None:
        def run(received: Received, database: Database | None) -> Ran:
            self.flows.check_going_on(received.envelope)
            return run_stage(
                stage,
                received.envelope,
                now_us=self.clock.now_us(),
                delivery_count=received.delivery_count,
                database=database,
                complete=complete,
            )

        messaging = _Messaging(self._send)
        for ran in self.flows.level_of(stage).perform(stage.id, [Received(envelope, attempt)], run, messaging):
            for action in ran.after_commit:
                try:
                    done = action()
                    if inspect.iscoroutine(done):
                        complete(done)
                except (Exception, SystemExit, asyncio.CancelledError):
                    # As by a worker; the end of the test itself goes through.
                    logger.exception("%s: something to be done after the commit failed", quoted(stage.id))

    def _failed(self, due: _Due, stage: Stage | None, error: Exception) -> None:
        last = self.flows.policy_of(stage).deliveries_max if stage is not None else 1
        if not isinstance(error, HOPELESS) and (not last or due.attempt < last):
            self._put(due.outgoing, self.clock.now_us(), due.attempt + 1)
            return
        envelope = due.outgoing.envelope
        self.dead_letters.append(DeadLetter(envelope.to, envelope, error, due.attempt))
        self._send(consequences(envelope, f"{type(error).__name__}: {error}", self.clock.now_us()))

    def _state(self) -> str:
        waiting = [f"{due.outgoing.envelope.to} at {due.at_us - self.clock.now_us():+,} us" for due in self._due]
        letters = [f"{letter.stage_id}: {letter.error!r}" for letter in self.dead_letters]
        return f"due later: {waiting or 'nothing'}; dead letters: {letters or 'none'}"


class _Messaging:
    """The messaging half of a transaction (`legato.flows.database.transactions.Messaging`)."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._sent: list[tuple[Sequence[Outgoing], bool]] = []

    def send(self, outgoing: Sequence[Outgoing], *, once: bool = False) -> None:
        self._sent.append((outgoing, once))

    def check(self) -> None:
        """It can always commit."""

    def commit(self) -> None:
        for outgoing, once in self._sent:
            self._send(outgoing, once=once)
