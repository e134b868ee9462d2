"""Messages of a log's leader without gaps, or the error that says which are missing."""

from collections.abc import Sequence
from functools import partial

from legato.errors import LogDamagedError, LogTrimmedError, LogUnavailableError
from legato.replication.engine import Engine, Message
from legato.replication.patience import ATTEMPT_S, Patience

CHECKS = 2
"""So often a settled leader has to say that it has a message, and not have it."""
CHECK_PAUSE_S = 0.2


def read_on(engine: Engine, first: int, last: int, limit_bytes: int, patience: Patience) -> Sequence[Message]:
    """Messages from `first` on, at least one, without gaps.

    Args:
        engine: the log's servers.
        first: the sequence of the first.
        last: the sequence of the last that is wanted; it was there.
        limit_bytes: stop at about this size, but not before one message.
        patience: for the servers.

    Raises:
        LogDamagedError: the leader does not have the first of them.
        LogTrimmedError: it is no longer kept.
    """
    lacks = 0
    while lacks < CHECKS:
        found = patience.insist(partial(engine.read, first, last, limit_bytes))
        bounds = patience.insist(engine.bounds)
        if first < bounds.first:
            raise LogTrimmedError(
                f"the log keeps records from {bounds.first} on, and {first} is wanted: seed the replica anew"
            )
        if whole := sum(message.sequence == first + index for index, message in enumerate(found)):
            return found[:whole]
        lacks += bounds.settled and bounds.last >= first
        patience.spent_by(unsettled())
        patience.pause(CHECK_PAUSE_S)
    raise missing(engine, first)


def unsettled() -> LogUnavailableError:
    """The error that whoever answers may have been deposed."""
    return LogUnavailableError(
        "whoever answers for the log lacks what was acknowledged: a server that was cut off, or no majority"
    )


def missing(engine: Engine, first: int) -> LogDamagedError:
    """The error that a message is missing though there are later ones."""
    leader = leader_of(engine)
    return LogDamagedError(
        f"record {first} of the log is missing, though there are later ones: the files of {leader or 'its leader'} are "
        "damaged; let another server lead, and replace what that one has",
        first,
        leader,
    )


def altered(engine: Engine, sequence: int) -> LogDamagedError:
    """The error that a message is not what its writer appended."""
    leader = leader_of(engine)
    return LogDamagedError(
        f"record {sequence} of the log is not what was written: the files of {leader or 'its leader'} are damaged; "
        "let another server lead, and replace what that one has",
        sequence,
        leader,
    )


def leader_of(engine: Engine) -> str | None:
    """The name of the server that leads, if that can be found out."""
    try:
        return next((each.server for each in engine.health(ATTEMPT_S).replicas if each.leads), None)
    except LogUnavailableError:
        return None
