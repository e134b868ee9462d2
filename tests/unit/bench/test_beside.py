"""What the questions F1 to F8 make of their pairs."""

import argparse
from typing import Any

import pytest
from bench import artemis
from bench.beside import Aim, Case, Measured, Outcome, Served, answer, at_least, compare, judged, measure, rate_of
from bench.f6 import STYLES, arguments
from bench.figures import Goal, Pair

RATE = Aim("msg/s", Goal(1.2, at_least=True))
LATENCY = Aim("ms", Goal(1.0, at_least=False))
OWN, PEER = Served("Legato", 1, 1), Served("Artemis", 2, 1)


def test_the_last_line_has_question_ratio_range_goal_and_whether_it_is_met() -> None:
    found = judged("how fast?", [Outcome("only", RATE, [Pair(3, 2), Pair(2, 2), Pair(4, 2)])])
    assert found["question"] == "how fast?"
    assert found["ratio"] == 1.5
    assert found["range"] == [1.0, 2.0]
    assert found["goal"] == "at least 1.2"
    assert found["met"] is True


def test_a_question_is_met_if_each_of_its_cases_is_and_shows_the_one_farthest_from_its_goal() -> None:
    good, bad = Outcome("rate", RATE, [Pair(3, 1)]), Outcome("latency", LATENCY, [Pair(2, 1)])
    found = judged("both?", [good, bad])
    assert found["met"] is False
    assert (found["case"], found["ratio"], found["goal"]) == ("latency", 2.0, "at most 1")
    assert [line["met"] for line in found["cases"]] == [True, False]


def test_of_latencies_less_is_better() -> None:
    assert Outcome("latency", LATENCY, [Pair(1, 2)]).distance == 2.0
    assert Outcome("rate", RATE, [Pair(1.2, 2)]).distance == 0.5


def test_processor_time_of_both_is_the_median_of_the_runs() -> None:
    runs = [Pair(1.0, 9.0), Pair(2.0, 5.0), Pair(9.0, 4.0)]
    line = Outcome("only", RATE, [Pair(3, 2)], runs).line()
    assert (line["processor_us"], line["processor_us_peer"]) == (2.0, 5.0)


def test_artemis_is_warmed_until_enough_went_through_it_and_then_the_sides_alternate() -> None:
    ran: list[str] = []

    def run(served: Served) -> Measured:
        ran.append(served.name)
        return Measured((1.0,), 100, 0.001)

    outcomes = compare(Case("load", run, at_least("msg/s", 1.0), 250), OWN, PEER, 2)
    assert ran == ["Legato", *["Artemis"] * 3, *["Legato", "Artemis"] * 2]
    assert len(outcomes[0].pairs) == 2


def test_a_load_may_tell_which_processor_time_is_its_own() -> None:
    case = Case("load", lambda _: Measured((1.0,), 100, 0.001), at_least("msg/s", 1.0))
    assert measure(case, OWN)[1] == pytest.approx(10.0)


def test_a_rate_runs_from_the_first_that_began_to_the_last_that_ended() -> None:
    assert rate_of([{"started": 1.0, "ended": 3.0}, {"started": 2.0, "ended": 6.0}], 10) == 2.0


def test_without_artemis_a_question_ends_with_code_2_and_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent() -> Any:
        raise artemis.ArtemisAbsent("There is no Java.")

    monkeypatch.setattr(artemis, "home", absent)
    with pytest.raises(SystemExit) as ended:
        answer("F0", "what?", [], argparse.Namespace())
    assert ended.value.code == 2
    assert capsys.readouterr().err == "There is no Java.\n"


def test_the_java_program_is_told_to_log_in_as_nobody_and_how_much_to_send() -> None:
    url, *rest = arguments(STYLES[1], 4711, 1000, 256)
    assert url == "amqp://127.0.0.1:4711?amqp.saslMechanisms=ANONYMOUS"
    assert rest == ["sync", "bench-jms", "8", "250", "1000", "256"]
