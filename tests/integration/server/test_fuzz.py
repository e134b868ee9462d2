"""Mutated inputs: conversations, negotiations, messages and requests (SECURITY part 4).

Two thousand in `make test-full`, and a fifth of them before a merge.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.examples import examples
from tests.support.fuzz import Fuzz, run, with_users
from tests.support.measured_broker import MeasuredServer

INPUTS, INPUTS_OF_USERS = examples(2000), examples(600)


@pytest.mark.timeout(900)
def test_no_mutated_input_holds_up_or_breaks_a_broker(tmp_path: Path) -> None:
    """`python -m tests.support.fuzz --only SEED` sends the input again that an error names."""
    server = MeasuredServer(tmp_path / "store")
    server.start()
    try:
        run(server, iter(range(INPUTS)))
        assert server.stop() == 0
    finally:
        server.kill()


@pytest.mark.timeout(900)
def test_no_mutated_input_of_a_user_holds_up_or_breaks_a_broker_with_roles(tmp_path: Path) -> None:
    """`python -m tests.support.fuzz --users --only SEED`; half of them come from one who may do little."""
    server = with_users(tmp_path)
    server.start()
    try:
        run(server, iter(range(INPUTS, INPUTS + INPUTS_OF_USERS)), users=True)
        assert server.stop() == 0
        trail = (tmp_path / "audit.jsonl").read_text()
        assert trail.isascii()
        assert all(json.loads(line) for line in trail.splitlines())
    finally:
        server.kill()


def test_a_seed_always_gives_the_same_input() -> None:
    assert [Fuzz(seed).draw() for seed in range(50)] == [Fuzz(seed).draw() for seed in range(50)]
