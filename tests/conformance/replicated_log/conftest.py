"""What tests of logs share."""

from functools import partialmethod

import pytest

from legato.replication.chained_log import ChainedLog


@pytest.fixture
def fast_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message is missing at once: no deposed leader of real servers may have answered."""
    for module in ("gapless", "chained_claim", "chained_log"):
        monkeypatch.setattr(f"legato.replication.{module}.CHECK_PAUSE_S", 0.0)
    monkeypatch.setattr(ChainedLog, "follow", partialmethod(ChainedLog.follow, silence_s=0.01))
