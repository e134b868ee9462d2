"""The states of a message in the heap, and the transitions between them: docs/reference/message-states.md shows them.

Only messages that the heap knows as objects have a state: most of a queue waits on disk. A transition that is not in
`TRANSITIONS` is a defect of the broker, and an assertion: the broker stops, and its backup takes over.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

# Bits, so that whether a transition is legal is one operation where each message passes.
ARRIVING = 1
AVAILABLE = 2
KEPT = 4
DELIVERED = 8
ENLISTED = 16
RETURNING = 32
LEAVING = 64

STATES = {
    ARRIVING: ("arriving", "It was published; the commit that stores it is not durable yet. Nobody is given it."),
    AVAILABLE: ("available", "It is at its place, and goes to whoever has credit next."),
    KEPT: ("kept", "It is kept for one consumer: for its next credit, or for its return after a lost connection."),
    DELIVERED: ("delivered", "A consumer has it and has not settled it."),
    ENLISTED: ("enlisted", "A transaction that has not ended settles it at its commit."),
    RETURNING: ("returning", "Its delivery failed; it is available again when the count of that is durable."),
    LEAVING: (
        "leaving",
        "It was consumed, moved or dropped, or became a dead letter. Only a refused commit brings it back.",
    ),
}
"""Name and meaning of each state."""


class Transition(NamedTuple):
    """A transition: `sources` are the states, as bits, from which it leads to `target`."""

    name: str
    sources: int
    target: int
    when: str


STORE = Transition("store", ARRIVING, AVAILABLE, "The commit that stores it is durable, and it joins the window.")
GIVE = Transition("give", AVAILABLE | KEPT, DELIVERED, "It is sent to a consumer.")
CONSUME = Transition("consume", DELIVERED | ENLISTED, LEAVING, "It is acknowledged, or its transaction commits.")
ENLIST = Transition("enlist", DELIVERED, ENLISTED, "It is acknowledged or disposed of in a transaction.")
PUT_BACK = Transition(
    "put back",
    AVAILABLE | KEPT | DELIVERED | ENLISTED | RETURNING,
    AVAILABLE,
    "It is released unseen, or the count of its failed delivery is durable.",
)
RETURN = Transition(
    "return",
    KEPT | DELIVERED | ENLISTED | LEAVING,
    RETURNING,
    "Its delivery failed, or there was no room where it was to be moved.",
)
KEEP = Transition(
    "keep", DELIVERED | ENLISTED | KEPT, KEPT, "Its delivery failed and blocks its consumer, or its consumer is away."
)
CLAIM = Transition(
    "claim", AVAILABLE | RETURNING, KEPT, "A consumer that came back claims what its application still has."
)
LEAVE = Transition(
    "leave",
    AVAILABLE | KEPT | DELIVERED | ENLISTED,
    LEAVING,
    "It expires, is rejected, moved, purged, dropped or put off, or has failed too often.",
)
REFUSE = Transition("refuse", LEAVING, ENLISTED, "There was no room for the commit of its transaction.")

TRANSITIONS = (STORE, GIVE, ENLIST, CONSUME, PUT_BACK, RETURN, KEEP, CLAIM, LEAVE, REFUSE)

MAY_GIVE = GIVE.sources
MAY_CONSUME = CONSUME.sources


class HasState(Protocol):
    """A message, as far as its state goes."""

    state: int


def enter(message: HasState, transition: Transition) -> None:
    """Take a message through a transition; where each message passes, the code does this itself."""
    assert message.state & transition.sources, f"{transition.name}: {message} is {STATES[message.state][0]}"
    message.state = transition.target
