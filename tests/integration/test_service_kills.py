"""The example services of Celery and FastStream go through kills of the broker, with every order billed.

`python -m tests.stress.service_kills` is the same with 20 kills, and Spark's audit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.testing import broker_pair
from tests.support.services import under_kills


@pytest.mark.slow
@pytest.mark.parametrize("name", ["celery", "faststream"])
def test_every_order_is_billed_although_the_broker_is_killed_twice(name: str, tmp_path: Path) -> None:
    with broker_pair(tmp_path) as pair:
        account = under_kills(name, tmp_path, pair, kills=2, orders=60)
    assert account.complete, str(account)
