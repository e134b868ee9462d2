"""What the source keeps for a worker's next tasks ends with each test here."""

from collections.abc import Iterator

import pytest

from legato.spark.connector.reading import close_clients
from legato.spark.connector.requests import close_shared


@pytest.fixture(autouse=True)
def _no_connection_outlives_a_test() -> Iterator[None]:
    yield
    close_clients()
    close_shared()
