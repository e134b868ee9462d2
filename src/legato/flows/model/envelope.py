"""Envelopes: the messages of flows, with data, the callers' states, and the flow's identity."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from legato.errors import MessageFormatError

FORMAT = 1


class Call(StrEnum):
    """How a stage came to be called (CONTRACT D23); FAILURE tells who waits that the flow failed."""

    SEND = "send"
    PUBLISH = "publish"
    REQUEST = "request"
    REPLY = "reply"
    NEXT = "next"
    GOTO = "goto"
    FAILURE = "failure"
    COMPENSATE = "compensate"


class Reach(StrEnum):
    """Meaning of the name in `Frame.to` or `Envelope.to`.

    Attributes:
        STAGE: the queue of a stage.
        TOPIC: the topic that subscription terminators of that name hear.
        ANSWERS: the queue of answers to the joins of a stage (`joining.py`).
        JOINED: the queue in which the joins of a stage wait for their answers.
        ADDRESS: a queue of just this name: a future's.
        QUEUE: a queue of just this name: other programs read it, and get the data without anything of the flow.
    """

    STAGE = "stage"
    TOPIC = "topic"
    ANSWERS = "answers"
    JOINED = "joined"
    ADDRESS = "address"
    QUEUE = "queue"


class Saved(msgspec.Struct, gc=False, frozen=True):
    """An object as JSON, with the version of its class.

    Attributes:
        data: the JSON; `null` for none.
        version: of the endpoint's state class when it was written (`Endpoint.state_version`).
    """

    data: msgspec.Raw = msgspec.Raw(b"null")
    version: int = 1


class Frame(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A caller that waits for a reply.

    Attributes:
        to: who gets it.
        state: what it finds as its own state.
        reach: what `to` means.
        join: which join the reply is an answer to, empty for none (`joins.py`).
        key: under which name the join keeps the answer.
        instead: what it gets instead of the reply: it does not wait for an answer but for its turn (`failing.py`).
        before: how many compensations the flow had before the join, if that ends without answers that are late.
    """

    to: str
    state: Saved = Saved()
    reach: Reach = Reach.STAGE
    join: str = ""
    key: str = ""
    instead: Saved | None = None
    before: int | None = None


class Hop(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A call that the flow has made on its way here.

    Attributes:
        number: of the call in its flow.
        call: its kind.
        to: the stage that was called.
        sent_us: when, microseconds since 1970.
    """

    number: int
    call: Call
    to: str
    sent_us: int


class Compensation(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """An endpoint that undoes a step of the flow if it fails later.

    Attributes:
        to: the endpoint that is asked.
        data: its request.
    """

    to: str
    data: msgspec.Raw


class Envelope(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, kw_only=True):
    """One message of a flow.

    Attributes:
        format: of this record.
        message_id: of this message, for ever: the inbox knows it by this, and the broker as its duplicate id.
        flow_id: of the initiation that began the flow.
        trace_id: what the initiator calls the flow, for people.
        call: how the receiver is called.
        number: of this call in the flow, from 1 (CONTRACT D21).
        sender: the stage or initiator that sent it.
        to: the stage that gets it.
        data: the request, reply or the like, as JSON.
        state: what the receiver finds as its state.
        stack: who waits for a reply, the next one last.
        initiated_us, sent_us: when the flow was initiated and this sent, microseconds since 1970.
        deadline_us: after which the flow is of no use to anybody; 0 for never.
        interactive: whether a person waits: it overtakes others.
        persistent: whether it survives the death of its broker.
        sideloads: bytes by name, base64 on the wire, that come with this message only.
        properties: texts by name that come with every message of the flow from here on.
        trace_context: OpenTelemetry's headers (`traceparent` ...).
        trail: the calls so far, oldest first, at most `TRAIL_HOPS_MAX`.
        compensations: to be run in reverse should the flow fail.
        join, key: of an answer to a join, which of its answers this is (`Frame`).
        failure: why the flow failed, for who waits for its reply.
        undoing: whether it came of a compensation, which goes on in a flow that was cancelled.
        before: of an answer to a join, how many of its compensations are not of its branch (`Frame`).
    """

    format: int = FORMAT
    message_id: str
    flow_id: str
    trace_id: str
    call: Call
    number: int
    sender: str
    to: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    state: Saved = Saved()
    stack: tuple[Frame, ...] = ()
    initiated_us: int
    sent_us: int
    deadline_us: int = 0
    interactive: bool = False
    persistent: bool = True
    sideloads: dict[str, bytes] = {}
    properties: dict[str, str] = {}
    trace_context: dict[str, str] = {}
    trail: tuple[Hop, ...] = ()
    compensations: tuple[Compensation, ...] = ()
    join: str = ""
    key: str = ""
    failure: str = ""
    undoing: bool = False
    before: int | None = None

    @property
    def undoes(self) -> bool:
        """Whether it is a compensation, or came of one."""
        return self.undoing or self.call is Call.COMPENSATE


class Outgoing(msgspec.Struct, gc=False, frozen=True):
    """An envelope that is to be sent.

    Attributes:
        envelope: what.
        reach: what `envelope.to` means.
        delay_ms: before which it is not delivered.
        time_to_live_ms: after which it expires; 0 for never.
        count: how many envelopes it stands for: those of its bundle, of which `envelope` is the first.
        bundle: all of them, as they travel (`encode_bundle`); empty for one alone.
        apart: it was in a bundle that failed: it is worked on in a transaction of its own.
    """

    envelope: Envelope
    reach: Reach = Reach.STAGE
    delay_ms: int = 0
    time_to_live_ms: int = 0
    count: int = 1
    bundle: bytes = b""
    apart: bool = False


COMPRESSION_LEVEL = 1
TRAIL_HOPS_MAX = 50
"""Of a longer flow the first and the last calls are kept."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Envelope)
_bundle_decoder = msgspec.json.Decoder(list[Envelope])
_outgoing_decoder = msgspec.json.Decoder(Outgoing)

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises of bytes that are not what is wanted; the last one of JSON that is nested too deep."""


def encode(envelope: Envelope) -> str:
    """The JSON that is the body of the message."""
    return _encoder.encode(envelope).decode()


def decode(text: str) -> Envelope:
    """An envelope from a message's body.

    Raises:
        MessageFormatError: it is none, or of a format that this version does not know.
    """
    return _checked(_decoder, text)[0]


def encode_bundle(envelopes: Sequence[Envelope]) -> bytes:
    """The body of a message with several: their JSON, deflated, as they are much alike (RFC 1950)."""
    return zlib.compress(_encoder.encode(envelopes), COMPRESSION_LEVEL)


def decode_bundle(data: bytes) -> list[Envelope]:
    """The envelopes from such a message's body.

    Raises:
        MessageFormatError: as `decode`.
    """
    try:
        return _checked(_bundle_decoder, zlib.decompress(data))
    except zlib.error as error:
        raise MessageFormatError(f"This is no bundle of messages of flows: {error}.") from error


def _checked(decoder: msgspec.json.Decoder[Any], text: str | bytes) -> list[Envelope]:
    try:
        decoded = decoder.decode(text)
    except UNREADABLE as error:
        raise MessageFormatError(f"This is not a message of a flow: {error}.") from error
    envelopes: list[Envelope] = decoded if isinstance(decoded, list) else [decoded]
    for envelope in envelopes:
        _check_format(envelope)
    return envelopes


def _check_format(envelope: Envelope) -> None:
    if envelope.format != FORMAT:
        raise MessageFormatError(f"The message is of format {envelope.format}; this version knows {FORMAT}.")


def encode_outgoing(outgoing: Outgoing) -> bytes:
    """Encode a message for the outbox."""
    return _encoder.encode(outgoing)


def decode_outgoing(data: str | bytes) -> Outgoing:
    """Decode a message from `encode_outgoing`.

    Raises:
        MessageFormatError: it is none, or of a format that this version does not know.
    """
    try:
        outgoing = _outgoing_decoder.decode(data)
    except UNREADABLE as error:
        raise MessageFormatError(f"This is no message of an outbox: {error}.") from error
    _check_format(outgoing.envelope)
    return outgoing
