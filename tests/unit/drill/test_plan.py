"""Which faults there are, and when they come."""

from collections import Counter
from itertools import islice
from random import Random

import pytest

from legato.cli.drill import drill
from legato.drill.faults import FAULTS, POINTS, Fault, parse_faults, parse_points
from legato.drill.options import DrillOptions
from legato.drill.plan import plan
from legato.errors import ConfigError
from legato.failpoints import FlowPoint, Point, SinkPoint


def test_a_seed_makes_the_same_plan_again() -> None:
    first, second = (list(islice(plan(list(Fault), [], 4.0, Random(7)), 50)) for _ in range(2))
    assert first == second
    assert first != list(islice(plan(list(Fault), [], 4.0, Random(8)), 50))


def test_every_round_has_every_fault_once() -> None:
    strikes = list(islice(plan(list(Fault), [], 4.0, Random(1)), 3 * len(Fault)))
    for start in range(0, len(strikes), len(Fault)):
        assert {strike.fault for strike in strikes[start : start + len(Fault)]} == set(Fault)


def test_every_round_has_every_point_once() -> None:
    points = [*Point, None]
    strikes = list(islice(plan([Fault.KILL], points, 1.0, Random(1)), 2 * len(points)))
    for start in (0, len(points)):
        assert {strike.point for strike in strikes[start : start + len(points)]} == set(points)


def test_without_a_wish_every_other_fault_strikes_at_a_point() -> None:
    points = parse_points([], owned=True, spark_load=True)
    assert Counter(point is None for point in points) == {True: len(POINTS), False: len(POINTS)}
    assert parse_points([], owned=False) == [None]
    assert parse_points(["some-point"], owned=True, spark_load=True) == list(POINTS)
    assert Point.DURING_LEDGER_EXPORT not in parse_points(["some-point"], owned=True, ledger=False)
    assert parse_points(["any-instant"], owned=False) == [None]


def test_every_fault_and_every_point_is_explained() -> None:
    assert set(FAULTS) == set(Fault)
    assert set(POINTS) == {*Point, *FlowPoint, *SinkPoint}


def test_every_fault_is_named_by_the_help() -> None:
    listed = str(drill.__doc__).partition("Faults: ")[2].partition("; or")[0]
    assert [word.strip() for word in listed.split(",")] == list(Fault)


def test_faults_are_named_in_a_list() -> None:
    assert parse_faults("kill, cut", owned=True) == [Fault.KILL, Fault.CUT]
    assert parse_faults("all", owned=True, spark_load=True) == list(Fault)
    assert parse_faults("all,kill,kill", owned=True, spark_load=True) == [*Fault, Fault.KILL, Fault.KILL]


def test_without_a_spark_job_nobody_kills_its_driver_or_waits_at_its_points() -> None:
    assert parse_faults("all", owned=True) == [fault for fault in Fault if fault is not Fault.KILL_DRIVER]
    assert parse_points(["some-point"], owned=True) == [*Point, *FlowPoint]
    assert Fault.KILL_DRIVER not in DrillOptions().faults
    with pytest.raises(ConfigError, match="kill-driver needs a Spark job"):
        parse_faults("kill-driver", owned=True)
    with pytest.raises(ConfigError, match="between-publish-and-commit needs a Spark job"):
        parse_points(["between-publish-and-commit"], owned=True)
    with pytest.raises(ConfigError, match="kill-driver needs brokers that the drill starts"):
        parse_faults("kill-driver", owned=False, spark_load=True)
    with pytest.raises(ConfigError, match="--spark-load needs brokers that the drill starts"):
        DrillOptions(url="amqp://somewhere", spark_load=True)


def test_drivers_are_killed_where_they_publish_and_started_again_20_to_60_s_later() -> None:
    points = parse_points([], owned=True, spark_load=True)
    strikes = list(islice(plan([Fault.KILL_DRIVER, Fault.KILL], points, 4.0, Random(1)), 60))
    killed = [strike for strike in strikes if strike.fault is Fault.KILL_DRIVER]
    assert Counter(strike.point for strike in killed) == dict.fromkeys([*SinkPoint, None], 10)
    late = [strike.amount for strike in killed]
    assert all(20 <= late_s <= 60 for late_s in late)
    assert min(late) < 30 < 50 < max(late)
    assert str(killed[0]).startswith(f"kill-driver for {killed[0].amount:.0f} s")
    assert [strike.amount for strike in strikes if strike.fault is Fault.KILL] == [0.0] * 30


def test_where_a_point_was_asked_for_drivers_are_killed_there() -> None:
    points = parse_points(["between-commit-and-confirm"], owned=True, spark_load=True)
    strikes = islice(plan([Fault.KILL_DRIVER], points, 4.0, Random(1)), 10)
    assert {strike.point for strike in strikes} == {Point.BETWEEN_COMMIT_AND_CONFIRM}


def test_with_somebody_elses_brokers_only_clients_and_the_network_can_fail() -> None:
    of_the_network = [Fault.CUT, Fault.FREEZE, Fault.LATE, Fault.HALF_CLOSE]
    assert parse_faults("all", owned=False) == [Fault.KILL_CLIENT, Fault.STOP_CLIENT, *of_the_network]
    with pytest.raises(ConfigError, match="kill needs brokers that the drill starts"):
        parse_faults("kill", owned=False)
    with pytest.raises(ConfigError, match="Points need brokers"):
        parse_points(["before-commit"], owned=False)


def test_what_is_unknown_is_refused_with_what_is_known() -> None:
    with pytest.raises(ConfigError, match=r"no fault 'flood'.*kill, kill-both"):
        parse_faults("flood", owned=True)
    with pytest.raises(ConfigError, match=r"no point 'lunch'.*before-commit"):
        parse_points(["lunch"], owned=True)


def test_points_may_be_repeated_and_listed() -> None:
    assert parse_points(["before-commit,during-takeover", "before-commit"], owned=True) == [
        Point.BEFORE_COMMIT,
        Point.DURING_TAKEOVER,
        Point.BEFORE_COMMIT,
    ]


def test_a_drill_has_an_end() -> None:
    with pytest.raises(ConfigError, match="Say how long"):
        DrillOptions(minutes=None)
    with pytest.raises(ConfigError, match="--brokers is 1"):
        DrillOptions(brokers=1)
    with pytest.raises(ConfigError, match="--brokers says how many"):
        DrillOptions(brokers=3, url="amqp://somewhere")
    with pytest.raises(ConfigError, match="--every is 0"):
        DrillOptions(every_s=0)
    with pytest.raises(ConfigError, match="--contract is one of"):
        DrillOptions(contract="hearsay")
