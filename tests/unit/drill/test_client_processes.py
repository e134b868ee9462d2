"""Client processes that end unasked, and drills with fewer faults than asked for, are complained of."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from legato.drill.client_processes import ClientProcesses, Member
from legato.drill.disk_filler import DiskFiller
from legato.drill.faults import Fault
from legato.drill.injection import Injector
from legato.drill.options import DrillOptions
from legato.drill.relay import Network
from legato.drill.run import Run
from legato.drill.target import named

WAIT_S = 60.0
UNTIL_ASKED = "import sys; sys.stdin.read()"
AT_ONCE = "pass"


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[ClientProcesses]:
    (tmp_path / "logs").mkdir()
    crew = ClientProcesses(tmp_path, None, lambda report: None)
    yield crew
    crew.end()


def start(crew: ClientProcesses, name: str, script: str) -> Member:
    member = crew.members[name] = Member(name, (sys.executable, "-c"), [script])
    crew.start_again(member)
    return member


def wait_for_exit(member: Member) -> None:
    assert member.child is not None
    assert member.child.wait(WAIT_S)


def test_a_process_that_ends_unasked_is_complained_of_though_its_exit_code_is_0(crew: ClientProcesses) -> None:
    member = start(crew, "consumers-1", AT_ONCE)
    crew.poll(WAIT_S)
    assert member.has_ended()
    [complaint] = crew.complaints
    assert complaint.startswith("The consumers-1 ended before it was asked to stop")


def test_one_that_ends_as_it_was_asked_is_not(crew: ClientProcesses) -> None:
    member = start(crew, "consumers-1", UNTIL_ASKED)
    crew.ask_to_stop("consumers-1")
    crew.poll(WAIT_S)
    assert member.has_ended()
    assert crew.complaints == []


def test_one_that_has_ended_when_it_is_asked_or_killed_ended_unasked(crew: ClientProcesses) -> None:
    asked, killed = start(crew, "asked", AT_ONCE), start(crew, "killed", AT_ONCE)
    wait_for_exit(asked)
    wait_for_exit(killed)
    crew.ask_to_stop("asked")
    crew.kill(killed)
    crew.poll(WAIT_S)
    assert len(crew.complaints) == 2, crew.complaints


def test_one_that_is_killed_on_purpose_is_no_news(crew: ClientProcesses) -> None:
    member = start(crew, "consumers-1", UNTIL_ASKED)
    crew.kill(member)
    crew.start_again(member)
    crew.ask_to_stop("consumers-1")
    crew.poll(WAIT_S)
    assert crew.complaints == []


def test_a_drill_whose_clients_end_before_all_its_faults_says_how_many_are_missing(
    tmp_path: Path, crew: ClientProcesses
) -> None:
    options = DrillOptions((Fault.CUT,), minutes=None, count=3, url="amqp://127.0.0.1:1", out=tmp_path)
    run = Run(options, named("amqp://127.0.0.1:1"), 7, Console(quiet=True))
    run._crew = crew
    start(crew, "consumers-1", AT_ONCE)
    crew.poll(WAIT_S)
    ballast = DiskFiller("amqp://127.0.0.1:1", crew.records, "ballast")
    run._strike_all(Injector(Network([]), None, crew, ballast, "", lambda seconds, until: None))
    assert run.result.complaints == ["The drill was to have 3 faults, and ended before the last 3 of them."]
