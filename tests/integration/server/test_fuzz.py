"""Two thousand mutated inputs: conversations, negotiations, messages and requests (SECURITY part 4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fuzz import Fuzz, run
from tests.support.measured_broker import MeasuredServer

INPUTS = 2000


@pytest.mark.timeout(300)
def test_no_mutated_input_holds_up_or_breaks_a_broker(tmp_path: Path) -> None:
    """`python -m tests.support.fuzz --only SEED` sends the input again that an error names."""
    server = MeasuredServer(tmp_path / "store")
    server.start()
    try:
        run(server, iter(range(INPUTS)))
        assert server.stop() == 0
    finally:
        server.kill()


def test_a_seed_always_gives_the_same_input() -> None:
    assert [Fuzz(seed).draw() for seed in range(50)] == [Fuzz(seed).draw() for seed in range(50)]
