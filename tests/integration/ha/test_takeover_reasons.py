"""The log of a broker that takes over says why: the last primary may have had no time to say anything."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from legato.cli.connections import _client
from legato.cli.status import ask, members_of
from tests.support.forked_process import run_legato
from tests.support.monitored import fetch_json, until
from tests.support.server import free_port, server


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


@pytest.mark.slow
def test_a_backup_says_in_time_that_another_program_has_its_address(tmp_path: Path) -> None:
    """It ended when it was to take over, and nobody served."""
    store, port = tmp_path / "store", free_port()
    with server(store) as primary, server(store, "--http", f":{port}") as backup:
        until(lambda: fetch_json(port, "/readyz")[0] == 200)
        with socket.create_server(("127.0.0.1", backup.port)):
            why = f"Cannot listen on 127.0.0.1:{backup.port}: another program listens there"
            backup.wait_for_log(f"this backup could not take over: {why}")
            status, told = fetch_json(port, "/readyz")
            assert status == 503
            assert told["trouble"][0].startswith(why)
            [member] = [each for each in members_of(store) if each["pid"] == backup.pid]
            assert member["trouble"][0].startswith(why)
            assert member["trouble_since_us"] > 0
        backup.wait_for_log("the address of this backup is free again: it can take over")
        until(lambda: fetch_json(port, "/readyz")[0] == 200)
        assert [each["trouble"] for each in members_of(store)] == [[], []]
        primary.kill()
        backup.wait_for_role("active epoch=2")


def test_a_backup_whose_address_another_program_has_waits_for_it(tmp_path: Path) -> None:
    """It ended, and nobody served, though the address was free a moment later."""
    store = tmp_path / "store"
    with server(store) as primary, server(store) as backup:
        with socket.create_server(("127.0.0.1", backup.port)):
            primary.kill()
            backup.wait_for_log("nobody is served until the address of this broker is free: Cannot listen on")
        backup.wait_for_role("active epoch=2")
        assert ask(f"amqp://127.0.0.1:{backup.port}")["failover"]["cause"] == "crash"


def test_a_backup_whose_address_another_program_has_passes_the_takeover_on(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with server(store) as primary, server(store) as cannot, socket.create_server(("127.0.0.1", cannot.port)):
        who = f"process {primary.pid} at 127.0.0.1:{primary.port}, epoch 1,"
        primary.kill()
        cannot.wait_for_log("nobody is served until the address of this broker is free: Cannot listen on")
        with server(store) as can:
            can.wait_for_role("active epoch=2")
            can.wait_for_log(f"the primary, {who} ended without handing over: it was killed, or it crashed")
            cannot.wait_for_log("another backup is to take over: Cannot listen on")
            assert ask(f"amqp://127.0.0.1:{can.port}")["failover"]["cause"] == "crash"
            until(lambda: [each["role"] for each in members_of(store) if each["pid"] == cannot.pid] == ["backup"])


def test_a_switchover_that_no_backup_could_take_is_no_failure_of_the_primary(tmp_path: Path) -> None:
    """`legato status` said that the last primary had failed, noticed after 0 ms."""
    store = tmp_path / "store"
    with server(store) as primary, server(store) as backup, socket.create_server(("127.0.0.1", backup.port)):
        url = f"amqp://127.0.0.1:{primary.port}"
        assert run_legato("switchover", "--url", url).returncode == 1
        backup.wait_for_log("another backup is to take over: Cannot listen on")
        primary.wait_for_role("active epoch=2")
        assert ask(url)["failover"]["cause"] == "returned"
        assert "(nobody else could serve; ready after" in run_legato("status", "--url", url).stdout
        row = {"client_id": "%24backup/legato-backup-7", "user": "$backup"}
        assert _client(row) == "$backup/legato-backup-7"
        assert _client(row | {"user": "ann"}) == "%24backup/legato-backup-7"
