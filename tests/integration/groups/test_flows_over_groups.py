"""Requests to a service by a process that is connected to another group of brokers than the service's addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from legato.errors import FlowFailedError
from legato.flows import Context, Flows, Policy
from tests.integration.groups.conftest import Connect, Groups
from tests.integration.groups.test_links import taken
from tests.integration.groups.test_moving_addresses import reload

TIMEOUT_S = 60.0
Make = Callable[[str], Flows]


@pytest.fixture
def make(groups: Groups) -> Iterator[Make]:
    """Makes services by the URL of one of two groups, of which `rest` has the addresses of all flows."""
    groups.write_map({"flows.#": "rest"})
    for name in ("orders", "rest"):
        reload(groups, name)
    made: list[Flows] = []

    def make(name: str) -> Flows:
        made.append(Flows(groups.url(name), name=f"at {name}", policy=Policy(concurrency=1, deliveries_max=2)))
        return made[-1]

    yield make
    for flows in made:
        flows.stop()


@pytest.mark.parametrize("asking", ["orders", "rest"])
@pytest.mark.parametrize("serving", ["orders", "rest"])
def test_replies_reach_who_asked_whatever_group_the_urls_lead_to(
    make: Make, groups: Groups, connect: Connect, serving: str, asking: str
) -> None:
    """The stage failed with each request, which became a dead letter, and who asked waited until it was late."""
    service = make(serving)

    @service.single("Shop.price")
    def price(context: Context[None], item: str) -> str:
        if item == "gold":
            raise ValueError("there is none")
        return f"{item} costs 3"

    service.start()
    client = make(asking)
    waiting = [client.request("Shop.price", what, trace_id=what, timeout_s=TIMEOUT_S) for what in ("tea", "milk")]
    assert [future.result() for future in waiting] == ["tea costs 3", "milk costs 3"]
    with pytest.raises(FlowFailedError, match="there is none"):
        client.request("Shop.price", "gold", trace_id="gold", timeout_s=TIMEOUT_S).result()
    assert len(taken(connect(groups.url("rest")), "DLQ.flows.Shop.price")) == 1
