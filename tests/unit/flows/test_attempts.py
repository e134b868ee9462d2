"""How often a message that fails is tried, for how long, and how that is numbered (CONTRACT D16, D20)."""

from __future__ import annotations

import pytest

from legato.flows.model.attempts import FAILING_MAX, Attempts, Verdict
from legato.flows.model.definitions import Policy
from legato.flows.stages.failure_report import Failure
from legato.flows.stages.stage_health import StageHealth

DAY_S = 86_400.0
DOWN = Failure.of(ConnectionError("503"))
WRONG = Failure.of(ValueError("no tea"))


class Stage:
    """A stage and its queue: what is given back uncounted keeps its count, as at the broker."""

    def __init__(self, **policy: float) -> None:
        said = {"deliveries_max": 6, "circuit_failures": 5, "circuit_pause_s": 1.0, "circuit_pause_max_s": 60.0}
        self.health = StageHealth(Policy(**{"environment_retry_s": DAY_S, **said, **policy}))  # type: ignore[arg-type]
        self.deliveries: dict[str, int] = {}
        self.now_s = 100.0

    def fails(self, message: str, failure: Failure) -> Verdict:
        """An attempt, after the pause if there is one."""
        circuit = self.health.circuit
        self.now_s = max(self.now_s, circuit.until_s)
        circuit.wait_s("worker", self.now_s)
        delivery = self.deliveries.setdefault(message, 1)
        verdict = self.health.failed(message, delivery, failure, 0, self.now_s)
        self.deliveries[message] += verdict.counts
        return verdict

    def until_dead(self, message: str, failure: Failure) -> list[Verdict]:
        verdicts: list[Verdict] = []
        while not verdicts or not verdicts[-1].last:
            verdicts.append(self.fails(message, failure))
            assert len(verdicts) < 10_000, "it is tried for ever"
        return verdicts


@pytest.mark.parametrize("retry_s", [30.0, DAY_S])
def test_a_message_that_nobody_is_to_blame_for_is_tried_for_so_long_and_not_for_ever(retry_s: float) -> None:
    """One message alone whose every attempt raises `ConnectionError`."""
    stage = Stage(environment_retry_s=retry_s)
    verdicts = stage.until_dead("m", DOWN)
    assert [verdict.attempt for verdict in verdicts] == list(range(1, len(verdicts) + 1))
    assert [verdict.first for verdict in verdicts] == [True] + [False] * (len(verdicts) - 1)
    assert [verdict.opened for verdict in verdicts].count(True) == 1
    assert 100 + retry_s <= stage.now_s < 100 + retry_s + 61
    waiting = verdicts[:-1]
    assert not any(verdict.counts for verdict in waiting)
    told = [verdict.gives_up_s for verdict in waiting]
    assert told[0] == retry_s
    assert sorted(told, reverse=True) == told  # type: ignore[type-var]


def test_who_counts_what_no_message_is_to_blame_for_says_zero() -> None:
    assert len(Stage(environment_retry_s=0).until_dead("m", DOWN)) == 6


def test_a_stage_that_leaves_dead_letters_to_the_broker_has_it_count_when_the_time_is_over() -> None:
    stage = Stage(environment_retry_s=30, deliveries_max=0)
    counted = [stage.fails("m", DOWN).counts for _ in range(40)]
    assert counted[-4:] == [True] * 4
    assert not any(counted[:4])


def test_what_no_message_is_to_blame_for_is_not_counted_though_others_succeed_in_between() -> None:
    """Of a database that answers some of the time the same message may be told of it more often than it may fail."""
    stage = Stage()
    for number in range(20):
        verdict = stage.fails("m", DOWN)
        assert (verdict.counts, verdict.last, verdict.opened) == (False, False, True)
        stage.health.succeeded([], [], 0, 0, [f"other {number}"])


def test_what_the_broker_counts_in_any_case_is_not_counted_twice() -> None:
    stage = Stage()
    numbers = []
    for delivery in range(1, 6):
        verdict = stage.health.failed("m", delivery, DOWN, 0, 100.0, counted=True)
        numbers.append((verdict.attempt, verdict.counts, verdict.last))
    assert numbers == [(delivery, True, False) for delivery in range(1, 6)]
    assert stage.health.failed("m", 6, DOWN, 0, 100.0, counted=True).last


def test_a_stage_that_does_not_pause_counts_what_no_message_is_to_blame_for() -> None:
    """As those of topics, and those without a circuit: it would be tried again at once, for a day."""
    assert len(Stage(circuit_failures=0).until_dead("m", DOWN)) == 6


@pytest.mark.parametrize("poison", [1, 2, 8, 9, 20])
def test_however_many_poison_messages_there_are_each_is_a_dead_letter_in_the_end(poison: int) -> None:
    """Those that fail while a stage pauses are passed over; with more than are passed over none was ever counted."""
    stage = Stage(deliveries_max=3, circuit_failures=3)
    waiting = [f"m{number}" for number in range(poison)]
    attempts: dict[str, int] = {}
    while waiting:
        avoided = stage.health.circuit.avoided
        message = next((one for one in waiting if one not in avoided), waiting[0])
        attempts[message] = attempts.get(message, 0) + 1
        assert attempts[message] < 10, "it is tried for ever"
        if stage.fails(message, WRONG).last:
            waiting.remove(message)
    assert max(attempts.values()) <= 4


def test_a_success_begins_the_account_of_a_message_anew() -> None:
    stage = Stage(environment_retry_s=30.0)
    for _ in range(6):
        stage.fails("m", DOWN)
    stage.now_s += 25
    stage.health.succeeded([], [], 0, 0, ["m"])
    stage.deliveries.clear()
    assert stage.fails("m", DOWN) == Verdict(1, counts=False, opened=True, pause_s=1.0, gives_up_s=30.0)
    assert stage.health.attempts.latest(9)[0][1].since_s == stage.now_s


def test_the_messages_that_are_remembered_are_bounded() -> None:
    attempts = Attempts()
    for number in range(FAILING_MAX + 10):
        attempts.failed(f"m{number}", 1, "")
    assert attempts.of("m9") is None
    assert attempts.of("m10") is not None
    assert [message for message, _ in attempts.latest(2)] == [f"m{FAILING_MAX + 9}", f"m{FAILING_MAX + 8}"]


def test_what_comes_next_is_said_as_the_end_of_a_sentence() -> None:
    assert str(Verdict(1)) == "it is tried again"
    assert str(Verdict(6, last=True)) == "it goes to the dead letters"
    assert str(Verdict(5, pause_s=2.0)) == "the stage pauses, next try in 2.0 s"
    assert str(Verdict(5, counts=False, pause_s=2.0, gives_up_s=3599.5)) == (
        "the stage pauses, next try in 2.0 s; not counted, the message goes to the dead letters in 3600 s if it still "
        "fails"
    )
