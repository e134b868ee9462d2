"""Link endings: closed, detached or lost; they decide which state ends with the link."""

from enum import Enum, auto

LINK_DETACH, SESSION_END = "link-detach", "session-end"


def kept_policy(asked: str | None) -> str:
    """The expiry policy of a terminus that is not durable, as the answer to its attach says it (AMQP 3.5.6).

    Its deliveries are known by numbers of their session, and our engine cannot resume them in another one.
    """
    return LINK_DETACH if asked == LINK_DETACH else SESSION_END


class LinkEnding(Enum):
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
    """We ended it: what its receiver has seen may be on its way to us."""

    @property
    def clean(self) -> bool:
        """Whether the receiver told us all it had to."""
        return self not in (LinkEnding.LOST, LinkEnding.CUT)

    def expires(self, policy: str | None) -> bool:
        """Whether a terminus with that expiry policy goes now (AMQP 3.5.6)."""
        match policy:
            case "link-detach":
                return True
            case "session-end":
                return self not in (LinkEnding.DETACHED, LinkEnding.CUT)
            case "connection-close":
                return self in (LinkEnding.CONNECTION_CLOSED, LinkEnding.LOST, LinkEnding.CLOSED)
        return self is LinkEnding.CLOSED
