"""The page of a service, from what it has counted."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from legato.flows.model.definitions import Policy
from legato.flows.model.envelope import Outgoing, Reach
from legato.flows.stages.introspection_page import edges, graph, layout, page
from legato.flows.stages.stage_health import Meter, StageHealth
from tests.unit.flows.making import NOW_US, envelope_to


def stage(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "runs": 3, **more}


PLACE = stage("Orders.place", callers={"web": 3}, calls={"Prices.of": 3})
PRICED = stage("Orders.place.stage1", callers={"Prices.of": 3}, calls={"Orders.done": 2}, circuit="open")
STAGES = [PLACE, PRICED, stage("Orders.<done>", last_failure="ValueError: <b>")]


def test_calls_are_counted_once_whoever_of_the_two_saw_them() -> None:
    prices = stage("Prices.of", callers={"Orders.place": 4}, calls={"Orders.place.stage1": 3})
    assert edges([PLACE, PRICED, prices]) == {
        ("web", "Orders.place"): 3,
        ("Orders.place", "Prices.of"): 4,
        ("Prices.of", "Orders.place.stage1"): 3,
        ("Orders.place.stage1", "Orders.done"): 2,
    }


def test_calls_go_from_left_to_right_and_loops_end() -> None:
    calls = {("web", "A"): 1, ("A", "B"): 1, ("B", "A"): 1, ("B", "C"): 1, ("X", "Y"): 1, ("Y", "X"): 1}
    places = layout(["A", "B", "C"], calls)
    assert [places[name][0] for name in ("web", "A", "B", "C")] == [0, 1, 2, 3]
    assert len(set(places.values())) == len(places) == 6
    assert layout([], {}) == {}


def test_the_graph_is_well_formed_and_the_page_asks_nobody_for_anything() -> None:
    drawing = ElementTree.fromstring(graph(STAGES))
    titles = [title.text for title in drawing.iter("title")]
    assert titles == ["Orders.place", "Orders.place.stage1", "Orders.<done>", "web", "Prices.of", "Orders.done"]
    html = page({"service": "s", "host": "h", "versions": "v", "now_us": 0, "endpoints": [{"stages": STAGES}]})
    assert "ValueError: &lt;b&gt;" in html
    assert 'class="open"' in html
    assert not re.search(r"https?://|<script|src=", html)


def test_a_meter_tells_the_rate_of_the_last_seconds_and_means_that_follow() -> None:
    meter = Meter()
    for second in range(20):
        for _ in range(5):
            meter.ran(0.001, 0.002, second * 1_000_000)
    assert meter.per_s(20_000_000) == 5.0
    assert meter.per_s(100_000_000) == 0.0
    assert (meter.runs, round(meter.in_stage_s, 6), round(meter.in_queue_s, 6)) == (100, 0.002, 0.001)


def test_replies_to_futures_are_counted_together_whatever_their_addresses() -> None:
    """Each connection of a client has one: there was a counter for each."""
    health = StageHealth(Policy())
    sent = [Outgoing(envelope_to(f"temporary:{number}"), Reach.ADDRESS) for number in range(3)]
    health.succeeded([], [*sent, Outgoing(envelope_to("Prices.of"))], NOW_US, NOW_US)
    assert health.meter.calls == {"(replies to futures)": 3, "Prices.of": 1}
