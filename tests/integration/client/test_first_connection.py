"""The first connection: a client may start before its broker, and what waiting does not help fails at once."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.client import ConnectionFactory, JMSError, JMSSecurityError, aio
from legato.client.failover import outage_log
from legato.testing import broker as local_broker
from tests.integration.client.helpers import WAIT_S
from tests.support.broker import BrokerProcess
from tests.support.server import free_port


class Waiting(logging.Handler):
    """Hears that a client waits for its broker."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = threading.Event()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("Waiting for a broker"):
            self.lines.append(record.getMessage())
            self.heard.set()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiting]:
    monkeypatch.setattr(outage_log, "WAIT_TOLD_AFTER_S", 0.05)
    handler = Waiting()
    log = logging.getLogger("legato.client")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


@pytest.mark.parametrize("world", ["threads", "asyncio"])
def test_a_client_that_starts_before_its_broker_waits_for_it_and_says_so(
    waiting: Waiting, tmp_path: Path, world: str
) -> None:
    """With 20 rounds in 1.3 s, as it was, a service died that was started together with its broker."""
    port = free_port()
    url = f"amqp://127.0.0.1:{port}"
    connected: list[str | None] = []

    def connect() -> None:
        if world == "threads":
            with ConnectionFactory(url).create_connection() as connection:
                connected.append(connection.host)
        else:

            async def story() -> None:
                async with aio.ConnectionFactory(url).create_connection() as connection:
                    connected.append(connection.host)

            asyncio.run(story())

    client = threading.Thread(target=connect)
    client.start()
    assert waiting.heard.wait(WAIT_S)
    broker = BrokerProcess(tmp_path / "store", port, tmp_path / "log")
    try:
        client.join(WAIT_S)
        assert connected == [f"127.0.0.1:{port}"]
        assert f"127.0.0.1:{port}: Connection refused" in waiting.lines[0]
    finally:
        broker.close()


def test_a_wait_that_is_bounded_ends_with_what_was_tried() -> None:
    port = free_port()
    with pytest.raises(JMSError, match=rf"in \d+ s \(127.0.0.1:{port}: Connection refused\). Check that one runs"):
        ConnectionFactory(f"amqp://127.0.0.1:{port}", connect_wait_s=1.0).create_connection()


def test_a_host_that_nobody_knows_fails_at_once() -> None:
    with pytest.raises(JMSError, match=r"no\.such\.host\.invalid:5672: .*Correct the connection URI"):
        ConnectionFactory("amqp://no.such.host.invalid").create_connection()


def test_tls_to_a_port_without_it_fails_at_once_with_what_to_write(tmp_path: Path) -> None:
    """It was `[SSL: WRONG_VERSION_NUMBER] (_ssl.c:1006)`."""
    port = free_port()
    broker = BrokerProcess(tmp_path / "store", port, tmp_path / "log")
    try:
        broker.wait_for("active")
        with pytest.raises(JMSError, match="speaks no TLS at this port: write amqp:// in place of amqps://"):
            ConnectionFactory(f"amqps://127.0.0.1:{port}", tls_verify=False).create_connection()
    finally:
        broker.close()


def test_a_password_for_a_broker_that_asks_for_none_is_answered_with_what_to_do() -> None:
    """It was "Check the user and password"."""
    with (
        local_broker() as running,
        pytest.raises(JMSSecurityError, match="It asks for no password: leave user and password out"),
    ):
        ConnectionFactory(running.url.replace("amqp://", "amqp://ann:tea@")).create_connection()


PROGRAM = """
import logging, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background shells have it ignored
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from legato.client import ConnectionFactory
from legato.client.failover import outage_log
outage_log.WAIT_TOLD_AFTER_S = 0.05
ConnectionFactory(sys.argv[1]).create_connection()
"""


def test_ctrl_c_ends_the_wait_at_once() -> None:
    program = subprocess.Popen(
        [sys.executable, "-u", "-c", PROGRAM, f"amqp://127.0.0.1:{free_port()}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline().startswith("Waiting for a broker")
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=WAIT_S)
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert program.returncode == -signal.SIGINT
    finally:
        program.kill()
        program.wait()


def test_a_wait_in_asyncio_can_be_cancelled() -> None:
    async def story() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await aio.ConnectionFactory(f"amqp://127.0.0.1:{free_port()}").create_connection()

    asyncio.run(story())


def test_a_command_of_the_command_line_does_not_wait_a_minute() -> None:
    commands = (["send", "tea", "green"], ["queues"], ["dlq", "list"], ["browse", "tea"])
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "legato.cli", *command, "--url", f"amqp://127.0.0.1:{free_port()}"],
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    for run in runs:
        try:
            _, errors = run.communicate(timeout=4 * WAIT_S)
        finally:
            run.kill()
        assert run.returncode == 1
        waited = re.search(r"No broker can be reached(?: in (\d+) s)?", errors.replace("\n", " "))
        assert waited is not None, errors
        assert int(waited[1] or 0) < 45
