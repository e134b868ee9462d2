"""The executor performs every effect that the core can ask for."""

from typing import Any, cast

from legato.core.effects import Effect
from legato.server.links.producer_credit import ProducerCredit
from legato.server.messages.executor import Executor
from tests.support.scenario import Scenario


def test_every_effect_has_what_performs_it() -> None:
    scenario = Scenario()
    executor = Executor(
        scenario.broker, scenario.store, ProducerCredit(scenario.broker, lambda peer: None), lambda receiver: None
    )

    assert set(executor._perform) == set(Effect.__subclasses__())


class Written:
    """A peer that notes when it is written to."""

    def __init__(self, name: str, order: list[str]) -> None:
        self._name = name
        self._order = order

    def flush(self) -> None:
        """Its turn."""
        self._order.append(self._name)


def test_who_was_touched_first_is_written_to_first() -> None:
    """Confirmations come before deliveries: who sent is told before a receiver is given what was sent."""
    scenario = Scenario()
    executor = Executor(
        scenario.broker, scenario.store, ProducerCredit(scenario.broker, lambda peer: None), lambda receiver: None
    )
    order: list[str] = []
    names = [f"peer {number}" for number in range(20)]
    peers = [cast(Any, Written(name, order)) for name in names]
    for peer in [*peers, peers[3]]:
        executor.touched.add(peer)
    executor.flush()
    executor.flush()
    assert order == names
