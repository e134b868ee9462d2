"""The quick ones among the attacks of SECURITY part 2; `make attacks` makes all, and measures what they cost."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from legato.amqp.codec.values import UInt
from tests.attacks.ground import Ground
from tests.attacks.register import Attack, all_attacks
from tests.support.raw import DETACH, frame, opening, receiving

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


def test_who_hangs_up_in_the_middle_of_long_work_leads_to_no_error(ground: Ground) -> None:
    """The attack 22 found it: reading from a socket that was closed meanwhile was paused, or gone on with."""
    for _ in range(5):
        hostile = ground.logged_in()
        frames = (receiving(1, "play.q") + frame(DETACH, [UInt(1), True])) * 400
        hostile.send(opening(ground.container()), frames)
        hostile.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        hostile.close()
    _, told = ground.manager("root").ask("READ", type="broker")
    ground.leave()
    assert told["internal_errors"] == 0
