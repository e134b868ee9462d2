"""Calls of one run or initiation: the rules for combining them, and the envelopes that they become."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from legato.errors import IllegalCallFlowError
from legato.flows.model.envelope import TRAIL_HOPS_MAX, Call, Envelope, Frame, Hop, Outgoing, Reach, Saved
from legato.limits import FLOW_CALLS_MAX, FLOW_STACK_FRAMES_MAX

NOTHING = Saved()
ENDS_WITH_THE_STACK = frozenset((Call.REPLY, Call.COMPENSATE))
"""Calls that take one who waits off the stack: of these no flow makes more and more."""
TIME_CHARS = 12
"""All ids of a flow begin with the time of its first: rows of an inbox that are made together lie together."""


class Place(NamedTuple):
    """Place from which calls are made.

    Attributes:
        stage_id: the stage.
        next_id: where replies to its requests go; None if nothing follows.
        may_reply: False for a terminator.
    """

    stage_id: str
    next_id: str | None
    may_reply: bool = True


class Luggage(msgspec.Struct, gc=False):
    """Luggage of calls: what they carry besides their data.

    Attributes:
        sideloads: for these messages only.
        properties: for the rest of the flow.
        trace_context: OpenTelemetry's headers.
    """

    sideloads: dict[str, bytes]
    properties: dict[str, str]
    trace_context: dict[str, str]


def derived_id(parent: str, ordinal: int) -> str:
    """The id of the `ordinal`-th message that came of `parent`: the same each time a stage is run again."""
    return parent[:TIME_CHARS] + _digest(f"{parent}/{ordinal}")[TIME_CHARS:]


def plain_id(message_id: str, timestamp_ms: int) -> str:
    """The id, as a flow's, of a message that no flow has sent.

    Args:
        timestamp_ms: when it was sent, milliseconds since 1970.
    """
    return timed_id(timestamp_ms, _digest(message_id))


def timed_id(time_ms: int, digits: str) -> str:
    """32 hexadecimal digits: the time, and the rest of `digits`, which are as many."""
    return f"{time_ms:0{TIME_CHARS}x}"[-TIME_CHARS:] + digits[TIME_CHARS:]


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Calls:
    """Collects what a run of a stage sends; nothing leaves before its transaction commits (CONTRACT D1).

    Args:
        incoming: the message that the stage works on.
        place: the stage.
        now_us: microseconds since 1970.
    """

    def __init__(self, incoming: Envelope, place: Place, now_us: int) -> None:
        self.incoming = incoming
        self.place = place
        self.now_us = now_us
        self.luggage = Luggage({}, incoming.properties.copy(), incoming.trace_context.copy())
        self.compensations = incoming.compensations
        self.deadline_us = incoming.deadline_us
        self.outgoing: list[Outgoing] = []
        self._made: Call | None = None
        self._ordinal = 0

    @property
    def made(self) -> Call | None:
        """The kind of call that this run has made, None so far."""
        return self._made

    def next_message_id(self) -> str:
        """An id for one more message."""
        self._ordinal += 1
        return derived_id(self.incoming.message_id, self._ordinal)

    def request(
        self, to: str, data: msgspec.Raw, state: Saved, *, frame: Frame | None = None, delay_ms: int = 0
    ) -> None:
        """Ask `to`; its reply goes to the next stage, which finds `state`. May be called several times.

        Raises:
            IllegalCallFlowError: nothing follows this stage, another kind of call was made, or the stack is too high.
        """
        self._make(Call.REQUEST)
        if frame is None:
            frame = Frame(self.next_stage("request"), state)
        stack = (*self.incoming.stack, frame)
        # Compensations that wait for their turn do not wait for each other.
        waiting = sum(each.instead is None for each in stack)
        if waiting > FLOW_STACK_FRAMES_MAX:
            raise IllegalCallFlowError(
                f"{waiting} stages would wait for each other, {FLOW_STACK_FRAMES_MAX} may: does {to} call itself?"
            )
        self._send(Call.REQUEST, to, data, stack=stack, delay_ms=delay_ms)

    def reply(self, data: msgspec.Raw) -> None:
        """Answer whoever asked; without anybody who waits, nothing is sent (CONTRACT D23).

        Raises:
            IllegalCallFlowError: this is a terminator, or another call was made.
        """
        if not self.place.may_reply:
            raise IllegalCallFlowError(f"{self.place.stage_id} is a terminator: nobody waits for its reply.")
        self._make(Call.REPLY)
        if self.incoming.stack:
            *stack, frame = self.incoming.stack
            call, sent = (Call.REPLY, data) if frame.instead is None else (Call.COMPENSATE, frame.instead.data)
            self._send(call, frame.to, sent, state=frame.state, stack=tuple(stack), frame=frame)

    def next(self, data: msgspec.Raw, state: Saved, *, delay_ms: int = 0) -> None:
        """Go on in the next stage, in a transaction of its own.

        Raises:
            IllegalCallFlowError: nothing follows, or another call was made.
        """
        self._make(Call.NEXT)
        to = self.next_stage("next")
        self._send(Call.NEXT, to, data, state=state, stack=self.incoming.stack, delay_ms=delay_ms)

    def goto(self, to: str, data: msgspec.Raw, state: Saved = NOTHING, *, delay_ms: int = 0) -> None:
        """Have another endpoint go on in this one's place: it replies to whoever waits for this one.

        Raises:
            IllegalCallFlowError: another call was made.
        """
        self._make(Call.GOTO)
        self._send(Call.GOTO, to, data, state=state, stack=self.incoming.stack, delay_ms=delay_ms)

    def send_out(self, queue: str, data: msgspec.Raw) -> None:
        """Send the data alone to a queue that other programs read; besides any other call."""
        self._send(Call.SEND, queue, data, stack=(), reach=Reach.QUEUE)

    def next_direct(self) -> None:
        """Take note that the next stage runs at once, in the same transaction.

        Raises:
            IllegalCallFlowError: nothing follows, or another call was made.
        """
        self._make(Call.NEXT)
        self.next_stage("next_direct")

    def stepped(self, place: Place) -> Calls:
        """For the stage that `next_direct` goes to: what was sent so far stays, other calls are free again."""
        calls = Calls(self.incoming, place, self.now_us)
        calls.luggage, calls.compensations, calls.deadline_us = self.luggage, self.compensations, self.deadline_us
        calls.outgoing, calls._ordinal = self.outgoing, self._ordinal
        return calls

    def _make(self, call: Call) -> None:
        if self._made is None or (self._made is call is Call.REQUEST):
            self._made = call
            return
        raise IllegalCallFlowError(
            f"{self.place.stage_id} has made a call of the kind {self._made} and now one of the kind {call}: a run of "
            "a stage makes requests, or one reply, or one next, or one goto."
        )

    def next_stage(self, what: str) -> str:
        """The stage that follows, for a call named `what`.

        Raises:
            IllegalCallFlowError: none does.
        """
        if self.place.next_id is None:
            raise IllegalCallFlowError(
                f"{self.place.stage_id} is the last stage: nothing follows that `{what}` could reach."
            )
        return self.place.next_id

    def _send(
        self,
        call: Call,
        to: str,
        data: msgspec.Raw,
        *,
        state: Saved = NOTHING,
        stack: tuple[Frame, ...],
        frame: Frame | None = None,
        reach: Reach = Reach.STAGE,
        delay_ms: int = 0,
    ) -> None:
        incoming, luggage = self.incoming, self.luggage
        number = incoming.number + 1
        # A flow that fails at its limit is undone all the same. Replies and compensations end with the stack.
        allowed = 2 * FLOW_CALLS_MAX if incoming.undoes else FLOW_CALLS_MAX
        if call not in ENDS_WITH_THE_STACK and number > allowed:
            raise IllegalCallFlowError(
                f"Flow {incoming.trace_id} has made {incoming.number} calls, {allowed} are allowed: does it end?"
            )
        hop = Hop(number, call, to, self.now_us)
        envelope = Envelope(
            message_id=self.next_message_id(),
            flow_id=incoming.flow_id,
            trace_id=incoming.trace_id,
            call=call,
            number=number,
            sender=self.place.stage_id,
            to=to,
            data=data,
            state=state,
            stack=stack,
            initiated_us=incoming.initiated_us,
            sent_us=self.now_us,
            deadline_us=self.deadline_us,
            interactive=incoming.interactive,
            persistent=incoming.persistent,
            sideloads=luggage.sideloads.copy(),
            properties=luggage.properties.copy(),
            trace_context=luggage.trace_context.copy(),
            trail=longer(incoming.trail, hop),
            compensations=self.compensations,
            join=frame.join if frame else "",
            key=frame.key if frame else "",
            undoing=incoming.undoes,
            before=frame.before if frame else None,
        )
        self.outgoing.append(Outgoing(envelope, frame.reach if frame else reach, delay_ms=delay_ms))


def longer(trail: tuple[Hop, ...], hop: Hop) -> tuple[Hop, ...]:
    """The trail with one more call; of a long one the middle is forgotten."""
    if len(trail) < TRAIL_HOPS_MAX:
        return (*trail, hop)
    half = TRAIL_HOPS_MAX // 2
    return (*trail[:half], *trail[half + 1 :], hop)


def first_envelope(
    *,
    message_id: str,
    flow_id: str,
    trace_id: str,
    sender: str,
    to: str,
    data: msgspec.Raw,
    now_us: int,
    call: Call,
    stack: tuple[Frame, ...] = (),
    state: Saved = NOTHING,
    deadline_us: int = 0,
    interactive: bool = False,
    persistent: bool = True,
    sideloads: Mapping[str, bytes] | None = None,
    properties: Mapping[str, str] | None = None,
    trace_context: Mapping[str, str] | None = None,
) -> Envelope:
    """The message that begins a flow.

    Raises:
        IllegalCallFlowError: without a trace id nobody could ever say which flow it was (CONTRACT D24).
    """
    if not trace_id:
        raise IllegalCallFlowError(
            "A flow needs a trace id: give it the name of the order, flight or job that it is about."
        )
    return Envelope(
        message_id=message_id,
        flow_id=flow_id,
        trace_id=trace_id,
        call=call,
        number=1,
        sender=sender,
        to=to,
        data=data,
        state=state,
        stack=stack,
        initiated_us=now_us,
        sent_us=now_us,
        deadline_us=deadline_us,
        interactive=interactive,
        persistent=persistent,
        sideloads=dict(sideloads or {}),
        properties=dict(properties or {}),
        trace_context=dict(trace_context or {}),
        trail=(Hop(1, call, to, now_us),),
    )
