"""How a link ends, which decides what ends with it."""

from enum import Enum, auto


class Ending(Enum):
    """From the narrowest end to the widest; `LOST` is the only one that nobody meant."""

    DETACHED = auto()
    """The peer detached the link and may attach it again."""
    CLOSED = auto()
    """The peer detached the link for good (AMQP 2.6.6)."""
    SESSION_ENDED = auto()
    CONNECTION_CLOSED = auto()
    LOST = auto()
    """The connection broke, or the peer reported an error: its receivers may have seen what they did not settle."""
    CUT = auto()
    """We ended it."""

    @property
    def clean(self) -> bool:
        """Whether the receiver told us all it had to."""
        return self is not Ending.LOST

    def expires(self, policy: str | None) -> bool:
        """Whether a terminus with that expiry policy goes now (AMQP 3.5.2)."""
        match policy:
            case "link-detach":
                return True
            case "session-end":
                return self not in (Ending.DETACHED, Ending.CUT)
            case "connection-close":
                return self in (Ending.CONNECTION_CLOSED, Ending.LOST, Ending.CLOSED)
        return self is Ending.CLOSED
