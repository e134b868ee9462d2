"""Roles of a broker process, and the table of their transitions. Pure.

    starting --started--> backup ----won----> activating --activated--> primary --leaves--> handing over
                          |    ^                ^
            silent, cut off    heard           won
                          v    |                |
                          seeking --------------+

    activating, primary, handing over --lost--> fenced
    handing over, fenced --stepped down--> backup
    all --stop--> stopped

A broker that lost the lock or was refused a commit is fenced: it serves nobody and commits nothing. When it has let go
of everything it steps down, as one does that let go of the lock by itself: it is a backup from then on. Every role can
be told to stop.
"""

from enum import StrEnum


class Role(StrEnum):
    """The role of a broker process."""

    STARTING = "starting"
    """Reads its settings; wants nothing of the store yet."""
    BACKUP = "backup"
    """Waits for the lock, and has heard of the primary, or has only just begun to listen; serves nobody."""
    SEEKING = "seeking"
    """A backup that has lost the primary: tries the lock and the primary in turn until it has one (CONTRACT B6)."""
    ACTIVATING = "activating"
    """Holds the lock; begins its epoch and reads the heads of queues; serves nobody yet."""
    PRIMARY = "primary"
    """Serves."""
    HANDING_OVER = "handing over"
    """A primary whose time is over: takes nothing more, and lets go of store and lock."""
    FENCED = "fenced"
    """Another one may be primary: serves nobody, commits nothing, and lets go of what it has."""
    STOPPED = "stopped"
    """Holds nothing any more."""


class Event(StrEnum):
    """Events that change a process's role."""

    STARTED = "started"
    """Its settings are good."""
    SILENT = "silent"
    """The activation interval has passed since the last heartbeat (CONTRACT B19)."""
    CUT_OFF = "cut off"
    """The connection to the primary is lost."""
    HEARD = "heard"
    """A heartbeat came."""
    WON = "won"
    """The lock is its own."""
    ACTIVATED = "activated"
    """Its epoch has begun and it listens."""
    LEAVES = "leaves"
    """Its epoch is to end: it was told to hand over or to stop, or has fenced itself."""
    STEPPED_DOWN = "stepped down"
    """Its epoch is over, and it has let go of store and lock."""
    LOST = "lost"
    """The lock is not its own any more, or a commit was refused with `FencedError`."""
    STOP = "stop"
    """It was told to stop, or cannot go on."""


TRANSITIONS: dict[tuple[Role, Event], Role] = {
    (Role.STARTING, Event.STARTED): Role.BACKUP,
    (Role.BACKUP, Event.HEARD): Role.BACKUP,
    (Role.BACKUP, Event.SILENT): Role.SEEKING,
    (Role.BACKUP, Event.CUT_OFF): Role.SEEKING,
    (Role.SEEKING, Event.HEARD): Role.BACKUP,
    (Role.SEEKING, Event.SILENT): Role.SEEKING,
    (Role.SEEKING, Event.CUT_OFF): Role.SEEKING,
    (Role.BACKUP, Event.WON): Role.ACTIVATING,
    (Role.SEEKING, Event.WON): Role.ACTIVATING,
    (Role.ACTIVATING, Event.ACTIVATED): Role.PRIMARY,
    (Role.PRIMARY, Event.LEAVES): Role.HANDING_OVER,
    (Role.HANDING_OVER, Event.STEPPED_DOWN): Role.BACKUP,
    (Role.ACTIVATING, Event.LOST): Role.FENCED,
    (Role.PRIMARY, Event.LOST): Role.FENCED,
    (Role.HANDING_OVER, Event.LOST): Role.FENCED,
    (Role.FENCED, Event.LOST): Role.FENCED,
    (Role.FENCED, Event.STEPPED_DOWN): Role.BACKUP,
    (Role.STARTING, Event.STOP): Role.STOPPED,
    (Role.BACKUP, Event.STOP): Role.STOPPED,
    (Role.SEEKING, Event.STOP): Role.STOPPED,
    (Role.ACTIVATING, Event.STOP): Role.STOPPED,
    (Role.PRIMARY, Event.STOP): Role.STOPPED,
    (Role.HANDING_OVER, Event.STOP): Role.STOPPED,
    (Role.FENCED, Event.STOP): Role.STOPPED,
    (Role.STOPPED, Event.STOP): Role.STOPPED,
}
"""Every transition there is."""


def next_role(role: Role, event: Event) -> Role:
    """The role after `event`.

    Raises:
        ValueError: the event cannot happen in this role.
    """
    try:
        return TRANSITIONS[role, event]
    except KeyError:
        raise ValueError(f"there is no transition from the role {role} for the event {event}") from None


def may_serve(role: Role) -> bool:
    """True if clients may be served and batches committed."""
    return role is Role.PRIMARY
