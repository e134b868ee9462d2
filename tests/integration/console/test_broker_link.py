"""A console's requests to the broker, from many threads."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from legato.client.management import request
from legato.console.broker_link import BrokerLink
from legato.console.brokers import Brokers
from legato.errors import JMSError
from legato.testing import broker

NAMES = ("tea", "milk", "sugar", "lemon")


@pytest.fixture(scope="module")
def link() -> Iterator[BrokerLink]:
    with broker() as running:
        for name in NAMES:
            request(running.url, "create", "queue", name)
        made = BrokerLink(Brokers(running.url))
        yield made
        made.close()


def test_each_request_gets_its_own_answer(link: BrokerLink) -> None:
    """A broker sends all answers of a connection to one receiver: they were mixed up."""

    def ask(name: str) -> list[str]:
        return [
            str(link.request(operation, "queue", name)["name"]) for operation in ("read", "pause", "read", "resume") * 4
        ]

    with ThreadPoolExecutor(len(NAMES)) as pool:
        assert list(pool.map(ask, NAMES)) == [[name] * 16 for name in NAMES]


def test_a_refusal_is_an_answer_and_others_follow_it(link: BrokerLink) -> None:
    for operation in ("read", "purge"):
        with pytest.raises(JMSError, match="There is no queue 'coffee'"):
            link.request(operation, "queue", "coffee")
        assert link.request("read", "queue", "tea")["name"] == "tea"


def test_a_certificate_that_is_not_trusted_ends_no_visit(tmp_path: Path) -> None:
    """A broker shows a renewed one a moment before its console knows it."""
    issued = trustme.CA().issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "own.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    issued.configure_cert(context)
    trustme.CA().issue_cert("localhost").cert_chain_pems[0].write_to_path(tmp_path / "other.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:

        def shake_hands() -> None:
            with suppress(OSError):
                while True:
                    accepted, _ = listening.accept()
                    with suppress(OSError), context.wrap_socket(accepted, server_side=True):
                        pass

        pool.submit(shake_hands)
        url = f"amqps://127.0.0.1:{listening.getsockname()[1]}"
        link = BrokerLink(Brokers(url, pinned=str(tmp_path / "other.pem")), "ann", "secret")
        try:
            with pytest.raises(JMSError, match="is not trusted"):
                link.request("read", "user")
            assert not link.is_refused
        finally:
            link.close()
            listening.shutdown(socket.SHUT_RDWR)
