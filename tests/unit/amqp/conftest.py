"""What the tests of the wire share."""

from collections.abc import Iterator

import pytest

from legato.amqp.engine import batch
from tests.unit.amqp.pair import Pair


@pytest.fixture
def pair() -> Iterator[Pair]:
    """An open client and server."""
    joined = Pair().opened()
    yield joined
    joined.free()


@pytest.fixture(params=["batched", "one by one"], scope="module")
def either_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Connections that call the engine for many deliveries at once, and connections that call it for each."""
    if request.param == "batched" and not batch.available:
        pytest.skip("the optional module was not compiled, or is forbidden")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "available", request.param == "batched")
        yield
