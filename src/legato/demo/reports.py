"""Reports of a run's processes to their parent: one JSON object a line on standard output."""

import msgspec

from legato.processes.reports import Failed, Finished, Report


class Sent(Report):
    """A producer: messages that the broker confirmed as stored."""

    confirmed: int


class Processed(Report):
    """A worker: flights whose records it has sent on."""

    flights: int


class Collected(Report):
    """The collector: departure records that are safely in files, and those it saw again and left out."""

    records: int
    seen_again: int


class FailedOver(Report):
    """A connection moved to another broker; `gap_ms` is how long it could do nothing."""

    gap_ms: float
    epoch: int


AnyReport = Sent | Processed | Collected | FailedOver | Finished | Failed

_decoder = msgspec.json.Decoder(AnyReport)


def decode_report(line: bytes) -> AnyReport:
    """A report from its line.

    Raises:
        msgspec.DecodeError: it is none.
    """
    decoded: AnyReport = _decoder.decode(line)
    return decoded
