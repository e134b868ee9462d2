"""Settings that are read again: users and addresses, by a primary and by a backup."""

import signal
import socket
from pathlib import Path

import pytest

from legato.cli.status import ask
from tests.integration.server.test_management import Manager
from tests.support.amqp_peer import AmqpPeer, Refused
from tests.support.forked_process import run_legato
from tests.support.monitored import until
from tests.support.server import Server, server

LONG_NUMBER = f"[limits]\nmessage_bytes = {'1' * 5000}\n"
"""Python's parser has an error of its own for such a number."""
THREE = '[[address]]\nmatch = "orders"\nmaximum_deliveries = 3\n'


def maximum_deliveries(broker: Server) -> int:
    manager = Manager(AmqpPeer(broker.port))
    manager.ask("CREATE", "orders")
    found: int = manager.ask("READ", "orders")[1]["settings"]["maximum_deliveries"]
    return found


def test_users_come_and_go(tmp_path: Path) -> None:
    file = tmp_path / "legato.toml"
    file.touch(mode=0o600)
    file.write_text('[auth]\nanonymous = false\nusers = { ann = "a" }\n')
    with server(tmp_path / "store", "--config", str(file)) as running:
        ann = AmqpPeer(running.port, user="ann", password="a")
        file.write_text('[auth]\nanonymous = false\nusers = { bob = "b" }\n')
        assert Manager(ann).ask("RELOAD", type="broker")[0] == 200
        ann.drop()
        with pytest.raises(Refused):
            AmqpPeer(running.port, user="ann", password="a")
        AmqpPeer(running.port, user="bob", password="b").drop()


def test_a_backup_takes_over_with_the_settings_it_read_last(tmp_path: Path) -> None:
    file = tmp_path / "legato.toml"
    file.write_text("")
    store, flags = tmp_path / "store", ("--config", str(file))
    with server(store, *flags) as primary, server(store, *flags) as backup:
        assert backup.role == "backup"
        file.write_text('[[address]]\nmatch = "orders"\nmaximum_deliveries = 3\n')
        backup.signal(signal.SIGHUP)
        backup.wait_for_log("read again")
        primary.kill()
        backup.wait_for_role("active")
        manager = Manager(AmqpPeer(backup.port))
        manager.ask("CREATE", "orders")
        assert manager.ask("READ", "orders")[1]["settings"]["maximum_deliveries"] == 3


def test_a_backup_that_was_not_told_takes_over_with_the_settings_of_then(tmp_path: Path) -> None:
    """It took over with those that it had begun with, and what the primary had been told to read was undone."""
    file = tmp_path / "legato.toml"
    file.write_text("[limits]\nname_bytes = 100\n")
    store, flags = tmp_path / "store", ("--config", str(file))
    with server(store, *flags) as primary, server(store, *flags) as backup:
        assert backup.role == "backup"
        file.write_text(f"{THREE}[limits]\nname_bytes = 20\n[server]\nidle_timeout_ms = 9000\n")
        primary.kill()
        backup.wait_for_role("active")
        manager = Manager(AmqpPeer(backup.port))
        manager.ask("CREATE", "orders")
        assert manager.ask("READ", "orders")[1]["settings"]["maximum_deliveries"] == 3
        assert manager.ask("CREATE", "orders.of.the.whole.world")[0] == 400
        backup.wait_for_log("the configuration has changed since it was read last: address, limits\n")
        backup.wait_for_log("in effect when this broker is started again: server.idle_timeout_ms\n")


def test_what_a_primary_has_read_holds_when_it_is_the_primary_again(tmp_path: Path) -> None:
    """Those of addresses were again as they had been when it began."""
    file = tmp_path / "legato.toml"
    file.write_text("")
    store, flags = tmp_path / "store", ("--config", str(file))
    with server(store, *flags) as first, server(store, *flags) as second:
        url = f"amqp://127.0.0.1:{first.port},127.0.0.1:{second.port}"
        file.write_text('[[address]]\nmatch = "orders"\nmaximum_deliveries = 3\n')
        assert run_legato("reload", "--url", url).returncode == 0
        file.write_text("[server]\nlisen = 1\n")
        for successor in (second, first):
            until(lambda: ask(url)["failover"]["backups"] != [])
            assert run_legato("switchover", "--url", url).returncode == 0
            successor.wait_for_role("active")
        manager = Manager(AmqpPeer(first.port))
        manager.ask("CREATE", "orders")
        assert manager.ask("READ", "orders")[1]["settings"]["maximum_deliveries"] == 3


def test_a_backup_keeps_its_settings_if_the_new_ones_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "legato.toml"
    file.write_text("")
    store, flags = tmp_path / "store", ("--config", str(file))
    with server(store, *flags) as primary, server(store, *flags) as backup:
        file.write_text("[server]\nlisen = 1\n")
        backup.signal(signal.SIGHUP)
        backup.wait_for_log("lisen")
        primary.kill()
        backup.wait_for_role("active")
        AmqpPeer(backup.port).drop()


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("[server]\nlisen = 1\n", "lisen"),
        ("", "legato.toml is empty: put it back"),
        (LONG_NUMBER, "thousands of digits"),
        ('[auth]\nusers_file = "\\u0000"\n', "null byte"),
        ("[server]\nlisten = " + 5000 * "[", "nested too deep"),
    ],
    ids=["wrong", "empty", "number", "null", "deep"],
)
def test_a_takeover_with_a_file_that_cannot_be_used_keeps_the_settings(tmp_path: Path, broken: str, why: str) -> None:
    file = tmp_path / "legato.toml"
    file.write_text(THREE)
    store, flags = tmp_path / "store", ("--config", str(file))
    with server(store, *flags) as primary, server(store, *flags) as backup:
        file.write_text(broken)
        primary.kill()
        backup.wait_for_role("active")
        assert maximum_deliveries(backup) == 3
        backup.wait_for_log("the configuration was not read again, and holds as it was: ")
        backup.wait_for_log(why)


def test_who_reloads_what_no_parser_takes_is_answered(tmp_path: Path) -> None:
    """The connection was cut off, and so the next one, in which the command asked again, and so on for good."""
    file = tmp_path / "legato.toml"
    file.write_text(THREE)
    with server(tmp_path / "store", "--config", str(file)) as running:
        file.write_text(LONG_NUMBER)
        status, why = Manager(AmqpPeer(running.port)).ask("reload", type="broker")
        assert status == 400
        assert "thousands of digits" in str(why)
        assert maximum_deliveries(running) == 3


def test_what_needs_a_restart_holds_at_no_takeover_before(tmp_path: Path) -> None:
    """A backup that was reloaded served with it, though it said otherwise: at another address, from another store."""
    file = tmp_path / "legato.toml"
    file.write_text('[server]\ncontainer_id = "before"\n')
    store, flags = tmp_path / "store", ("--config", str(file))
    with server(store, *flags) as primary, server(store, *flags) as backup:
        file.write_text('[server]\ncontainer_id = "behind"\n')
        backup.signal(signal.SIGHUP)
        backup.wait_for_log("in effect when this broker is started again: server.container_id\n")
        primary.kill()
        backup.wait_for_role("active")
        assert AmqpPeer(backup.port).opened.container_id == "before"


def test_changes_that_need_a_restart_are_named(tmp_path: Path) -> None:
    """It said that all had been read, also after another address to listen on."""
    file = tmp_path / "legato.toml"
    file.write_text("[server]\nidle_timeout_ms = 9000\n")
    store, flags = tmp_path / "store", ("--config", str(file))
    with server(store, *flags) as primary, server(store, *flags) as backup:
        url = f"amqp://127.0.0.1:{primary.port}"
        changed = '[server]\nidle_timeout_ms = 8000\n[http]\nlisten = ":0"\n[limits]\nname_bytes = 100\n'
        file.write_text(changed)
        for _ in range(2):  # It still does.
            done = run_legato("reload", "--url", url)
            assert "in effect when the broker is started again: server.idle_timeout_ms, http.listen\n" in done.stdout
            assert "limits" not in done.stdout
        primary.wait_for_log("in effect when this broker is started again: server.idle_timeout_ms, http.listen\n")
        backup.signal(signal.SIGHUP)
        backup.wait_for_log("in effect when this broker is started again: server.idle_timeout_ms, http.listen\n")
        file.write_text("[server]\nidle_timeout_ms = 9000\n[limits]\nname_bytes = 100\n")
        told = run_legato("reload", "--url", url).stdout
        assert told.startswith("the broker has read its configuration again\n")
        assert "in effect when" not in told


def test_whoever_reloads_is_told_of_the_backups_that_did_not(tmp_path: Path) -> None:
    """Nobody knew that their configuration had mistakes before they had taken over."""
    file = tmp_path / "legato.toml"
    file.write_text("")
    store, flags = tmp_path / "store", ("--config", str(file))
    with server(store, *flags) as primary:
        url = f"amqp://127.0.0.1:{primary.port}"
        with server(store, *flags) as backup:
            where = f"127.0.0.1:{backup.port}"
            until(lambda: ask(url)["failover"]["backups"] == [where])
            assert run_legato("reload", "--url", url).stdout == (
                "the broker has read its configuration again\n"
                f"the backup at {where} reads its own when it takes over; "
                "to hear of mistakes in it now, send it SIGHUP, as systemctl reload does\n"
            )
            backup.kill()
            until(lambda: ask(url)["failover"]["backups"] == [])
        assert run_legato("reload", "--url", url).stdout == "the broker has read its configuration again\n"


def test_what_is_read_while_an_epoch_cannot_begin_yet_holds_when_it_begins(tmp_path: Path) -> None:
    """The log said that it was read again, and a user who was removed just then was let in."""
    file = tmp_path / "legato.toml"
    file.touch(mode=0o600)
    file.write_text('[auth]\nanonymous = false\nusers = { ann = "a", bob = "b" }\n')
    store, flags = tmp_path / "store", ("--config", str(file))
    with server(store, *flags) as primary, server(store, *flags) as backup:
        with socket.create_server(("127.0.0.1", backup.port)):
            primary.kill()
            backup.wait_for_log("nobody is served until the address of this broker is free")
            file.write_text('[auth]\nanonymous = false\nusers = { bob = "b" }\n')
            backup.signal(signal.SIGHUP)
            backup.wait_for_log("read again")
        backup.wait_for_role("active")
        AmqpPeer(backup.port, user="bob", password="b").drop()
        with pytest.raises(Refused):
            AmqpPeer(backup.port, user="ann", password="a")


def test_what_is_asked_for_before_an_epoch_that_never_begins_is_read_by_the_backup(tmp_path: Path) -> None:
    file = tmp_path / "legato.toml"
    file.write_text("")
    store, flags = tmp_path / "store", ("--config", str(file))
    with server(store, *flags) as primary, server(store, *flags) as backup:
        with socket.create_server(("127.0.0.1", backup.port)):
            primary.kill()
            backup.wait_for_log("nobody is served until the address of this broker is free")
            file.write_text('[[address]]\nmatch = "orders"\nmaximum_deliveries = 3\n')
            backup.signal(signal.SIGHUP)
            backup.wait_for_log("read again")
            with server(store, *flags) as another:
                another.wait_for_role("active")
                backup.wait_for_role("backup")
                backup.wait_for_log("the configuration was read again")
                another.kill()
        backup.wait_for_role("active")
        manager = Manager(AmqpPeer(backup.port))
        manager.ask("CREATE", "orders")
        assert manager.ask("READ", "orders")[1]["settings"]["maximum_deliveries"] == 3
