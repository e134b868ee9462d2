"""The quick ones among the attacks of SECURITY part 2; `make attacks` makes all, and measures what they cost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.ground import Ground
from tests.attacks.register import Attack, all_attacks

QUICK = [attack for attack in all_attacks() if attack.quick]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with Ground(tmp_path_factory.mktemp("ground")) as running:
        yield running
        running.see_whole()
        running.see_it_stop()


@pytest.mark.parametrize("attack", QUICK, ids=lambda attack: f"{attack.number} {attack.name}")
def test_an_attack_fails(attack: Attack, ground: Ground) -> None:
    attack.run(ground)
    ground.leave()
    ground.manager("root").ask("READ", type="broker")
    ground.leave()


def test_every_finding_has_an_attack() -> None:
    """All but 24, the bulk endpoint, which has tests of its own."""
    assert {attack.number for attack in all_attacks()} >= set(range(1, 28)) - {24}
