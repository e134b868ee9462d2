"""Bundles: calls of a batch's runs to the same stage, sent as one message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from legato.flows.model.envelope import Envelope, Outgoing, Reach, encode_bundle

if TYPE_CHECKING:
    from legato.flows.database.outbox import Row

BUNDLE_BYTES_MAX = 256 * 1024
"""Of the data in a bundle: more of it is more than one."""


def bundle(rows: Sequence[Row], count_max: int) -> list[Row]:
    """Put those for the same stage together, in their order, at most `count_max` to a bundle.

    What has a time of its own to be delivered or to expire, an answer to a join, what is published and what other
    programs read travels by itself. The cause of a bundle is that of its first: should only another one's cause come
    again, its messages are the sweeper's.
    """
    together: dict[tuple[str, bool, bool], list[Row]] = {}
    alone: list[Row] = []
    for row in rows:
        one = row[1]
        if one.reach is not Reach.STAGE or one.delay_ms or one.time_to_live_ms:
            alone.append(row)
        else:
            envelope = one.envelope
            together.setdefault((envelope.to, envelope.interactive, envelope.persistent), []).append(row)
    return [*alone, *(made for each in together.values() for made in _bundles(each, count_max))]


def _bundles(rows: Sequence[Row], count_max: int) -> list[Row]:
    made: list[Row] = []
    first, size = 0, 0
    for number, (_, one) in enumerate(rows):
        size += size_of(one.envelope)
        if number > first and (number - first >= count_max or size > BUNDLE_BYTES_MAX):
            made.append(_bundle_of(rows[first:number]))
            first, size = number, size_of(one.envelope)
    made.append(_bundle_of(rows[first:]))
    return made


def _bundle_of(rows: Sequence[Row]) -> Row:
    cause, _ = rows[0]
    return cause, bundle_of([one.envelope for _, one in rows])


def bundle_of(envelopes: Sequence[Envelope]) -> Outgoing:
    """They as one, for the stage of the first."""
    if len(envelopes) == 1:
        return Outgoing(envelopes[0])
    return Outgoing(envelopes[0], count=len(envelopes), bundle=encode_bundle(envelopes))


def size_of(envelope: Envelope) -> int:
    """About how many bytes of its message are data."""
    return (
        len(bytes(envelope.data))
        + len(bytes(envelope.state.data))
        + sum(len(each) for each in envelope.sideloads.values())
    )


def pieces(envelopes: Sequence[Envelope], count_max: int) -> list[Outgoing]:
    """A bundle that was received as smaller ones, or as single messages that are to be worked on apart."""
    if count_max == 1:
        return [Outgoing(envelope, apart=True) for envelope in envelopes]
    return [bundle_of(envelopes[first : first + count_max]) for first in range(0, len(envelopes), count_max)]
