"""A backup's watch goes on whatever is written of its primary."""

import asyncio
import logging
from collections.abc import Iterator
from typing import cast

import pytest

from legato.clock import SystemClock
from legato.ha.arbiter import Arbiter
from legato.ha.lock import Holder
from legato.ha.watcher import Intervals, Watcher

WAIT_S = 60.0
NO_ADDRESSES = ["orders", "localhost:", "localhost:99999999", "a\0b:5672", f"{'x' * 70}.example:5672", "[:5672"]


class Written:
    """A lock of which others wrote who has it."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses: Iterator[str] = iter(addresses)
        self.read = asyncio.Event()

    def holder(self) -> Holder | None:
        address = next(self._addresses, None)
        if address is None:
            self.read.set()
            return None
        return Holder(1, listen=address)

    def retry(self) -> None:
        """There is one lock."""


def test_a_watch_goes_on_where_what_is_written_of_the_primary_is_no_address(caplog: pytest.LogCaptureFixture) -> None:
    async def watch() -> None:
        lock = Written(NO_ADDRESSES)
        watcher = Watcher(
            cast(Arbiter, lock),
            SystemClock(),
            Intervals(0.1, 1.0),
            name="backup",
            has_password=True,
            tls=None,
            report=lambda event: None,
        )
        watching = asyncio.create_task(watcher.run())
        reading = asyncio.create_task(lock.read.wait())
        await asyncio.wait({watching, reading}, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        assert not watching.done()
        assert reading.done()
        watching.cancel()

    with caplog.at_level(logging.WARNING):
        asyncio.run(watch())
    assert "the primary at orders cannot be watched: ValueError" in caplog.text
