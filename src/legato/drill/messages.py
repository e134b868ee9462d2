"""Messages of a drill: identity and delivery options of each."""

from typing import Any

import msgspec

from legato.client import Message, TextMessage
from legato.drill.load import COLOURS, PICKY_FLOW, Trait
from legato.drill.records import Identity
from legato.errors import LegatoError

PADDING_BYTES = 200
LARGE_BYTES = 2_600_000
"""More than two frames take: a broker takes it in parts."""
DELAY_MS = 700
GROUPS = 5
POISONED_EVERY = 40
"""Such messages of a picky consumer's are never processed."""
STUMBLED_EVERY = 7
"""Such messages are not processed when they come for the first time."""


class MutilatedError(LegatoError):
    """A message is not as it was sent, or not for whom it came to."""


def make_message(identity: Identity, trait: Trait = Trait.PLAIN) -> tuple[TextMessage, dict[str, Any]]:
    """A message, and how it is to be sent."""
    how: dict[str, Any] = {}
    message = TextMessage(text_of(identity, LARGE_BYTES if trait is Trait.LARGE else PADDING_BYTES))
    match trait:
        case Trait.PRIORITIES:
            how["priority"] = identity.number % 10
        case Trait.DELAYED:
            how["delivery_delay_ms"] = DELAY_MS
        case Trait.GROUPS:
            message.set_property("JMSXGroupID", f"group-{identity.number % GROUPS}")
        case Trait.COLOURED:
            message.set_property("colour", COLOURS[identity.number % len(COLOURS)])
        case Trait.STAGED:
            message = TextMessage(msgspec.json.encode(text_of(identity)).decode())
    return message, how


def text_of(identity: Identity, padding_bytes: int = PADDING_BYTES, source: Identity | None = None) -> str:
    """The body of a message: who sent it, as which of its messages, what it was made from, and some weight."""
    origin = f"{source.producer} {source.number} " if source else ""
    return f"{identity.producer} {identity.number} {origin}{'.' * padding_bytes}"


def identity_of(message: Message) -> Identity:
    """Identity of a message."""
    return identity_in(str(message.body).strip('"'))


def identity_in(text: str) -> Identity:
    """Identity in a message's text.

    Raises:
        ValueError: it is none of a drill's.
    """
    producer, number, _ = text.split(" ", 2)
    if '"' in producer:  # What goes from stage to stage of a flow is JSON, with such a text in it.
        raise ValueError(f"no message of a drill's producer: {text[:80]!r}")
    return Identity(producer, int(number))


def source_of(message: Message) -> Identity:
    """Identity of the message that a forwarder made this from."""
    _, _, producer, number, _ = str(message.body).split(" ", 4)
    return Identity(producer, int(number))


def check(message: Message, trait: Trait, selector: str) -> None:
    """See that the message is whole, and the consumer's.

    Raises:
        MutilatedError: it is not.
    """
    if trait is Trait.LARGE and len(str(message.body)) <= LARGE_BYTES:
        raise MutilatedError(f"The large message {message.message_id} came with {len(str(message.body))} bytes.")
    if trait is Trait.STREAMED and message.body != text_of(identity_of(message)):
        raise MutilatedError(f"The body of {message.message_id} is not what was sent: {str(message.body)[:80]!r}.")
    if selector and selector != f"colour = '{message.properties['colour']}'":
        raise MutilatedError(f"{message.properties['colour']} came to a consumer with the selector {selector}.")


def is_poisoned(identity: Identity) -> bool:
    """Whether a picky consumer never processes a message."""
    return identity.number % POISONED_EVERY == 0


def is_to_die(flow: str, identity: Identity) -> bool:
    """Whether a message of that queue or topic is to become a dead letter: no other message of a drill's may."""
    return flow.endswith(f".{PICKY_FLOW}") and is_poisoned(identity)


def stumbles(identity: Identity) -> bool:
    """Whether a picky consumer does not process a message when it comes for the first time."""
    return identity.number % STUMBLED_EVERY == 0
