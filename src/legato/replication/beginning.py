"""The beginning of an empty log: whether a broker may begin it.

An empty log is that of a new group, or that of an old one whose servers have all lost their disks. A broker without a
store cannot tell; brokers with one can. So it looks at what all of them say of themselves in the register.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from legato.errors import LogError, LogUnavailableError
from legato.quoting import quoted
from legato.replication.register import AWAY_S, Entry, Register
from legato.replication.replica import Replica
from legato.sizes import counted

log = logging.getLogger("legato.replication")

TIMEOUT_S = 2.0


class Beginning:
    """Decides whether a broker begins an empty log.

    Args:
        register: of the group.
        group: its name.
        listen: where this broker is to serve.
        brokers: addresses of all its brokers, this one's among them; empty if they are not known.
        former: what tells of a former store of this broker, whose file is lost; empty if nothing does.
    """

    def __init__(
        self, register: Register, group: str, listen: str, brokers: Sequence[str] = (), former: str = ""
    ) -> None:
        self._register = register
        self._group = group
        self._listen = listen
        self._brokers = brokers
        self._former = former

    def refusal(self, replica: Replica) -> str:
        """Why the log does not begin with a replica, and what to do; empty if it may.

        Args:
            replica: that has nothing of the log.

        Raises:
            LogUnavailableError: the register cannot be read now.
        """
        try:
            registered = self._register.entries(TIMEOUT_S)
            entries = [each.entry for each in registered]
            if lost := _furthest([each for each in entries if each.sequence]):
                return lost_log(self._group, lost)
            if replica.commits:  # of a store that has served alone, and is to begin the log
                return ""
            if other := _furthest(entries):
                return (
                    f"the broker at {quoted(other.listen)} has a store with {counted(other.commits, 'commit')}, with "
                    f"which the log of the group {self._group} is to begin: start that one first"
                )
            if self._former and not self._register.may_begin(TIMEOUT_S):
                return (
                    f"the group {self._group} has no log, and this store is empty, though there was one "
                    f"({self._former}): what was in it would be missing. Restore a backup of it (legato store "
                    "restore), with which the log begins; or move what is left of it away, if the group is to begin "
                    "without"
                )
            # Clients may know them by other names. Who is away may have come back under another name, and be two.
            present = {self._listen, *(each.entry.listen for each in registered if each.age_s < AWAY_S)}
            if len(present) >= len(self._brokers) or self._register.may_begin(TIMEOUT_S):
                return ""
        except LogUnavailableError as error:
            raise type(error)(
                f"it cannot be seen whether the group {self._group} had a log: {error}. Brokers need the permissions "
                f"for the bucket LEGATO_{self._group} (docs/howto/log-servers.md)"
            ) from None
        missing = ", ".join(quoted(each) for each in self._brokers if each not in present)
        return (
            f"the group {self._group} has no log, and this store is empty. If the group is new, its log begins when "
            f"all of ha.addresses have come with empty stores; {missing} did not yet. If they come later: "
            "legato log begin. If the group is not new, the log's servers have lost its log: legato log restore"
        )


def allow_beginning(register: Register, group: str, last: int, timeout_s: float) -> None:
    """Let the next broker with an empty store begin the log of a group.

    Args:
        register: of the group.
        group: its name.
        last: the sequence of the last record of its log.
        timeout_s: how long to wait for servers.

    Raises:
        LogError: the group has a log, or a broker that had one.
    """
    if last:
        raise LogError(f"the group {group} has a log, with {counted(last, 'record')}: there is nothing to begin")
    if other := _furthest([each.entry for each in register.entries(timeout_s)]):
        gone = f"If that broker is gone for good: legato replica forget ... {quoted(other.listen)}"
        if other.sequence:
            raise LogError(f"{lost_log(group, other)}. {gone}")
        raise LogError(
            f"the broker at {quoted(other.listen)} has a store with {counted(other.commits, 'commit')}, with which the "
            f"log of the group {group} begins as soon as it is started. {gone}"
        )
    register.allow_beginning(timeout_s)


def lost_log(group: str, entry: Entry) -> str:
    """What is said if the log is empty and a broker was on it."""
    return (
        f"the log of the group {group} is empty, and the broker at {quoted(entry.listen)} has "
        f"{counted(entry.commits, 'commit')} of the group: the log's servers have lost it. Begin it again with the "
        "store that is furthest, on its machine: legato log restore"
    )


def _furthest(entries: Sequence[Entry]) -> Entry | None:
    return max((each for each in entries if each.commits), key=lambda each: each.commits, default=None)
