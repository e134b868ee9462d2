"""Brokers for the client's tests: one pair for tests that leave it alone, a fresh pair for those that kill."""

from collections.abc import Iterator

import pytest

from tests.support.clients import (
    brokers,
    calm_pair,
    client_id,
    connect,
    context,
    factory,
    forgetful_pair,
    pair,
    queue_name,
    shared_pair,
    topic_name,
)
from tests.support.forked_process import quick_starts

__all__ = [
    "brokers",
    "calm_pair",
    "client_id",
    "connect",
    "context",
    "factory",
    "forgetful_pair",
    "pair",
    "queue_name",
    "shared_pair",
    "topic_name",
]


@pytest.fixture(scope="module", autouse=True)
def _quick_starts() -> Iterator[None]:
    with quick_starts():
        yield
