"""The executor performs every effect that the core can ask for."""

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
