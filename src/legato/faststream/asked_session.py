"""AskedSession: receives what is asked for one by one, while other tasks settle what it had."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from legato.client import Message
from legato.client.aio import MessageConsumer, Session


class AskedSession:
    """A session with one consumer, for tasks that take turns: a session is for one at a time.

    Who settles a message interrupts who waits for the next one, which may take for ever.
    """

    def __init__(self, session: Session, consumer: MessageConsumer) -> None:
        self.session = session
        self._consumer = consumer
        self._turn = asyncio.Lock()
        self._settling = 0
        """How many have the turn to settle, or wait for it."""
        self._receiving: asyncio.Task[Message | None] | None = None

    async def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message, or None if none came in time."""
        now = asyncio.get_running_loop().time
        end = None if timeout_s is None else now() + timeout_s
        while True:
            async with self._turn:
                if self._settling:
                    continue  # They have waited longer than the next call for the turn will.
                left_s = None if end is None else max(0.0, end - now())
                receiving = asyncio.ensure_future(self._consumer.receive(timeout_s=left_s))
                self._receiving = receiving
                try:
                    await asyncio.wait([receiving])
                except asyncio.CancelledError:
                    await self._give_up(receiving)
                    raise
                finally:
                    self._receiving = None
                if not receiving.cancelled():
                    return receiving.result()

    async def _give_up(self, receiving: asyncio.Task[Message | None]) -> None:
        receiving.cancel()
        await asyncio.wait([receiving])
        # Cancelled it has had no message. It may have had one just before.
        if not receiving.cancelled() and receiving.exception() is None and (message := receiving.result()) is not None:
            self.session.give_back(message)

    @asynccontextmanager
    async def settling(self) -> AsyncIterator[None]:
        """Have the turn, to settle a message."""
        self._settling += 1
        try:
            if self._receiving is not None:
                self._receiving.cancel()
            async with self._turn:
                yield
        finally:
            self._settling -= 1
