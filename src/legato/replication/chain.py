"""The chain of a log's messages, followed: which are whole records, and which are void."""

from collections.abc import Sequence

from legato.errors import LogDamagedError, LogDivergedError, LogTrimmedError
from legato.replication.engine import Engine, Message
from legato.replication.envelopes import Envelope, unseal
from legato.replication.gapless import altered
from legato.replication.log import Position, Record


class Chain:
    """A reader's place in a log, message by message.

    A message whose digest before is not that of the last valid one was appended by a fenced writer whom the log's
    servers should have refused. It is void: every reader passes over it, and it is counted.

    Args:
        engine: the log's servers; asked who leads when a message is altered.
        key: the group's, of `envelopes.group_key`.
        after: behind a record that this reader had.
        anchored: the message at `after` was seen, with that digest. If not, the next message has to show it.
    """

    def __init__(self, engine: Engine, key: bytes, after: Position, anchored: bool) -> None:
        self.looked_at = after.sequence
        """The sequence of the last message, void or not."""
        self.tip = after
        """Behind the last valid message, which may be a part of a record."""
        self.end = after
        """Behind the last whole record."""
        self.voided = 0
        self._engine = engine
        self._key = key
        self._anchored = anchored
        self._parts: list[memoryview] = []

    def feed(self, messages: Sequence[Message]) -> list[Record]:
        """The records that these messages complete; they follow each other and the last.

        Raises:
            LogDamagedError: a message is altered.
            LogTrimmedError: a record began before what the log keeps.
            LogDivergedError: the position where this reader began is not on this log.
            LogFormatError: a message is another group's or of an unknown format.
        """
        records: list[Record] = []
        for sequence, data in messages:
            if sequence != self.looked_at + 1:
                raise LogDamagedError(f"record {self.looked_at + 1} of the log was passed over", self.looked_at + 1)
            envelope = unseal(self._key, data)
            if not envelope.intact:
                raise altered(self._engine, sequence)
            if envelope.before == self.tip.digest:
                self.tip = Position(sequence, envelope.digest)
                if (record := self._join(envelope)) is not None:
                    records.append(record)
            elif not self._anchored:
                raise diverged(self.end)
            else:
                self.voided += 1
            self.looked_at, self._anchored = sequence, True
        return records

    def _join(self, envelope: Envelope) -> Record | None:
        if envelope.part == 0:  # a record before it that is not complete was given up by its writer
            self._parts = []
        elif envelope.part != len(self._parts):
            raise LogTrimmedError(f"record {self.tip.sequence} of the log began before what the log keeps")
        self._parts.append(envelope.data)
        if len(self._parts) < envelope.parts:
            return None
        data = b"".join(self._parts)
        self._parts = []
        self.end = self.tip
        return Record(self.end, data)


def diverged(position: Position) -> LogDivergedError:
    """The error that a position is not on the log."""
    return LogDivergedError(
        f"what this replica has up to record {position.sequence} is not what the log has there: "
        "the log is another one or has lost records, or the replica is a copy of another group's. If the log is right, "
        "copy another broker's store (legato replica seed); if its servers lost their disks, see legato log restore"
    )
