"""Celery's own worker and clients on Legato, unchanged: results, ETA, retries, broadcasts, remote control, deaths."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from legato.testing import LocalBroker, broker, broker_pair
from tests.support import celery_quorum as quorum
from tests.support import celery_tasks as tasks

ROOT = Path(__file__).parents[3]
WAIT_S = 60.0
START_S = 240.0
"""A worker loads Celery, and forks."""
LOOK_S = 0.02


@pytest.fixture(scope="module")
def running() -> Iterator[LocalBroker]:
    with broker() as started:
        tasks.app.conf["broker_url"] = started.url.replace("amqp://", "legato://")
        yield started
        tasks.app.close()


@contextmanager
def worker(url: str, log: Path, *options: str, app: str = "celery_tasks") -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "BROKER_URL": url.replace("amqp://", "legato://"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "celery", "-A", f"tests.support.{app}", "worker", "--loglevel", "INFO"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *options], env=environment, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent
        )
    try:
        until(lambda: "ready." in log.read_text() or process.poll() is not None, START_S)
        assert process.poll() is None, log.read_text()
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def until(reached: Callable[[], object], wait_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + wait_s
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(LOOK_S)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worker") / "worker.log"


@pytest.fixture(scope="module")
def working(running: LocalBroker, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with worker(running.url, log, "--concurrency", "2") as process:
        yield process


def test_tasks_run_and_their_results_come_back(working: object) -> None:
    assert sorted(tasks.add.delay(number, 1).get(timeout=WAIT_S) for number in range(10)) == list(range(1, 11))


def test_a_task_with_a_countdown_runs_then_and_not_before(working: object) -> None:
    begun = time.time()
    ran_at, redelivered = tasks.when.apply_async(countdown=0.5).get(timeout=WAIT_S)
    assert ran_at >= begun + 0.5
    assert redelivered is False


def test_a_task_that_retries_runs_again(working: object) -> None:
    assert tasks.flaky.delay(3).get(timeout=WAIT_S) == 3


def test_a_task_calls_tasks_from_its_own_process(running: LocalBroker, working: object) -> None:
    assert tasks.spawn.delay(5).get(timeout=WAIT_S) == 5
    running.wait_until_empty("celery")


def test_a_task_whose_process_is_killed_comes_again(working: object, tmp_path: Path) -> None:
    assert tasks.die_once.delay(str(tmp_path / "died")).get(timeout=WAIT_S) == "survived"


def test_remote_control_reaches_the_worker_and_its_answer_comes_back(working: object) -> None:
    control = tasks.app.control
    [answer] = control.ping(timeout=WAIT_S, limit=1) or []
    [host] = answer
    inspect = control.inspect(destination=[host], timeout=WAIT_S)
    assert host in (inspect.stats() or {})
    assert {queue["name"] for queue in (inspect.active_queues() or {})[host]} >= {"celery"}
    added: Any = control.broadcast(
        "add_consumer", arguments={"queue": "added"}, reply=True, destination=[host], timeout=WAIT_S, limit=1
    )
    assert "ok" in added[0][host]
    assert tasks.add.apply_async((1, 1), queue="added").get(timeout=WAIT_S) == 2


def test_the_command_line_purges_and_lists_bindings(running: LocalBroker, working: object) -> None:
    environment = {**os.environ, "BROKER_URL": tasks.app.conf.broker_url, "PYTHONPATH": str(ROOT)}
    for _ in range(3):
        tasks.add.apply_async((1, 1), queue="idle")
    celery = [sys.executable, "-m", "celery", "-A", "tests.support.celery_tasks"]
    purge = [*celery, "purge", "--force", "--queues", "idle"]
    purged = subprocess.run(purge, env=environment, capture_output=True, text=True, check=False)
    assert "Purged 3 messages" in purged.stdout, purged.stdout + purged.stderr
    assert running.waiting("idle") == 0
    bindings = subprocess.run(
        [*celery, "list", "bindings"], env=environment, capture_output=True, text=True, check=False
    )
    assert ["celery", "celery", "celery"] in [line.split() for line in bindings.stdout.splitlines()], bindings.stderr


@pytest.mark.slow
def test_a_broadcast_task_runs_in_every_worker(running: LocalBroker, working: object, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with worker(running.url, tmp_path / "other.log", "-n", "other@%h", "--pool", "threads"):
        tasks.note.apply_async((str(notes), "here"), queue="all", ignore_result=True)
        until(lambda: notes.exists() and notes.read_text() == "here\nhere\n")
    assert "mingle: sync with 1 nodes" in (tmp_path / "other.log").read_text()


@pytest.mark.slow
def test_the_tasks_of_a_killed_worker_go_to_another(tmp_path: Path) -> None:
    """Once the broker has waited for its return (`reconnect_timeout_s`); there is no visibility time-out."""
    gate, notes = tmp_path / "gate", tmp_path / "notes"
    options = ("--pool", "solo", "--queues", "gated", "--without-mingle", "--without-gossip")
    environment = {"LEGATO_SERVER_RECONNECT_TIMEOUT_S": "0.5"}
    with broker_pair(tmp_path / "pair", environment=environment) as pair:
        url = pair.url.replace("amqp://", "legato://")
        with worker(pair.url, tmp_path / "first.log", *options, "-n", "first@%h") as first:
            with tasks.app.connection_for_write(url) as connection, connection.Producer() as producer:
                for _ in range(2):
                    tasks.wait_for.apply_async((str(gate), str(notes)), queue="gated", producer=producer)
            until(lambda: "received" in (tmp_path / "first.log").read_text())
            first.kill()
            first.wait()
        gate.touch()
        with worker(pair.url, tmp_path / "second.log", *options, "-n", "second@%h"):
            until(lambda: notes.exists() and notes.read_text() == "done\ndone\n")


def test_an_application_that_was_written_for_quorum_queues_runs_as_it_is(tmp_path: Path) -> None:
    """Celery has RabbitMQ delay the tasks of such queues by exchanges that Legato has not."""
    with broker_pair(tmp_path / "pair") as pair:
        url = pair.url.replace("amqp://", "legato://")
        quorum.app.conf["broker_url"] = url
        with worker(pair.url, tmp_path / "worker.log", "--pool", "solo", app="celery_quorum"):
            assert quorum.when.delay().get(timeout=WAIT_S) > 0
            begun = time.time()
            assert quorum.when.apply_async(countdown=1.5).get(timeout=WAIT_S) >= begun + 1.5
        quorum.app.close()


def test_an_unknown_task_is_a_dead_letter(running: LocalBroker, working: object) -> None:
    """It is not lost, as it would be elsewhere: it can be reissued to a worker that knows it."""
    tasks.app.send_task("tests.nobody_knows", ignore_result=True)
    until(lambda: running.dead_letters("celery"))
    [letter] = running.dead_letters("celery")
    assert letter.type == "tests.nobody_knows"
