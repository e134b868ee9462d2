"""Failure propagation: tells the waiting callers of a flow, and runs its compensations, the latest first."""

from __future__ import annotations

import msgspec

from legato.flows.model.calls import derived_id, longer
from legato.flows.model.envelope import Call, Envelope, Frame, Hop, Outgoing, Reach, Saved


def consequences(envelope: Envelope, reason: str, now_us: int) -> list[Outgoing]:
    """Messages to send because the flow of `envelope` ends here without its reply.

    A join that waits is told, and decides whether the flow goes on without this answer. Otherwise a future that waits
    is told, and the flow's compensations are asked, one after the other.

    Args:
        envelope: the message that will not be worked on.
        reason: a sentence.
        now_us: microseconds since 1970.
    """
    waiting = next((frame for frame in reversed(envelope.stack) if frame.join or frame.reach is Reach.ADDRESS), None)
    told = [] if waiting is None else [_notice(envelope, waiting, reason, now_us)]
    if waiting is not None and waiting.join:
        return told
    return [*told, *compensating(envelope, now_us)]


def compensating(envelope: Envelope, now_us: int) -> list[Outgoing]:
    """The call of the latest compensation; each of the others waits on the stack for the reply of the one before it."""
    if not envelope.compensations:
        return []
    *earlier, latest = envelope.compensations
    stack = tuple(Frame(one.to, instead=Saved(one.data)) for one in earlier)
    compensation = _follow_up(envelope, Call.COMPENSATE, latest.to, 0, now_us)
    return [Outgoing(msgspec.structs.replace(compensation, data=latest.data, stack=stack))]


def _notice(envelope: Envelope, waiting: Frame, reason: str, now_us: int) -> Outgoing:
    notice = _follow_up(envelope, Call.FAILURE, waiting.to, 1, now_us)
    below = envelope.stack[: envelope.stack.index(waiting)]
    notice = msgspec.structs.replace(
        notice,
        state=waiting.state,
        stack=below,
        join=waiting.join,
        key=waiting.key,
        before=waiting.before,
        failure=reason,
        compensations=envelope.compensations,
    )
    return Outgoing(notice, waiting.reach)


def _follow_up(envelope: Envelope, call: Call, to: str, ordinal: int, now_us: int) -> Envelope:
    number = envelope.number + 1
    return msgspec.structs.replace(
        envelope,
        message_id=derived_id(envelope.message_id, -1 - ordinal),
        call=call,
        number=number,
        sender=envelope.to,
        to=to,
        data=msgspec.Raw(b"null"),
        state=Saved(),
        sent_us=now_us,
        deadline_us=0,
        sideloads={},
        trail=longer(envelope.trail, Hop(number, call, to, now_us)),
        compensations=(),
    )
