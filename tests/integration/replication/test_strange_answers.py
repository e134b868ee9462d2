"""Answers that are not JetStream's, and questions that nobody serves for a moment."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import nats
import pytest
from nats.aio.msg import Msg

from legato.errors import LogAccessError
from legato.processes.log_servers import LogServers
from legato.replication.log import BEGINNING
from legato.replication.nats import NatsSettings, open_log
from legato.replication.nats.sync_proof import UNPROVED
from legato.testing.log_servers import log_servers
from tests.conformance.replicated_log.log import claim, data_of, health_when, read_all
from tests.integration.replication.test_nats_safety import WAIT_S
from tests.support.monitored import until


@contextmanager
def who_answers_all(servers: LogServers) -> Iterator[list[str]]:
    """Another client of the brokers' account that answers each request with `{}`; the subjects of those."""
    asked: list[str] = []
    ready, done = threading.Event(), threading.Event()

    async def answer() -> None:
        clients = [await nats.connect(url) for url in servers.url.split(",")]

        async def respond(message: Msg) -> None:
            if message.reply and not message.subject.startswith(("_INBOX", "$JS.ACK")):
                asked.append(message.subject)
                await message.respond(b"{}")

        for client in clients:
            await client.subscribe(">", cb=respond)
            await client.flush()
        ready.set()
        await asyncio.to_thread(done.wait)
        for client in clients:
            await client.close()

    answering = threading.Thread(target=lambda: asyncio.run(answer()))
    answering.start()
    assert ready.wait(WAIT_S)
    try:
        yield asked
    finally:
        done.set()
        answering.join(WAIT_S)


def test_a_log_goes_on_after_answers_that_are_not_jetstreams(servers: LogServers) -> None:
    log = open_log(NatsSettings(servers.url, "strange"))
    writer = claim(log)
    with ThreadPoolExecutor(1) as pool, who_answers_all(servers) as asked:
        appended = pool.submit(writer.append, b"one")
        looked = pool.submit(log.health, WAIT_S)
        until(lambda: sum(subject.startswith("$JS.API") for subject in asked) > 0)
    assert appended.result(WAIT_S).position.sequence == 2
    assert looked.result(WAIT_S).last == 2
    assert data_of(read_all(log)) == [b"epoch", b"one"]
    log.close()


def test_a_claim_waits_while_nobody_serves_the_question_when_servers_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where a server ends, or reads its configuration again: the backup that claimed then ended."""
    monkeypatch.setattr("legato.replication.nats.engine.UNSERVED_S", WAIT_S)
    with log_servers(proof=False) as silent, ThreadPoolExecutor(1) as pool:
        log = open_log(NatsSettings(silent.url, "orders"))
        health_when(log, lambda health: UNPROVED in health.trouble)
        claimed = pool.submit(log.claim, b"epoch", BEGINNING, WAIT_S)
        LogServers(silent.directory)  # writes their configuration as it is to be
        for server in silent.servers:
            server._signal(signal.SIGHUP)
        claimed.result(2 * WAIT_S)
        log.close()


@pytest.mark.slow
def test_what_the_login_may_not_do_is_said() -> None:
    """It was told of an election, of no quorum or of a slow network, however long one waited."""
    group = "orders"
    denied = f"permissions: {{publish: {{deny: [legato.log.{group}]}}}}"
    with log_servers(start=False) as servers:
        for server in servers.servers:
            file = server.directory / "nats-server.conf"
            text = file.read_text()
            assert text.count('password: ""') == 1
            server.configure(text.replace('password: ""', f'password: "", {denied}'))
        servers.start()
        log = open_log(NatsSettings(servers.url, group))
        with pytest.raises(LogAccessError, match=rf"refuses .*[Pp]ublish to .*legato\.log\.{group}"):
            log.claim(b"epoch", BEGINNING, timeout_s=10.0)
        assert log.last() == 0
        log.close()
