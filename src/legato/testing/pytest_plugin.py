"""Fixtures of `legato.testing` for pytest: `pytest_plugins = ["legato.testing.pytest_plugin"]` in a `conftest.py`."""

from collections.abc import Iterator

import pytest

from legato.testing.local import LocalBroker, broker


@pytest.fixture
def legato_broker() -> Iterator[LocalBroker]:
    """A broker for one test."""
    with broker() as running:
        yield running


@pytest.fixture(scope="session")
def legato_session_broker() -> Iterator[LocalBroker]:
    """A broker for all tests together, which name their queues apart."""
    with broker() as running:
        yield running
