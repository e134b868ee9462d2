"""What holds for all tests: none of Hypothesis' examples is judged by how long it took on a busy machine, Spark is
started once, and what takes long comes first, so that all workers end at the same time. Tests with the marker `slow`
run in `make test-full` only, or when they are named."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from legato.processes import scratch
from legato.testing.log_servers import log_servers
from tests.support.broker import LOG_SERVERS
from tests.support.examples import QUICK
from tests.support.forked_process import quick_starts

settings.load_profile(QUICK)


def _have_ports_of_its_own() -> None:
    """No worker is given a port at which a broker of another one is to listen later, as a backup does."""
    worker, count = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get("PYTEST_XDIST_WORKER_COUNT")
    if worker and count:
        scratch._LISTENING = scratch._LISTENING[int(worker.removeprefix("gw")) % int(count) :: int(count)]


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest first; the first test with Spark may have to wait long for Spark on a busy machine."""
    if settings.get_current_profile_name() == QUICK and config.args == config.getini("testpaths"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]
    items.sort(key=lambda item: next(n for n, where in enumerate(_LONGEST_FIRST) if item.nodeid.startswith(where)))
    for item in items:
        if item.nodeid.startswith(_SPARK) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SPARK_TIMEOUT_S))
