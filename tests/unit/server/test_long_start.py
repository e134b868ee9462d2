"""A start that takes long: what the process says meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from legato.clock import SystemClock
from legato.ha.lock import StoreLock
from legato.server.config.configuration import Config
from legato.server.process import primary_epoch
from legato.server.process.primary_epoch import PrimaryEpoch


def test_while_a_migration_lasts_it_is_told_again_and_again_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A service manager that hears nothing for a minute ends the process."""
    monkeypatch.setattr(primary_epoch, "PROGRESS_EVERY_S", 0.001)
    monkeypatch.setattr(primary_epoch, "PROGRESS_LOG_EVERY_S", 0.0)
    heard: list[str] = []
    progress = ["beginning"]
    enough = threading.Event()

    def hear(said: str) -> None:
        heard.append(said)
        progress[0] = f"format 3, messages: {len(heard)} %"
        if len(heard) == 5:
            enough.set()

    async def migrate() -> bool:
        config = Config()
        epoch = PrimaryEpoch(config, StoreLock(tmp_path), SystemClock(), lambda: config, delayed=hear)
        return await epoch._beside_loop(lambda: enough.wait(60), lambda: f"migrating the store: {progress[0]}")

    with caplog.at_level("INFO"):
        assert asyncio.run(migrate())
    assert heard[:3] == [
        "migrating the store: beginning",
        "migrating the store: format 3, messages: 1 %",
        "migrating the store: format 3, messages: 2 %",
    ]
    assert "migrating the store: format 3, messages: 1 %" in caplog.text
