"""The memory that connections hold together: above the mark those who hold most wait, and nobody else."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from legato.amqp import names
from legato.amqp.engine.events import Disposition
from legato.amqp.engine.outcomes import ACCEPTED
from tests.support.amqp_peer import WAIT_S, AmqpPeer, Refused, data_of, text
from tests.support.server import Server, server

MIB = 1 << 20
MARK_MIB = 24
PART = text(b"x" * 500_000)
NOT_READ = "those who hold most are not read from"


class Hoarder:
    """A peer that sends into a transaction without end, as far as it is read from."""

    def __init__(self, broker: Server, name: str) -> None:
        self._broker = broker
        self.peer = AmqpPeer(broker.port, container=name)
        self.coordinator = self.peer.coordinator()
        self.link = self.peer.sender("hoard")
        self.txn_id = self.peer.declare(self.coordinator)
        self.peer.socket.settimeout(1.0)

    def send(self, count: int) -> int:
        """Send messages until nobody takes them any more; how many were taken."""
        for number in range(count):
            delivery = self.link.send(PART, number.to_bytes(4, "big"), PART, txn_id=self.txn_id)
            try:
                self.peer.flush()
                if not self._is_taken(delivery):
                    return number
            except (OSError, Refused):
                return number
        return count

    def _is_taken(self, delivery: object) -> bool:
        """Whether the broker says so; it does not while it does not read, and on a busy machine it is late."""
        while True:
            with contextlib.suppress(TimeoutError):
                self.peer.expect(Disposition, lambda event: event.link is self.link and event.delivery == delivery)
                return True
            if NOT_READ in self._broker.log.read_text():
                return False


def status(peer: AmqpPeer) -> dict[str, int]:
    """What connections hold, as the broker's status says it."""
    peer.receiver(names.STATUS_ADDRESS, 1)
    memory: dict[str, int] = json.loads(data_of(peer.transfer()))["memory"]
    return memory


def test_above_the_mark_those_who_hold_most_wait_and_go_on_below_it(tmp_path: Path) -> None:
    config = tmp_path / "legato.toml"
    config.write_text(f"[limits]\nmemory = {MARK_MIB * MIB}\nmemory_relief_s = 100\n")
    with server(tmp_path / "store", "--config", str(config)) as broker:
        good = AmqpPeer(broker.port, container="good")
        sender = good.sender("good")
        first, second = Hoarder(broker, "first"), Hoarder(broker, "second")
        assert second.send(20) == 20
        taken = first.send(200)
        assert 20 < taken < 60
        for _ in range(20):
            assert good.send(sender, text(b"x")) == ACCEPTED
        memory = status(good)
        assert memory["stopped"] == 1
        assert MARK_MIB * MIB < memory["used_bytes"] < (MARK_MIB + 8) * MIB
        broker.wait_for_log(NOT_READ)
        second.peer.socket.settimeout(WAIT_S)
        assert second.peer.discharge(second.coordinator, second.txn_id) == ACCEPTED
        broker.wait_for_log("everybody is read from again")
        first.peer.socket.settimeout(WAIT_S)
        assert first.peer.discharge(first.coordinator, first.txn_id) == ACCEPTED
        assert status(good)["stopped"] == 0
        good.drop()


def test_a_peer_that_does_not_let_go_is_cut_off_in_the_end(tmp_path: Path) -> None:
    """Else it and the broker would wait for one another."""
    config = tmp_path / "legato.toml"
    config.write_text(f"[limits]\nmemory = {MARK_MIB * MIB}\nmemory_relief_s = 0.5\n")
    with server(tmp_path / "store", "--config", str(config)) as broker:
        hoarder = Hoarder(broker, "hoarder")
        hoarder.send(200)
        broker.wait_for_log("it holds most of what all may hold in memory together")
        broker.wait_for_log("everybody is read from again")
        with contextlib.suppress(OSError):
            hoarder.peer.drop()
