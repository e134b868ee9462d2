"""Fairness of the one loop: valid work at full speed stops nobody (`make attack-fairness` measures it at length)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from legato.amqp.codec.types import Symbol
from tests.attacks.ground import SASL_HEADER
from tests.support.amqp_peer import AmqpPeer
from tests.support.attack_fairness import begin, end
from tests.support.fuzz import GoodClient
from tests.support.measured_broker import MeasuredServer
from tests.support.raw import RawPeer, opening
from tests.support.server import server
from tests.unit.amqp.test_sasl import frame

ROUND_TRIPS = 15
CROWD = 400


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


def test_who_works_does_not_wait_for_a_crowd_that_logs_in(tmp_path: Path) -> None:
    """All that they say is there when the broker goes on: first the crowd's, then that of the client who works.

    The broker's log has the order in which it served them, which is the same on a busy machine.
    """
    login = frame(0x41, [Symbol("ANONYMOUS"), b""])
    with server(tmp_path / "store") as broker:
        working = AmqpPeer(broker.port)
        crowd = [RawPeer(broker.port) for _ in range(CROWD)]
        for peer in crowd:
            peer.send(SASL_HEADER)
            peer.hear_until(b"ANONYMOUS")
        broker.signal(signal.SIGSTOP)
        for number, peer in enumerate(crowd):
            peer.send(login, opening(f"crowd {number}"))
        working.amqp.close()
        working.flush()
        broker.signal(signal.SIGCONT)
        for number in range(CROWD):
            broker.wait_for_log(f"opened as 'crowd {number}'")
        log = broker.log.read_text()
    before, done, _ = log.partition(f"{working.socket.getsockname()[1]} closed")
    assert done
    assert before.count("opened as 'crowd") < CROWD // 2
