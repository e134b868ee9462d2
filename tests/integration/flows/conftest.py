"""One pair of brokers for all tests of flows that leave it alone, and names of their own for each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from legato.flows import Flows
from tests.support.broker import BrokerPair
from tests.support.clients import calm_pair, pair

__all__ = ["calm_pair", "make_flows", "pair", "prefix"]

_numbers = itertools.count(1)


@pytest.fixture
def prefix() -> str:
    """What this test's queues begin with."""
    return f"f{next(_numbers)}."


@pytest.fixture
def make_flows(request: pytest.FixtureRequest, prefix: str) -> Iterator[Callable[..., Flows]]:
    """Makes services on `pair` if the test uses it, else on `calm_pair`; they are stopped at its end."""
    brokers: BrokerPair = request.getfixturevalue("pair" if "pair" in request.fixturenames else "calm_pair")
    made: list[Flows] = []

    def make(**options: Any) -> Flows:
        made.append(Flows(brokers.url, **{"prefix": prefix, **options}))
        return made[-1]

    yield make
    for flows in made:
        flows.stop(timeout_s=5)
