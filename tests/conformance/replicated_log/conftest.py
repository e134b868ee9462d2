"""What tests of logs share."""

import pytest


@pytest.fixture
def fast_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message is missing at once: no deposed leader of real servers may have answered."""
    for module in ("gapless", "chained_claim", "chained_log"):
        monkeypatch.setattr(f"legato.replication.{module}.CHECK_PAUSE_S", 0.0)
    monkeypatch.setattr("legato.replication.chained_following.SILENCE_S", 0.01)
