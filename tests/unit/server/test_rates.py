"""Rates are differences of counters over time, looked at a few queues at a time."""

from legato.core.queues import Queue
from legato.core.records import QueueRecord
from legato.server.management.rates import PERIOD_US, QUEUES_AT_ONCE, RateMeter


def queue(name: str) -> Queue:
    return Queue(QueueRecord(1, name), name)


def test_a_rate_is_what_moved_in_the_time_between_two_looks() -> None:
    moving = queue("moving")
    meter = RateMeter({"moving": moving})
    now_us = PERIOD_US
    for _ in range(2):
        meter.tick(now_us)
        meter.tick(now_us)
        moving.stored += 40
        moving.delivered += 20
        moving.consumed += 10
        now_us += 2 * PERIOD_US
    rates = meter.of("moving")
    seconds = 2 * PERIOD_US / 1e6
    assert (rates.stored_per_s, rates.delivered_per_s, rates.acknowledged_per_s) == (
        round(40 / seconds, 1),
        round(20 / seconds, 1),
        round(10 / seconds, 1),
    )


def test_a_queue_that_nobody_knows_stands_still() -> None:
    assert RateMeter({}).of("unknown").stored_per_s == 0


def test_one_tick_looks_at_a_bounded_number_of_queues() -> None:
    queues = {f"q{number}": queue(f"q{number}") for number in range(QUEUES_AT_ONCE + 10)}
    meter = RateMeter(queues)
    meter.tick(PERIOD_US)
    meter.tick(PERIOD_US)
    assert len(meter._samples) == QUEUES_AT_ONCE
    meter.tick(PERIOD_US)
    assert len(meter._samples) == len(queues)


def test_what_is_gone_is_forgotten() -> None:
    queues = {"a": queue("a"), "b": queue("b")}
    meter = RateMeter(queues)
    for _ in range(3):
        meter.tick(PERIOD_US)
    del queues["b"]
    meter.tick(3 * PERIOD_US)
    meter.tick(3 * PERIOD_US)
    assert set(meter._samples) == {"a"}
