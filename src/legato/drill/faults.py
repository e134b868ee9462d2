"""The faults that a drill knows, and when they may strike."""

import resource
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, TypeVar

from legato.errors import ConfigError
from legato.points import Point

_Kind = TypeVar("_Kind", bound=StrEnum)


class Fault(StrEnum):
    """What can happen to a pair of brokers."""

    KILL = "kill"
    STOP = "stop"
    CUT = "cut"
    FREEZE = "freeze"
    FULL_DISK = "full-disk"
    SLOW_DISK = "slow-disk"
    CLOCK_JUMP = "clock-jump"


class FaultText(NamedTuple):
    """What a fault does; `owned` says that it needs brokers that the drill itself started."""

    does: str
    owned: bool


FAULTS: dict[Fault, FaultText] = {
    Fault.KILL: FaultText("SIGKILL to the primary; it is started again as the backup.", True),
    Fault.STOP: FaultText("SIGSTOP to the primary for a while, then SIGCONT: a long pause of the machine.", True),
    Fault.CUT: FaultText("All connections between clients and brokers break, and none is possible for a while.", False),
    Fault.FREEZE: FaultText("Connections stay, but nothing comes through for a while: a network that drops.", False),
    Fault.FULL_DISK: FaultText("The primary's files cannot grow for a while, and somebody fills them up.", True),
    Fault.SLOW_DISK: FaultText("Every commit takes up to 200 ms longer for a while.", True),
    Fault.CLOCK_JUMP: FaultText("The brokers' wall clocks are wrong for a while, by up to 90 s.", True),
}

POINTS: dict[Point, str] = {
    Point.BEFORE_COMMIT: "The broker has been asked for something that is not durable yet.",
    Point.BETWEEN_COMMIT_AND_CONFIRM: "Sends are durable, and their senders have not heard so.",
    Point.BETWEEN_ACKNOWLEDGE_AND_COMMIT: "The broker has acknowledgements that are not durable yet.",
    Point.BETWEEN_COMMIT_AND_OUTCOME: "A transaction is committed, and its client has not heard so.",
    Point.DURING_TAKEOVER: "The new primary's epoch has begun, and it serves nobody yet.",
    Point.BETWEEN_RECEIVE_AND_ACKNOWLEDGE: "A client has received messages that it has not acknowledged.",
    Point.BETWEEN_SEND_AND_COMMIT: "A client has received and sent in a transaction that it has not committed.",
}


def parse_faults(text: str, *, owned: bool) -> list[Fault]:
    """The faults of a list with commas; `all` or nothing means all that are possible.

    Args:
        owned: whether the drill started the brokers itself.

    Raises:
        ConfigError: a fault is unknown, or not possible with somebody else's brokers.
    """
    possible = [fault for fault, description in FAULTS.items() if owned or not description.owned]
    if not hasattr(resource, "prlimit") and Fault.FULL_DISK in possible:
        possible.remove(Fault.FULL_DISK)
    if text in ("", "all"):
        return possible
    faults = [_named(Fault, name.strip(), "fault") for name in text.split(",")]
    for fault in faults:
        if fault not in possible:
            why = "brokers that the drill starts itself (--config)" if FAULTS[fault].owned and not owned else "Linux"
            raise ConfigError(f"The fault {fault} needs {why}; here there are {', '.join(possible)}.")
    return faults


def parse_points(texts: Sequence[str], *, owned: bool) -> list[Point]:
    """The points of `--at`, each of which may be a list with commas.

    Raises:
        ConfigError: a point is unknown, or the brokers are not the drill's own.
    """
    points = [_named(Point, name.strip(), "point") for text in texts for name in text.split(",")]
    if points and not owned:
        raise ConfigError("Points need brokers that the drill starts itself: give --config, or neither it nor --url.")
    return points


def _named(kind: type[_Kind], name: str, what: str) -> _Kind:
    try:
        return kind(name)
    except ValueError:
        known = ", ".join(kind)
        raise ConfigError(f"There is no {what} {name!r}; there are {known}. See legato drill --list.") from None
