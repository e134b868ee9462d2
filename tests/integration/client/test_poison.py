"""A message that kills whoever gets it is a dead letter after `maximum_deliveries`, however it is received."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.client import AcknowledgeMode, ConnectionFactory
from tests.integration.client.helpers import WAIT_S, drain, receive, send
from tests.support.broker import BrokerPair, broker_pair

DELIVERIES_MAX = 2
CONFIGURATION = f"""
[server]
reconnect_timeout_s = 0
[[address]]
match = "poison.#"
maximum_deliveries = {DELIVERIES_MAX}
"""

# It dies before its I/O thread has had a chance to say anything that `receive()` did not wait for.
VICTIM = """
import os, signal, sys, threading
from legato.client import AcknowledgeMode, ConnectionFactory

url, queue, mode, way = sys.argv[1:]

def work(message):
    if message.text == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode is AcknowledgeMode.SESSION_TRANSACTED:
        session.commit()
    else:
        message.acknowledge()

connection = ConnectionFactory(url).create_connection()
mode = AcknowledgeMode[mode]
session = connection.create_session(mode is AcknowledgeMode.SESSION_TRANSACTED, mode)
consumer = session.create_consumer(session.create_queue(queue))
sys.setswitchinterval(10)
if way == "listener":
    ended = threading.Event()
    def listen(message):
        work(message)
        if message.text == "last":
            ended.set()
    consumer.message_listener = listen
    connection.start()
    ended.wait(60)
else:
    connection.start()
    while (message := consumer.receive(60)) is not None:
        work(message)
        if message.text == "last":
            break
"""


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPair]:
    """Brokers with few deliveries that wait for no client that is lost."""
    directory: Path = tmp_path_factory.mktemp("strict")
    configuration = directory / "legato.toml"
    configuration.write_text(CONFIGURATION)
    with broker_pair(directory, "--config", str(configuration)) as pair:
        yield pair


MODES = ("AUTO", "DUPS_OK", "CLIENT", "INDIVIDUAL", "SESSION_TRANSACTED")
LISTENERS = ("AUTO", "SESSION_TRANSACTED")
"""What is received in another mode comes to a listener in the same way."""


@pytest.mark.parametrize(
    ("mode", "way"),
    [
        *((mode, "receive") for mode in MODES),
        *(pytest.param(mode, "listener", marks=[] if mode in LISTENERS else pytest.mark.slow) for mode in MODES),
    ],
)
def test_what_kills_every_receiver_becomes_a_dead_letter(
    strict: BrokerPair, queue_name: str, mode: str, way: str
) -> None:
    """CONTRACT D2: nothing said that a message was presented, in DUPS_OK never, else not if it killed at once."""
    queue = f"poison.{queue_name}"
    with ConnectionFactory(strict.url).create_connection() as connection:
        connection.start()
        send(connection, queue, "innocent", "poison", "last")
        dead = connection.create_session(acknowledge_mode=AcknowledgeMode.AUTO)
        letters = dead.create_consumer(dead.create_queue(f"DLQ.{queue}"))
        victims = 0
        while victims <= DELIVERIES_MAX:
            ended = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(VICTIM), strict.url, queue, mode, way],
                check=False,
                timeout=WAIT_S * 3,
            )
            if ended.returncode == 0:
                break
            victims += 1
        # The first may die before anybody is told; each further one is told of before.
        assert victims in (DELIVERIES_MAX, DELIVERIES_MAX + 1)
        assert [message.body for message in receive(letters, 1)] == ["poison"]
        assert letters.receive_no_wait() is None, "what was received with it is no poison"
        assert "poison" not in drain(connection, queue)
