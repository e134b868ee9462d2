"""Health of one stage: circuit breaker, counters, recent failures."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from legato.flows.model.attempts import Attempts, Failing, Verdict
from legato.flows.model.circuit import Circuit, State
from legato.flows.model.definitions import Policy
from legato.flows.model.envelope import Envelope, Outgoing, Reach
from legato.flows.stages.failure_report import Failure

CONDEMNED_MAX = 1_000
WEIGHT_OF_LATEST = 0.1
"""In means that follow the times."""
RATE_WINDOW_S = 10
FUTURES = "(replies to futures)"
"""Whom these are for has a name for each connection of a client: they are counted together, as in an audit."""


@dataclass
class Meter:
    """Counters of a stage since its process began; times in seconds.

    Attributes:
        runs: messages worked on.
        failures: attempts that failed.
        buried: messages sent to the dead letters.
        in_queue_s, in_stage_s: means that follow the latest: from when the message was sent to when it was taken, and
            from there to the commit.
        in_stage_max_s: the longest run.
        callers: messages by who sent them.
        calls: messages sent by whom they are for.
        last_run_us, last_failure_us: when, microseconds since 1970; 0 for never.
        last_failure: its exception.
    """

    runs: int = 0
    failures: int = 0
    buried: int = 0
    in_queue_s: float = 0.0
    in_stage_s: float = 0.0
    in_stage_max_s: float = 0.0
    callers: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    last_run_us: int = 0
    last_failure_us: int = 0
    last_failure: str = ""
    _seconds: deque[list[int]] = field(default_factory=lambda: deque(maxlen=RATE_WINDOW_S + 1))

    def ran(self, in_queue_s: float, in_stage_s: float, now_us: int) -> None:
        """A message was worked on."""
        weight = WEIGHT_OF_LATEST if self.runs else 1.0
        self.runs += 1
        self.in_queue_s += weight * (max(in_queue_s, 0.0) - self.in_queue_s)
        self.in_stage_s += weight * (in_stage_s - self.in_stage_s)
        self.in_stage_max_s = max(self.in_stage_max_s, in_stage_s)
        self.last_run_us = now_us
        second = now_us // 1_000_000
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0])
        self._seconds[-1][1] += 1

    def per_s(self, now_us: int) -> float:
        """Runs a second, of the last `RATE_WINDOW_S` whole ones."""
        now_s = now_us // 1_000_000
        return sum(count for second, count in self._seconds if now_s - RATE_WINDOW_S <= second < now_s) / RATE_WINDOW_S


class StageHealth:
    """State shared by the workers of one stage; used by several threads.

    Args:
        policy: the stage's.
        pauses: whether it may pause; a topic's messages do not wait for it.
    """

    def __init__(self, policy: Policy, *, pauses: bool = True) -> None:
        self.lock = threading.Lock()
        self.meter = Meter()
        self.circuit = Circuit(
            (policy.circuit_failures or 0) if pauses else 0,
            policy.circuit_pause_s or 0.0,
            policy.circuit_pause_max_s or 0.0,
        )
        self.attempts = Attempts()
        self._deliveries_max = policy.deliveries_max or 0
        self._environment_retry_s = policy.environment_retry_s or 0.0
        self._condemned: OrderedDict[str, Failure] = OrderedDict()
        self._remembered: OrderedDict[str, Failure] = OrderedDict()

    def succeeded(
        self,
        envelopes: Iterable[Envelope],
        outgoing: Iterable[Outgoing],
        begun_us: int,
        now_us: int,
        messages: Iterable[str] = (),
    ) -> bool:
        """Messages were worked on, in one transaction; returns whether this closed the circuit.

        Args:
            messages: as `failed` calls them.
        """
        with self.lock:
            for message in messages:
                self.attempts.forget(message)
            meter = self.meter
            for envelope in envelopes:
                meter.ran((begun_us - envelope.sent_us) / 1e6, (now_us - begun_us) / 1e6, now_us)
                meter.callers[envelope.sender] += 1
            for one in outgoing:
                meter.calls[FUTURES if one.reach is Reach.ADDRESS else one.envelope.to] += 1
            return self.circuit.succeeded()

    def failed(
        self,
        message: str,
        delivery_count: int,
        failure: Failure,
        now_us: int,
        now_s: float,
        *,
        counted: bool = False,
    ) -> Verdict:
        """An attempt failed: what is to become of its message.

        Args:
            message: what it is remembered by.
            delivery_count: which delivery it was, from 1, as the broker counts.
            now_us: the time of day.
            now_s: the time on a clock that never jumps, in seconds.
            counted: the broker will count it in any case.
        """
        with self.lock:
            self.meter.failures += 1
            self.meter.last_failure = failure.text
            self.meter.last_failure_us = now_us
            failing, first = self.attempts.failed(message, delivery_count, failure.text)
            if failure.hopeless:
                return Verdict(failing.attempt, first, last=True)
            environmental = failure.environmental and self._environment_retry_s > 0
            circuit, opened = self.circuit, self.circuit.opened
            counts = circuit.failed(message, now_s, environmental=environmental) or counted
            pause_s = 0.0 if circuit.state is State.CLOSED else max(circuit.until_s - now_s, 0.0)
            if environmental and failing.since_s is None:
                failing.since_s = now_s
            gives_up_s = self.gives_up_s(failing, now_s) if environmental else None
            is_over = gives_up_s is not None and gives_up_s <= 0
            last = self._deliveries_max > 0 and (is_over or (counts and delivery_count >= self._deliveries_max))
            counts = counts or is_over
            failing.uncounted += not counts
            return Verdict(
                failing.attempt,
                first,
                counts=counts,
                last=last,
                opened=circuit.opened != opened,
                pause_s=pause_s,
                gives_up_s=None if counts else gives_up_s,
            )

    def gives_up_s(self, failing: Failing, now_s: float) -> float | None:
        """In how many seconds a message goes to the dead letters whose attempts are not counted; None if they are."""
        return None if failing.since_s is None else failing.since_s + self._environment_retry_s - now_s

    def attempt(self, message: str, delivery_count: int) -> int:
        """Number of a message's attempt, from 1, with those that the broker did not count."""
        with self.lock:
            failing = self.attempts.of(message)
            return delivery_count + (failing.uncounted if failing else 0)

    def buried(self, message: str) -> None:
        """A message is among the dead letters."""
        with self.lock:
            self.attempts.forget(message)
            self.meter.buried += 1

    # -- messages that are to be buried at their next delivery (CONTRACT D20)

    def condemn(self, message_id: str, failure: Failure) -> None:
        """The message could not be buried where it failed: the next who gets it does so."""
        with self.lock:
            self._condemned[message_id] = failure
            while len(self._condemned) > CONDEMNED_MAX:
                self._condemned.popitem(last=False)

    def remember(self, message_id: str, failure: Failure) -> None:
        """An attempt ended because messaging failed; should the message be buried one day, that is the reason."""
        with self.lock:
            self._remembered[message_id] = failure
            while len(self._remembered) > CONDEMNED_MAX:
                self._remembered.popitem(last=False)

    def remembered(self, message_id: str) -> Failure | None:
        """How messaging failed when the message was worked on last, if it did."""
        with self.lock:
            return self._remembered.get(message_id)

    def condemned(self, message_id: str) -> Failure | None:
        """Why the message is to be buried, if it is."""
        if not self._condemned:
            return None
        with self.lock:
            return self._condemned.get(message_id)

    def pardon(self, message_id: str) -> None:
        """The message is buried, or done."""
        with self.lock:
            self._condemned.pop(message_id, None)
            self._remembered.pop(message_id, None)
