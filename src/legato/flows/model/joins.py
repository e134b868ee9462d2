"""Joins: several requests at once, continued when all are answered or the time is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from legato.errors import FlowError
from legato.flows.model.calls import Calls, derived_id, longer
from legato.flows.model.envelope import Call, Envelope, Frame, Hop, Outgoing, Reach, Saved
from legato.flows.model.failure_propagation import compensating, consequences
from legato.flows.model.payloads import from_json, to_json


class Request(msgspec.Struct, frozen=True):
    """One of the requests of a join.

    Attributes:
        to: the endpoint.
        data: its request.
    """

    to: str
    data: Any


class Answers(msgspec.Struct, frozen=True):
    """The answers of a join: annotate the next stage's message with this class.

    Attributes:
        answers: the replies by key, as JSON; `get` makes objects of them.
        missing: the keys without an answer, and why; empty unless the join was partial.
    """

    answers: dict[str, msgspec.Raw]
    missing: dict[str, str] = {}

    def get(self, key: str, kind: Any = Any) -> Any:
        """The reply of that key, as an object of class `kind`.

        Raises:
            FlowError: there is none.
            MessageFormatError: it is of another kind.
        """
        if key not in self.answers:
            raise FlowError(f"There is no answer {key!r}: {self.missing.get(key, 'nobody was asked')}.")
        return from_json(self.answers[key], kind)


class Join(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answers so far; it waits as a message among those of its stage.

    Attributes:
        id: of the join.
        onward: the message that its stage will get, still without data.
        expected: the keys.
        answers: what came.
        failures: by key, why no answer will come.
        partial: whether the stage takes less than all.
        before: how many compensations the flow had before the join; None if a former version wrote it.
    """

    id: str
    onward: Envelope
    expected: tuple[str, ...]
    answers: dict[str, msgspec.Raw] = {}
    failures: dict[str, str] = {}
    partial: bool = False
    before: int | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing more is to come."""
        return len(self.answers) + len(self.failures) >= len(self.expected)

    def with_answer(self, envelope: Envelope) -> Join:
        """The join with one more answer, or with the failure of one; what is known already does not count again."""
        key = envelope.key
        if key in self.answers or key in self.failures or key not in self.expected:
            return self
        known = self.onward.compensations
        if self.before is None:
            added = tuple(one for one in envelope.compensations if one not in known)
        else:
            # What undoes one branch may be equal to what undoes another: both are asked.
            added = envelope.compensations[self.before :]
        onward = msgspec.structs.replace(self.onward, compensations=(*known, *added))
        if envelope.failure:
            return msgspec.structs.replace(self, onward=onward, failures={**self.failures, key: envelope.failure})
        return msgspec.structs.replace(self, onward=onward, answers={**self.answers, key: envelope.data})

    def timed_out(self) -> Join:
        """The join after its time: who has not answered never will."""
        late = {key: "no answer came in time" for key in self.expected if key not in self.answers}
        return msgspec.structs.replace(self, failures={**late, **self.failures})

    def outcome(self, now_us: int) -> list[Outgoing]:
        """Messages of a complete join: its stage goes on, or the flow fails."""
        if self.failures and not self.partial:
            reason = "; ".join(f"{key}: {failure}" for key, failure in sorted(self.failures.items()))
            return consequences(self.onward, f"A join of {self.onward.to} failed: {reason}", now_us)
        data = to_json(Answers(self.answers, self.failures))
        return [Outgoing(msgspec.structs.replace(self.onward, data=data, sent_us=now_us))]


def begin_join(
    calls: Calls,
    requests: Mapping[str, tuple[str, msgspec.Raw]],
    state: Saved,
    *,
    timeout_ms: int = 0,
    partial: bool = False,
) -> None:
    """Make the requests of a join, have the join wait for their answers, and a timer with it.

    Args:
        requests: endpoint and data by key.
        state: what the stage after the join finds as its own.
        timeout_ms: after which who has not answered is not waited for; 0 for ever.
        partial: whether that stage takes less than all answers; else the flow fails.

    Raises:
        IllegalCallFlowError: as `Calls.request`.
        ValueError: there are no requests.
    """
    if not requests:
        raise ValueError("A join needs at least one request.")
    to = calls.next_stage("request_all")
    before = len(calls.compensations)
    join_id = calls.next_message_id()
    for key, (endpoint, data) in requests.items():
        frame = Frame(to, reach=Reach.ANSWERS, join=join_id, key=key, before=before if timeout_ms else None)
        calls.request(endpoint, data, state, frame=frame)
    incoming = calls.incoming
    number = incoming.number + 2
    onward = msgspec.structs.replace(
        incoming,
        message_id=derived_id(join_id, 0),
        call=Call.REPLY,
        number=number,
        sender=calls.place.stage_id,
        to=to,
        data=msgspec.Raw(b"null"),
        state=state,
        sent_us=calls.now_us,
        deadline_us=calls.deadline_us,
        sideloads={},
        properties=dict(calls.luggage.properties),
        trace_context=dict(calls.luggage.trace_context),
        trail=longer(incoming.trail, Hop(number, Call.REPLY, to, calls.now_us)),
        compensations=calls.compensations,
        undoing=incoming.undoes,
    )
    join = Join(join_id, onward, tuple(requests), partial=partial, before=before)
    calls.outgoing.append(waiting(join))
    if timeout_ms:
        alarm = msgspec.structs.replace(onward, message_id=derived_id(join_id, 1), stack=(), join=join_id)
        calls.outgoing.append(Outgoing(alarm, Reach.ANSWERS, delay_ms=timeout_ms))


def too_late(envelope: Envelope, now_us: int) -> list[Outgoing]:
    """Messages to send because an answer came after the time of its join: what its branch did is undone.

    Answers without that time do not say what their branch added, and come too late only if they come twice.
    """
    if not envelope.key or envelope.before is None:
        return []
    added = envelope.compensations[envelope.before :]
    late = msgspec.structs.replace(envelope, compensations=added, join="", key="", failure="", before=None)
    return compensating(late, now_us)


def waiting(join: Join) -> Outgoing:
    """The message as which a join waits for answers."""
    envelope = msgspec.structs.replace(
        join.onward, message_id=derived_id(join.id, 2 + len(join.answers) + len(join.failures)), join=join.id, stack=()
    )
    return Outgoing(msgspec.structs.replace(envelope, data=to_json(join)), Reach.JOINED)


def join_of(envelope: Envelope) -> Join:
    """The join in a message that `waiting` made."""
    return _decoder.decode(envelope.data)


_decoder = msgspec.json.Decoder(Join)
