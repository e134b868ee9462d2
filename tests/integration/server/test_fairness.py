"""Fairness of the one loop: valid work at full speed stops nobody (`make attack-fairness` measures it at length)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.attack_fairness import begin, end
from tests.support.fuzz import GoodClient
from tests.support.measured_broker import MeasuredServer

ROUND_TRIPS = 15


@pytest.mark.parametrize("kind", ["churn", "selectors", "flows"])
def test_while_others_work_at_full_speed_each_turn_is_short(kind: str, tmp_path: Path) -> None:
    """Counted in processor time of the loop's thread, not in time: the machine may be busy."""
    broker = MeasuredServer(tmp_path / "store")
    broker.start()
    attackers = begin(kind, broker.port, 2)
    try:
        good = GoodClient(broker.port)
        for _ in range(ROUND_TRIPS):
            good.round_trip()
        good.close()
    finally:
        end(attackers)
        broker.kill()
    broker.check()
