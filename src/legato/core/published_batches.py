"""Published batches of a sink, the latest ones: to tell a repeated batch from a different one with its number.

A sink's batches are fenced by their numbers (docs/decisions/0059-sinks.md). A number that comes again is mostly the
same batch: its driver died before it wrote down that it was published. But two queries that run from copies of one
checkpoint, or one that runs from an older copy, give the same numbers to other rows; to confirm those would lose them.
"""

from __future__ import annotations

import msgspec

from legato import limits
from legato.core.producers import SINK_PREFIX
from legato.core.records import ProducerRecord, PublishedBatch

_ADVICE = (
    "Two queries run from copies of one checkpoint, or this one from an older copy: give it a checkpoint, and a "
    "transactionalId, of its own. If its rows differ whenever they are computed, as with uuid() and rand(), set the "
    "option verifyRepeatedBatches to false."
)


class BatchIdentity(msgspec.Struct, frozen=True):
    """The identity of a batch.

    Attributes:
        count: its rows.
        digest: of its rows, in no order; empty if it is not known.
        stages: of the names of its stages.
        verified: whether a batch that comes again has to be the same.
    """

    count: int = 0
    digest: bytes = b""
    stages: bytes = b""
    verified: bool = True


def note_batch(record: ProducerRecord, batch: PublishedBatch) -> None:
    """Put a batch on record, and forget those beyond the last `limits.BATCHES_KEPT`."""
    record.batches = [*record.batches, batch][-limits.BATCHES_KEPT :]


def objection(record: ProducerRecord, number: int, again: BatchIdentity) -> str:
    """Why a batch that comes again cannot be the one that was published under its number; empty if it can.

    Args:
        number: of the producer, one more than Spark's.
    """
    if not again.verified or not record.batches:
        return ""  # Former versions wrote down no batches.
    if again.digest and not again.count:
        return ""  # None of its rows can be lost: its source has them no more.
    sink = record.name.removeprefix(SINK_PREFIX)
    batch = f"Batch {number - 1} of the sink {sink} is published"
    published = next((each for each in reversed(record.batches) if each.number == number), None)
    if published is None:
        return _objection_to_unknown(record, number, again, sink)
    if published.stages == again.stages or not published.digest:
        return ""  # The same request once more, or staged by a former version.
    if not again.digest:
        return f"{batch}, with other stages, and the rows of these are gone: start the query again."
    if (published.count, published.digest) != (again.count, again.digest):
        return f"{batch}, with other rows: with {published.count} then, and {again.count} now. {_ADVICE}"
    return ""


def _objection_to_unknown(record: ProducerRecord, number: int, again: BatchIdentity, sink: str) -> str:
    """Why a batch that is not on record is refused, where others are: Spark repeats no batch but its last one."""
    numbers = [each.number for each in record.batches]
    batch, last = f"Batch {number - 1} of the sink {sink}", max(numbers) - 1
    if number > min(numbers):
        now = again.count or "some"
        return f"{batch} had no rows, and others up to {last} followed: now it has {now}. {_ADVICE}"
    if len(numbers) < limits.BATCHES_KEPT:
        former = "or a former version of Legato published it"
        return f"{batch} had no rows, {former}, and others up to {last} followed. {_ADVICE}"
    return f"{batch} is published, as are those up to {last}: too many to know with which rows. {_ADVICE}"
