"""The log of a broker that takes over says why: the last primary may have had no time to say anything."""

from __future__ import annotations

from pathlib import Path

from tests.support.forked_process import run_legato
from tests.support.server import server


def test_the_log_of_a_backup_says_how_the_last_primary_ended(tmp_path: Path) -> None:
    """It said "activating", and one had to look for the reason in a log that a kill had cut off."""
    store = tmp_path / "store"
    with server(store) as first, server(store) as second:
        assert second.role == "backup"
        who = f"process {first.pid} at 127.0.0.1:{first.port}, epoch 1,"
        first.kill()
        second.wait_for_log(f"the primary, {who} ended without handing over: it was killed, or it crashed")
        second.wait_for_role("active")
        first.start()
        first.wait_for_role("backup")
        assert run_legato("switchover", "--url", f"amqp://127.0.0.1:{second.port}").returncode == 0
        who = f"process {second.pid} at 127.0.0.1:{second.port}, epoch 2,"
        first.wait_for_log(f"the primary, {who} has let go: switchover")
        first.wait_for_role("active")
        second.wait_for_role("backup")
        who = f"process {first.pid} at 127.0.0.1:{first.port}, epoch 3,"
        first.stop()
        second.wait_for_log(f"the primary, {who} has let go: shutdown")
