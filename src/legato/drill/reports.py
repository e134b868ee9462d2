"""Reports of client processes to a running drill: one JSON object a line."""

import msgspec

from legato.processes.reports import Failed, Finished, Report


class Ready(Report):
    """All clients of the process are connected; consumers and subscriptions exist."""


class Totals(Report):
    """Totals of a process's clients so far: messages confirmed and presented, transactions rolled back."""

    stored: int
    seen: int
    rolled_back: int


class ClientFailedOver(Report):
    """A client's connection was restored; `gap_ms` is how long it could do nothing, 0 for an epoch that has none."""

    client: str
    gap_ms: float
    epoch: int = 0


AnyReport = Ready | Totals | ClientFailedOver | Finished | Failed

_decoder = msgspec.json.Decoder(AnyReport)


def decode_report(line: bytes) -> AnyReport:
    """A report from its line.

    Raises:
        msgspec.DecodeError: it is none.
    """
    decoded: AnyReport = _decoder.decode(line)
    return decoded
