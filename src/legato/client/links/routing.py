"""Router of the broker's events to the ends of links."""

from __future__ import annotations

from collections.abc import Iterator

from legato.amqp.engine.events import (
    AcceptedRun,
    Attached,
    ConfirmedRun,
    Detached,
    Disposition,
    Event,
    Flow,
    Transfer,
    TransferAborted,
    TransferPart,
    TransferRun,
)


def route(events: list[Event]) -> Iterator[Event]:
    """Tell links what concerns them; events of sessions and of the connection are yielded when their turn comes."""
    for event in events:
        kind = event.__class__
        if kind is Transfer:
            event.link.context.on_transfer(event)  # type: ignore[attr-defined]
        elif kind is Disposition:
            event.link.context.on_disposition(event)  # type: ignore[attr-defined]
        elif kind is TransferRun or kind is ConfirmedRun or kind is AcceptedRun:
            event.link.context.on_run(event)  # type: ignore[attr-defined]
        elif not _route_rare(event):
            yield event


def _route_rare(event: Event) -> bool:
    match event:
        case Attached(link=link) if link.context is None:
            link.refuse("amqp:not-allowed", "A client takes no links that its peer begins.")
        case Flow(link=link) | Detached(link=link) if link.context is None:
            pass
        case TransferPart(link=receiver):
            receiver.context.on_part(event)
        case TransferAborted(link=receiver):
            receiver.context.on_aborted(event)
        case Flow(link=link):
            link.context.on_flow(event)
        case Attached(link=link):
            link.context.on_attached(event)
        case Detached(link=link):
            link.context.on_detached(event)
        case _:
            return False
    return True
