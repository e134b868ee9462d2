"""Stages go with their batch, and only with it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from legato.bulk.stage_files import path_of, read_stage, write_stage
from legato.server.limits.names import Names
from legato.server.management.staged_batches import Publishing, Stages
from tests.support.scenario import Scenario


def test_what_is_staged_after_the_answer_stays_for_its_own_attempt(tmp_path: Path) -> None:
    """Files go beside the loop: those of the next attempt at the same batch went with the ones of the first."""
    scenario, unused = Scenario(), Any
    threads, removing = ThreadPoolExecutor(1), threading.Event()

    def advance() -> None:
        scenario.run()
        threads.submit(removing.wait)
        for pending, count in scenario.staged.items():
            assert isinstance(pending, Publishing)
            pending.finish(count)

    async def publish() -> Any:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(threads)
        stages = Stages(scenario.broker, unused, unused, tmp_path, advance, Names(255), unused)  # type: ignore[arg-type]
        pending, told = stages.perform("publish", {"name": "sink", "stages": "first"}), loop.create_future()
        pending.done, pending.failed = told.set_result, told.set_exception
        answer = await told
        write_stage(second, iter([]))
        removing.set()
        return answer

    first, second = (path_of(tmp_path, "sink", 0, stage) for stage in ("first", "second"))
    write_stage(first, iter([]))
    assert asyncio.run(publish()) == {"name": "sink", "published": 0}
    threads.shutdown()
    assert read_stage(second) == []
    assert not first.exists()
