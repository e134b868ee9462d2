"""The `repr()` of the public objects: what it is, whose, and how it is, without secrets and without waiting."""

from __future__ import annotations


def described(whose: object, *parts: str) -> str:
    """An object in one line; empty parts are left out. What comes of asyncio's client says so."""
    kind = type(whose)
    world = "aio." if kind.__module__.startswith("legato.client.aio") else ""
    return f"<{' '.join([world + kind.__name__, ', '.join(filter(None, parts))]).rstrip()}>"


def counted(count: int, noun: str) -> str:
    """So many of something; nothing if there is none."""
    return f"{count} {noun}{'s' * (count > 1)}" if count else ""
