"""Stashes: a flow as bytes, to be continued later."""

from __future__ import annotations

import msgspec

from legato.errors import MessageFormatError
from legato.flows.model.calls import Place
from legato.flows.model.envelope import UNREADABLE, Envelope, Saved

MAGIC = b"LEGATO-FLOW-1\n"


class Stash(msgspec.Struct, frozen=True):
    """The content of `Context.stash`.

    Attributes:
        envelope: the message that the stage had, without its sideloads (CONTRACT D23).
        stage_id, next_id, may_reply: the stage (`Place`).
        state: of the endpoint.
    """

    envelope: Envelope
    stage_id: str
    next_id: str | None
    may_reply: bool
    state: Saved

    @property
    def place(self) -> Place:
        """Place from which calls are made."""
        return Place(self.stage_id, self.next_id, self.may_reply)


_decoder = msgspec.json.Decoder(Stash)


def make_stash(envelope: Envelope, place: Place, state: Saved) -> bytes:
    """The bytes of a stash."""
    bare = msgspec.structs.replace(envelope, sideloads={})
    return MAGIC + msgspec.json.encode(Stash(bare, place.stage_id, place.next_id, place.may_reply, state))


def read_stash(data: bytes) -> Stash:
    """Read a stash that `make_stash` made.

    Raises:
        MessageFormatError: these are other bytes.
    """
    if not data.startswith(MAGIC):
        raise MessageFormatError("These bytes are no stash of a flow.")
    try:
        return _decoder.decode(data[len(MAGIC) :])
    except UNREADABLE as error:
        raise MessageFormatError(f"This stash cannot be read: {error}.") from error
