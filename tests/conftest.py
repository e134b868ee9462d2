"""What holds for all tests: none of Hypothesis' examples is judged by how long it took on a busy machine, Spark is
started once, and what takes long comes first, so that all workers end at the same time. Tests with the marker `slow`
run in `make test-full` only, or when they are named, and so does the second twin of a story that kills brokers."""

import compileall
import contextlib
import gc
import importlib
import os
import sys
import zlib
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from legato.processes import scratch
from legato.testing.log_servers import log_servers
from tests.support.broker import LOG_SERVERS
from tests.support.built_commands import build_commands_once
from tests.support.clients import TWINS
from tests.support.examples import QUICK
from tests.support.forked_process import quick_starts

settings.load_profile(QUICK)
build_commands_once()


def _have_ports_of_its_own() -> None:
    """No worker is given a port at which a broker of another one is to listen later, as a backup does."""
    worker, count = _worker_of_count()
    scratch._LISTENING = scratch._LISTENING[worker::count]


def _worker_of_count() -> tuple[int, int]:
    """Which worker this is, from 0 on, and of how many; without workers, the only one."""
    worker, count = os.environ.get("PYTEST_XDIST_WORKER"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return (int(worker.removeprefix("gw")) % count, count) if worker else (0, 1)


_have_ports_of_its_own()

_SPARK = "tests/spark/"
_LONGEST_FIRST = (
    _SPARK,
    "tests/integration/client/",
    "tests/integration/h",
    "tests/integration/s",
    "tests/integration/flows/",
    "tests/stories/",
    # Not beside Spark's start: their faults and time limits are for a machine that has a processor left.
    "tests/integration/",
    "tests/simulation/",
    "tests/unit/store/",
    "tests/unit/spark/",
    "tests/",
)
_BESIDE_SPARK = _LONGEST_FIRST[:3]
"""Spark computes enough while these run."""
_WAITING = ("tests/integration/", "tests/stories/")
"""Tests that wait for other processes half of the time; all others compute."""
_SPARK_TIMEOUT_S = 600


WORKERS_PER_PROCESSOR = 2
"""Tests wait for other processes half of the time."""


class OneSpark(LoadFileScheduling):  # type: ignore[misc]
    """A file's tests stay together, and all that need Spark are one worker's."""

    def _split_scope(self, nodeid: str) -> str:
        return _SPARK if nodeid.startswith(_SPARK) else str(super()._split_scope(nodeid))


@pytest.fixture(scope="session", autouse=True)
def _quick_starts() -> Iterator[None]:
    """Each broker is forked from a process that has loaded its modules, which saves most of what its start costs."""
    with quick_starts():
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--replicated", action="store_true", help="pairs of brokers have a replicated log and two stores")


@pytest.fixture(scope="session", autouse=True)
def _log_servers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Servers of a log for `--replicated`, of each worker."""
    if not request.config.getoption("--replicated"):
        yield
        return
    with log_servers() as servers, pytest.MonkeyPatch.context() as patching:
        patching.setenv(LOG_SERVERS, servers.url)
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """The number of workers for `-n auto`; xdist looks at its variable itself."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return WORKERS_PER_PROCESSOR * len(os.sched_getaffinity(0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSpark:
    """How tests are shared out to several workers: in our order, not by how many tests a file has."""
    config.option.loadscopereorder = False
    return OneSpark(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What is collected stays: nobody looks for garbage in it, now or while the tests run."""
    gc.disable()
    try:
        _compile_in_turn(session)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _compile_in_turn(session: pytest.Session) -> None:
    """Each worker compiles modules of its own first, and leaves them to the other workers, of which each needs all.

    In a fresh clone all would compile the same at the same time otherwise.
    """
    worker, count = _worker_of_count()
    if count == 1 or not _names_no_tests(session.config):
        return
    root = session.config.rootpath
    if not sys.dont_write_bytecode:
        for file in sorted((root / "src").rglob("*.py"))[worker::count]:
            compileall.compile_file(file, quiet=2)
    # pytest compiles tests in its own way, as they are imported.
    for file in sorted((root / "tests").rglob("test_*.py"))[worker::count]:
        # What cannot be imported, or is to be skipped, says so when it is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


def _names_no_tests(config: pytest.Config) -> bool:
    return bool(config.args == config.getini("testpaths"))


def _is_told_by_the_other_twin(item: pytest.Item) -> bool:
    """Whether a story has a pair of brokers to kill, and this is the twin that does not tell it in `make test`.

    A pair is not started for nothing, and both twins take the same steps (`tools/make_faces.py`). So one of them tells
    such a story, the other one the next; all else is told by both.
    """
    call = getattr(item, "callspec", None)
    if call is None or call.params.get("factory") not in TWINS or "pair" not in getattr(item, "fixturenames", ()):
        return False
    twin = call.params["factory"]
    story = item.nodeid.replace(twin, "")
    return bool(TWINS[zlib.crc32(story.encode()) % len(TWINS)] != twin)


def _mixed(items: list[pytest.Item]) -> list[pytest.Item]:
    """Files that compute, spread evenly among those that wait: so the processors always have something to do."""
    files = [list(tests) for _, tests in groupby(items, lambda item: item.path)]
    beside_spark = [file for file in files if file[0].nodeid.startswith(_BESIDE_SPARK)]
    rest = [file for file in files if not file[0].nodeid.startswith(_BESIDE_SPARK)]
    waiting = [file for file in rest if file[0].nodeid.startswith(_WAITING)]
    computing = [file for file in rest if not file[0].nodeid.startswith(_WAITING)]
    places = [(number / len(some), file) for some in (waiting, computing) for number, file in enumerate(some)]
    mixed = [file for _, file in sorted(places, key=lambda place: place[0])]
    return [item for file in beside_spark + mixed for item in file]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest first; the first test with Spark may have to wait long for Spark on a busy machine."""
    if settings.get_current_profile_name() == QUICK and _names_no_tests(config):
        slow = [item for item in items if item.get_closest_marker("slow") or _is_told_by_the_other_twin(item)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]
    items.sort(key=lambda item: next(n for n, where in enumerate(_LONGEST_FIRST) if item.nodeid.startswith(where)))
    items[:] = _mixed(items)
    for item in items:
        if item.nodeid.startswith(_SPARK) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SPARK_TIMEOUT_S))
