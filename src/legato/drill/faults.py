"""The faults of a drill, and when each may strike."""

import resource
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeVar

from legato.errors import ConfigError
from legato.failpoints import AnyPoint, FlowPoint, Point, SinkPoint

_Kind = TypeVar("_Kind", bound=StrEnum)


class Fault(StrEnum):
    """A fault of brokers, clients, or the network between them."""

    KILL = "kill"
    KILL_BOTH = "kill-both"
    SWITCHOVER = "switchover"
    STOP = "stop"
    LOOP_STUCK = "loop-stuck"
    KILL_CLIENT = "kill-client"
    STOP_CLIENT = "stop-client"
    CUT = "cut"
    FREEZE = "freeze"
    LATE = "late"
    HALF_CLOSE = "half-close"
    PARTITION = "partition"
    FULL_DISK = "full-disk"
    FULL_DISK_KILL = "full-disk-kill"
    FULL_DISK_SWITCHOVER = "full-disk-switchover"
    SLOW_DISK = "slow-disk"
    CLOCK_JUMP = "clock-jump"
    KILL_READER = "kill-reader"
    STOP_READER = "stop-reader"
    DELETE_LOCK = "delete-lock"
    KILL_DRIVER = "kill-driver"


class FaultText(NamedTuple):
    """Texts about a fault.

    Args:
        owned: it needs brokers that the drill itself started.
        spark_load: it needs the Spark job of `--spark-load`.
    """

    does: str
    owned: bool
    spark_load: bool = False


FAULTS: dict[Fault, FaultText] = {
    Fault.KILL: FaultText("SIGKILL to the primary; it is started again as the backup.", True),
    Fault.KILL_BOTH: FaultText("SIGKILL to the primary and all backups together; all are started again.", True),
    Fault.SWITCHOVER: FaultText("The backup takes over as planned, and the primary becomes the backup.", True),
    Fault.STOP: FaultText("SIGSTOP to the primary for a while, then SIGCONT, like a long pause of the machine.", True),
    Fault.LOOP_STUCK: FaultText("The primary's event loop hangs until its watchdog ends the process.", True),
    Fault.KILL_CLIENT: FaultText("SIGKILL to a process of clients; it is started again.", False),
    Fault.STOP_CLIENT: FaultText("SIGSTOP to a process of clients for a while, then SIGCONT.", False),
    Fault.CUT: FaultText("All connections between clients and brokers are reset; new ones fail for a while.", False),
    Fault.FREEZE: FaultText("Connections stay open, but no byte comes through for a while.", False),
    Fault.LATE: FaultText("Connections hold all bytes back until their clients have reconnected on others.", False),
    Fault.HALF_CLOSE: FaultText(
        "One direction of every connection is closed in good order; the other stays open.", False
    ),
    Fault.PARTITION: FaultText("All packets to and from the primary are dropped for a while, heartbeats too.", True),
    Fault.FULL_DISK: FaultText("The disk of all brokers is full for a while, to the last block.", True),
    Fault.FULL_DISK_KILL: FaultText("A full disk, and SIGKILL to the primary, which is started again on it.", True),
    Fault.FULL_DISK_SWITCHOVER: FaultText("A full disk, and a planned switchover on it.", True),
    Fault.SLOW_DISK: FaultText("Every commit takes up to 200 ms longer for a while.", True),
    Fault.CLOCK_JUMP: FaultText("The brokers' wall clocks are wrong for a while, by up to 90 s.", True),
    Fault.KILL_READER: FaultText("SIGKILL to a process in a read of the store: what it read must be cleared.", True),
    Fault.STOP_READER: FaultText("SIGSTOP to a process in a read of the store: the status must name it.", True),
    Fault.DELETE_LOCK: FaultText("The lock's file is deleted or replaced: its primary must become a backup.", True),
    Fault.KILL_DRIVER: FaultText(
        "SIGKILL to driver, JVM and workers of the Spark job; the driver is started again 20 to 60 s later.", True, True
    ),
}

FULL_DISK_FAULTS = (Fault.FULL_DISK, Fault.FULL_DISK_KILL, Fault.FULL_DISK_SWITCHOVER)

ALL = "all"

POINTS: dict[AnyPoint, str] = {
    Point.BEFORE_COMMIT: "A client has sent, acknowledged or committed; nothing of it is durable yet.",
    Point.BETWEEN_COMMIT_AND_CONFIRM: "Sends are durable; their senders are not told yet.",
    Point.BETWEEN_ACKNOWLEDGE_AND_COMMIT: "The broker has acknowledgements that are not durable yet.",
    Point.BETWEEN_ACKNOWLEDGED_AND_CONFIRM: "Acknowledgements are durable; their clients are not told yet.",
    Point.BETWEEN_DISCHARGE_AND_COMMIT: "A client commits a transaction; the commit is not durable yet.",
    Point.BETWEEN_COMMIT_AND_OUTCOME: "A transaction is committed; its client is not told yet.",
    Point.DURING_LARGE_MESSAGE: "Some parts of a large message are durable, others are not.",
    Point.DURING_CLAIM: "A client has reconnected and claims the messages it holds; it is not answered yet.",
    Point.DURING_LEDGER_EXPORT: "Facts are in the ledger and still in the store's log.",
    Point.DURING_TAKEOVER: "The new primary's epoch has begun; it does not serve clients yet.",
    Point.BETWEEN_SEND_AND_CONFIRM: "A client has sent, and waits for the outcome.",
    Point.BETWEEN_RECEIVE_AND_ACKNOWLEDGE: "A client has received messages that it has not acknowledged.",
    Point.BETWEEN_DECLARE_AND_DISCHARGE: "A client has received in a transaction that is still open.",
    Point.BETWEEN_SEND_AND_COMMIT: "A client has received and sent in a transaction that it has not committed.",
    FlowPoint.BEFORE_DATABASE_COMMIT: "A stage of a flow has done its work; nothing of it is durable yet.",
    FlowPoint.BETWEEN_DATABASE_COMMIT_AND_MESSAGING_COMMIT: "A stage's rows are durable; its messages are not sent.",
    FlowPoint.BETWEEN_SEND_AND_MESSAGING_COMMIT: "A stage has sent; its own message is not acknowledged yet.",
    FlowPoint.BETWEEN_MESSAGING_COMMIT_AND_CLEANING: "A stage has committed; its outbox still holds what it sent.",
    SinkPoint.BETWEEN_STAGE_AND_PUBLISH: "The Spark job has staged a batch, and has not published it.",
    SinkPoint.BETWEEN_PUBLISH_AND_COMMIT: "The Spark job has published a batch, and its checkpoint does not say so.",
}


def parse_faults(text: str, *, owned: bool, spark_load: bool = False) -> list[Fault]:
    """The faults of a list with commas, in which some may be more often than others.

    `all`, or nothing, means all that are possible.

    Args:
        owned: whether the drill started the brokers itself.
        spark_load: whether there is a Spark job.

    Raises:
        ConfigError: a fault is unknown, or not possible with somebody else's brokers, or without a Spark job.
    """
    possible = [
        fault
        for fault, description in FAULTS.items()
        if (owned or not description.owned) and (spark_load or not description.spark_load)
    ]
    if not hasattr(resource, "prlimit"):
        possible = [fault for fault in possible if fault not in FULL_DISK_FAULTS]
    faults: list[Fault] = []
    for name in (text or ALL).split(","):
        faults += possible if name.strip() == ALL else [_named(Fault, name.strip(), "fault")]
    for fault in faults:
        if fault not in possible:
            why = "Linux"
            if FAULTS[fault].owned and not owned:
                why = "brokers that the drill starts itself (--config)"
            elif FAULTS[fault].spark_load:
                why = "a Spark job (--spark-load)"
            raise ConfigError(f"The fault {fault} needs {why}; here there are {', '.join(possible)}.")
    return faults


ANY_INSTANT = "any-instant"
SOME_POINT = "some-point"


def parse_points(
    texts: Sequence[str], *, owned: bool, ledger: bool = True, spark_load: bool = False
) -> list[AnyPoint | None]:
    """The points of `--at`, each of which may be a list with commas; None stands for an instant at random.

    Nothing means half of the faults at random instants, the others at some point.

    Args:
        ledger: whether the brokers write a ledger: otherwise there is no point in its export.
        spark_load: whether there is a Spark job: otherwise nobody comes to its points.

    Raises:
        ConfigError: a point is unknown, or the brokers are not the drill's own, or it needs a Spark job.
    """
    names = [name.strip() for text in texts for name in text.split(",")]
    every: list[AnyPoint] = [
        point
        for point in POINTS
        if (ledger or point is not Point.DURING_LEDGER_EXPORT) and (spark_load or not isinstance(point, SinkPoint))
    ]
    if not names:
        return [*every, *[None] * len(every)] if owned else [None]
    points: list[AnyPoint | None] = []
    for name in names:
        if name == SOME_POINT:
            points += every
        else:
            points.append(None if name == ANY_INSTANT else _point_named(name))
    if not owned and any(point is not None for point in points):
        raise ConfigError("Points need brokers that the drill starts itself: give --config, or neither it nor --url.")
    for point in points:
        if isinstance(point, SinkPoint) and not spark_load:
            raise ConfigError(f"The point {point} needs a Spark job (--spark-load).")
    return points


def _point_named(name: str) -> AnyPoint:
    for point in POINTS:
        if point == name:
            return point
    raise _unknown("point", name, POINTS)


def _named(kind: type[_Kind], name: str, what: str) -> _Kind:
    try:
        return kind(name)
    except ValueError:
        raise _unknown(what, name, kind) from None


def _unknown(what: str, name: str, known: Iterable[str]) -> ConfigError:
    return ConfigError(f"There is no {what} {name!r}; there are {', '.join(known)}. See legato drill --list.")
