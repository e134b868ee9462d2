"""What the tests of the wire share."""

from collections.abc import Iterator

import pytest

from tests.unit.amqp.pair import Pair


@pytest.fixture
def pair() -> Iterator[Pair]:
    """An open client and server."""
    joined = Pair().opened()
    yield joined
    joined.free()
