"""Who looks at a console of the broker `legato_broker`, which a module makes for itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from legato.testing import LocalBroker
from tests.integration.console.visitor import Visitor, visitor_of


@pytest.fixture
def visitor(legato_broker: LocalBroker) -> Iterator[Visitor]:
    with visitor_of(legato_broker.url) as visitor:
        yield visitor
