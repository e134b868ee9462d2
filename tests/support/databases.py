"""Fixtures: an empty database for each test, on SQLite and on PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import Server, postgres_server

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """One server for all tests."""
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of the test's own; the test runs once on each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    server: Server = request.getfixturevalue("postgres")
    return server.create(f"test{next(_numbers)}")
