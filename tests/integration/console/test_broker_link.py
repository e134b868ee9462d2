"""A console's requests to the broker, from many threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

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
