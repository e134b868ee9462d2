"""Consoles in processes of their own: beside brokers, and by the command."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import trustme

from legato.client import ConnectionFactory, Queue, TextMessage
from legato.errors import ConfigError
from legato.server.config.configuration import load
from legato.server.identity.exposure import check_exposure
from legato.server.identity.users import Users
from legato.server.process import console_process
from legato.server.process.console_process import ConsoleProcess
from tests.integration.console.visitor import Visitor
from tests.integration.server.test_logins import add
from tests.support.server import Server, free_port, server

WAIT_S = 60.0


def console_of(process: Server) -> str:
    """The address of the console beside a broker."""
    process.wait_for_log(" console at ")
    found = re.findall(r" console at (\S+)", process.log.read_text())
    return str(found[-1])


def test_the_console_of_a_backup_shows_the_primary_and_follows_a_takeover(tmp_path: Path) -> None:
    """Both begin as soon as their processes: the backup's own port takes no client."""
    beside = {"LEGATO_HTTP_CONSOLE": "true"}
    with (
        server(tmp_path / "store", environment=beside) as primary,
        server(tmp_path / "store", environment=beside) as backup,
    ):
        with ConnectionFactory(f"amqp://127.0.0.1:{primary.port}").create_connection() as connection:
            connection.create_session().create_producer(Queue("orders")).send(TextMessage("tea"))
        visitor = Visitor(console_of(backup))
        shown = visitor.see("/members")
        assert f"Primary 127.0.0.1:{primary.port} epoch 1" in shown
        assert f"Backups 127.0.0.1:{backup.port}" in shown
        address_of_primary = console_of(primary)
        primary.kill()
        backup.wait_for_role("active")
        until_s = time.monotonic() + WAIT_S
        while f"Primary 127.0.0.1:{backup.port} epoch 2" not in (shown := visitor.see("/members")):
            assert time.monotonic() < until_s, shown
        assert "orders 1" in visitor.see("/queues")
        visitor.client.close()
        until_s = time.monotonic() + WAIT_S
        while is_there(address_of_primary):
            assert time.monotonic() < until_s, "it outlives its broker"
            time.sleep(0.05)


def is_there(address: str) -> bool:
    """Whether a console answers."""
    try:
        httpx.get(address, timeout=5.0)
    except httpx.TransportError:
        return False
    return True


def console_child_of(pid: int) -> int:
    """The console among the children of a process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (child,) = (each for each in children if "legato.console.serve" in Path(f"/proc/{each}/cmdline").read_text())
    return int(child)


def test_ctrl_c_is_for_the_broker_which_ends_its_console_with_itself(tmp_path: Path) -> None:
    """A terminal sends SIGINT to a whole group of processes; a console that obeyed it would be missed by its broker."""
    log = tmp_path / "log"
    command = [sys.executable, "-m", "legato.cli", "serve", "--store", str(tmp_path / "store"), "--no-ledger"]
    with (
        log.open("wb") as said,
        subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{free_port()}"],
            env=os.environ | {"LEGATO_HTTP_CONSOLE": "true"},
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        ) as process,
    ):
        until_s = time.monotonic() + WAIT_S
        while not (found := re.search(r" console at (\S+)\n", log.read_text())):
            assert time.monotonic() < until_s, log.read_text()
            time.sleep(0.05)
        console = console_child_of(process.pid)
        assert os.getpgid(console) != process.pid
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(WAIT_S) == 0
    assert not is_there(found[1])
    assert "Traceback" not in log.read_text()
    assert "the console ended" not in log.read_text()


def test_a_console_that_hangs_is_killed_when_its_broker_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(console_process, "END_S", 0.05)

    async def scenario() -> int:
        console = ConsoleProcess(load(store=tmp_path, environment={}))
        console.start()
        while "console at" not in caplog.text:  # noqa: ASYNC110 - what it does is in its log only
            await asyncio.sleep(0.02)
        pid = console_child_of(os.getpid())
        os.kill(pid, signal.SIGSTOP)
        await console.stop()
        return pid

    with caplog.at_level("INFO", logger="legato.console"):
        pid = asyncio.run(asyncio.wait_for(scenario(), 3 * WAIT_S))
    assert not Path(f"/proc/{pid}").exists()
    assert "the console has not ended within 0.05 s and is killed" in caplog.text


def test_a_console_beside_a_broker_with_tls_trusts_its_certificate_alone(tmp_path: Path) -> None:
    authority = trustme.CA()
    own = authority.issue_cert("brokers.example")
    own.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(0o600)
    (tmp_path / "store").mkdir(mode=0o700)
    add(tmp_path / "store" / "users", "ann", "secret")
    config = tmp_path / "legato.toml"
    config.write_text(
        f'[tls]\ncertificate = "{tmp_path / "cert.pem"}"\nkey = "{tmp_path / "key.pem"}"\n[http]\nconsole = true\n'
    )
    with server(tmp_path / "store", "--config", str(config)) as process:
        visitor = Visitor(console_of(process))
        assert "Password" in visitor.see("/queues")
        assert "Waiting" in visitor.log_in("ann", "secret")
        visitor.client.close()


def test_a_console_trusts_the_certificate_that_a_reload_names(tmp_path: Path) -> None:
    """It trusted the one in the former file alone: nobody could log in until the broker was started again."""

    def configured(name: str) -> str:
        own = trustme.CA().issue_cert("brokers.example")
        own.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
        own.private_key_pem.write_to_path(tmp_path / f"{name}-key.pem")
        (tmp_path / f"{name}-key.pem").chmod(0o600)
        files = f'certificate = "{tmp_path / name}.pem"\nkey = "{tmp_path / name}-key.pem"'
        return f"[tls]\n{files}\n[http]\nconsole = true\n"

    (tmp_path / "store").mkdir(mode=0o700)
    add(tmp_path / "store" / "users", "ann", "secret")
    config = tmp_path / "legato.toml"
    config.write_text(configured("first"))
    with server(tmp_path / "store", "--config", str(config)) as process:
        visitor = Visitor(console_of(process))
        assert "Waiting" in visitor.log_in("ann", "secret")
        config.write_text(configured("second"))
        process.signal(signal.SIGHUP)
        process.wait_for_log("settings of addresses and users were read again")
        until_s = time.monotonic() + WAIT_S
        while "Waiting" not in (told := Visitor(visitor.address).log_in("ann", "secret")):
            assert time.monotonic() < until_s, told
            time.sleep(0.1)
        visitor.client.close()


def test_a_console_that_others_can_reach_needs_tls(tmp_path: Path) -> None:
    environment = {"LEGATO_HTTP_CONSOLE": "true", "LEGATO_HTTP_CONSOLE_LISTEN": "0.0.0.0:8080"}
    config = load(store=tmp_path, environment=environment)
    with pytest.raises(ConfigError, match=r"http\.console_listen is 0\.0\.0\.0:8080.* there is no TLS"):
        check_exposure(config, Users())


def test_the_command_prints_its_address_serves_and_ends_quietly_at_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "legato.cli", "console", "--url", f"amqp://127.0.0.1:{free_port()}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = process.stdout.readline()
        found = re.fullmatch(r"console at (http://127\.0\.0\.1:\d+/)\n", told)
        assert found is not None, told
        assert "No broker can be reached" in httpx.get(found[1], follow_redirects=True, timeout=WAIT_S).text
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=WAIT_S)
    assert (process.returncode, said) == (0, "")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--listen", "0.0.0.0:0"), "passwords would go over the network in the clear"),
        (("--listen", "nowhere"), "give HOST:PORT"),
        (("--listen", f"localhost:{'9' * 5000}"), "give HOST:PORT"),
        (("--url", "http://localhost"), "begins with amqp://"),
        (("--key", "key.pem"), "give --certificate too"),
        (("--certificate", "/nowhere.pem"), "Cannot read --certificate /nowhere.pem: No such file or directory"),
    ],
)
def test_a_mistake_in_the_command_is_told_in_a_sentence(options: tuple[str, ...], sentence: str) -> None:
    _refused(options, sentence)


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [(0o600, "no certificate in PEM with its private key in"), (0o640, "can be read by others (mode 0640): chmod 600")],
)
def test_the_file_of_its_key_is_a_key_that_nobody_else_can_read(tmp_path: Path, mode: int, sentence: str) -> None:
    """As the broker's is."""
    (key := tmp_path / "key.pem").touch()
    key.chmod(mode)
    _refused(("--certificate", __file__, "--key", str(key)), sentence)


def _refused(options: tuple[str, ...], sentence: str) -> None:
    command = [sys.executable, "-m", "legato.cli", "console", *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert run.returncode == 2
    assert sentence in run.stderr
    assert "Traceback" not in run.stderr
