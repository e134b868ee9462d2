"""Readings of a primary: sums over all queues, series for some, and never much in one step."""

import asyncio
from pathlib import Path

import pytest

from legato.core.facts import (
    AnyFact,
    Kind,
    MessageConsumed,
    MessageDeadLettered,
    MessageMoved,
    MessagePublished,
    MessageReturned,
    MessageStored,
    QueueCreated,
    RunStored,
)
from legato.core.records import Batch
from legato.errors import ConfigError
from legato.ha.roles import Role
from legato.server.config.configuration import HttpSection, load
from legato.server.monitoring.activity import Activity
from legato.server.monitoring.exposition import ProcessReadings, render
from legato.server.monitoring.histogram import Histogram
from legato.server.monitoring.readings import PrimaryReadings, read_in_steps
from tests.support.monitored import Samples
from tests.support.stopwatch import Watch
from tests.unit.server.test_service_time import serving


def steps_and_readings(section: HttpSection) -> tuple[int, PrimaryReadings]:
    """Of a broker with three queues that nobody uses, one of dead letters and a topic."""

    async def read() -> tuple[int, PrimaryReadings]:
        service = serving(Watch())
        service.activity = Activity()
        store = service._store
        facts: list[AnyFact] = [
            QueueCreated(1, "orders.eu"),
            QueueCreated(2, "orders.us"),
            QueueCreated(3, "DLQ.orders.us"),
            QueueCreated(4, "topic://prices", Kind.TOPIC),
            *(MessageStored(queue, seq, 10, f"{queue}.{seq}") for queue in (1, 3) for seq in (1, 2)),
        ]
        store.commit(Batch(service.broker.epoch, 1, facts, [b"x" * 10] * 4))
        found: list[PrimaryReadings] = []
        steps = sum(1 for _ in read_in_steps(service, store, section, found.append))
        service.abort()
        return steps, found[0]

    return asyncio.run(read())


def test_totals_cover_queues_that_nobody_uses_and_dead_letters_are_known() -> None:
    _, readings = steps_and_readings(HttpSection())
    assert readings.by_kind["queue"].depth == 4
    assert readings.by_kind["queue"].count == 3
    assert readings.by_kind["topic"].count == 1
    assert readings.dead_letters == 2
    assert [row.name for row, _ in readings.queues] == ["orders.eu", "orders.us", "DLQ.orders.us"]


def test_only_so_many_queues_have_series_and_the_others_are_counted() -> None:
    _, readings = steps_and_readings(HttpSection(queues_max=1))
    assert [row.name for row, _ in readings.queues] == ["orders.eu"]
    assert readings.queues_left_out == 2
    assert readings.by_kind["queue"].depth == 4


def test_patterns_choose_the_queues_with_series() -> None:
    _, readings = steps_and_readings(HttpSection(queues=["*.us", "none.#"]))
    assert [row.name for row, _ in readings.queues] == ["orders.us"]
    assert readings.queues_left_out == 0


def test_no_step_looks_at_more_than_one_queue() -> None:
    steps, readings = steps_and_readings(HttpSection())
    assert steps == 1 + sum(totals.count for totals in readings.by_kind.values())


def test_commits_are_counted_by_what_they_did() -> None:
    activity = Activity()
    facts: list[AnyFact] = [
        MessageStored(1, 1, 1, "a"),
        MessagePublished(4, 1, 1, "b", [5, 6]),
        RunStored(1, 2, 100, 1, 1, 1),
        MessageConsumed(1, 1, 1, 0, 1),
        MessageReturned(1, 2, 1, False, 1, "rollback"),
        MessageReturned(1, 3, 1, False, 1, "carried"),
        MessageDeadLettered(1, 2, 1, "rejected", 3, 1),
        MessageStored(3, 1, 1, "c", origin=(1, 2)),
        MessageMoved(1, 4, "expired"),
        MessageMoved(1, 5, "purged"),
    ]
    activity.observe(Batch(1, 1, facts, []), 0.004)
    assert (activity.stored, activity.acknowledged, activity.dead_lettered, activity.expired) == (103, 1, 1, 1)
    assert activity.failed == {"rollback": 1, "modified": 0, "disconnect": 0}
    assert dict(activity.durations.buckets())["0.005"] == 1
    assert dict(activity.durations.buckets())["0.0025"] == 0
    assert dict(activity.durations.buckets())["+Inf"] == activity.commits == 1


def test_what_is_rendered_is_openmetrics_whatever_a_queue_is_called() -> None:
    _, readings = steps_and_readings(HttpSection())
    readings.queues[0][0].name = 'a "quoted"\\ \n name'
    process = ProcessReadings(Role.PRIMARY, 3, 1.0, {"primary": 1}, Histogram(), 0.0, 10.0, 0.0, True, 0, readings)
    samples = Samples(render(process).decode())
    assert samples.get("legato_queue_depth", queue='a "quoted"\\ \n name') == 2
    assert samples.get("legato_role", role="primary") == 1
    assert samples.get("legato_role", role="backup") == 0


@pytest.mark.parametrize(
    ("listen", "address"), [("", None), ("localhost:9464", ("localhost", 9464)), (":9464", ("localhost", 9464)),
                            ("9464", ("localhost", 9464)), ("[::]:9464", ("::", 9464))]
)  # fmt: skip
def test_without_a_host_only_this_machine_can_reach_the_endpoint(listen: str, address: object) -> None:
    assert load(store=Path("/s"), environment={"LEGATO_HTTP_LISTEN": listen}).http_address == address


def test_an_address_without_a_port_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"http\.listen"):
        load(store=Path("/s"), environment={}, http="localhost")
