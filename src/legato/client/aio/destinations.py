"""Temporary destinations with asyncio; all others are the same values in both worlds."""

from __future__ import annotations

from legato.client import destinations
from legato.client.aio.steps import awaiting


class TemporaryQueue(destinations.TemporaryQueue):
    __doc__ = destinations.TemporaryQueue.__doc__

    __slots__ = ()

    delete = awaiting(destinations.TemporaryQueue._delete)  # type: ignore[assignment]


class TemporaryTopic(destinations.TemporaryTopic):
    __doc__ = destinations.TemporaryTopic.__doc__

    __slots__ = ()

    delete = awaiting(destinations.TemporaryTopic._delete)  # type: ignore[assignment]
