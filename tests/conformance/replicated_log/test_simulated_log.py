"""The log of the simulator does what a replicated log must: in virtual time, each test in a thread of the kernel."""

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest
from simulator.replicas.cables import Cables
from simulator.replicas.log_servers import SERVERS, LogServers
from simulator.replicas.log_trouble import LogTrouble
from simulator.replicas.patches import threads_installed
from simulator.replicas.threads import (
    BrokerProcess,
    Condition,
    Event,
    Lock,
    Thread,
    ThreadClock,
    ThreadedKernel,
    wait_here,
)

from legato.replication.log import ReplicatedLog
from tests.conformance.replicated_log import log as suite
from tests.conformance.replicated_log.log import LogTests, read_all
from tests.support import log_history
from tests.support.log_history import Workers, check

STEPS_MAX = 200_000


class Barrier:
    """See `threading.Barrier`."""

    def __init__(self, parties: int) -> None:
        self._missing = parties
        self._changed = Condition()

    def wait(self) -> None:
        """Wait for the others."""
        with self._changed:
            self._missing -= 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._missing <= 0)


@pytest.fixture(params=range(3), ids=lambda seed: f"seed {seed}")
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedKernel]:
    kernel = ThreadedKernel(request.param)
    monkeypatch.setattr(suite, "time", ThreadClock())
    monkeypatch.setattr(suite, "elapsed_s", ThreadClock().monotonic)
    monkeypatch.setattr(suite, "threading", SimpleNamespace(Thread=Thread, Barrier=Barrier))
    monkeypatch.setattr(log_history, "time", ThreadClock())
    monkeypatch.setattr(log_history, "threading", SimpleNamespace(Thread=Thread, Event=Event, Lock=Lock))
    with threads_installed(kernel):
        yield kernel


@pytest.fixture
def servers(kernel: ThreadedKernel) -> LogServers:
    return LogServers(kernel, Cables(kernel))


@pytest.fixture
def new_log(servers: LogServers) -> Callable[[], ReplicatedLog]:
    return lambda: servers.log("orders", "machine", "log-b")


def in_a_thread(kernel: ThreadedKernel, call: Callable[[], None]) -> None:
    """Run the kernel until a thread that does this ends."""
    process = BrokerProcess("test")
    thread = Thread(target=call)
    kernel.run_as(process, thread.start)
    while thread.is_alive():
        assert kernel.steps < STEPS_MAX
        kernel.step()
    process.alive = False
    process.end_threads()


def in_virtual_time(test: Callable[..., None]) -> Callable[..., None]:
    """A test of the suite, to be run by the kernel."""

    @wraps(test)
    def run(self: object, kernel: ThreadedKernel, **fixtures: Any) -> None:
        in_a_thread(kernel, lambda: test(self, **fixtures))

    own, *others = inspect.signature(test).parameters.values()
    added = inspect.Parameter("kernel", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(run)["__signature__"] = inspect.Signature([own, added, *others])
    return run


def all_in_virtual_time(tests: type[LogTests]) -> type[LogTests]:
    for name, test in inspect.getmembers(tests, inspect.isfunction):
        if name.startswith("test_"):
            setattr(tests, name, in_virtual_time(test))
    return tests


@all_in_virtual_time
class TestSimulatedLog(LogTests):
    pass


@pytest.mark.parametrize("trouble_us", [500_000, 1_500_000, 4_000_000])
def test_claimants_and_followers_agree_whatever_happens(kernel: ThreadedKernel, trouble_us: int) -> None:
    """What `make log-chaos` does with real servers."""
    servers = LogServers(kernel, Cables(kernel), message_bytes_max=100_000)
    nodes = [f"machine {number}" for number in range(6)]
    homes = iter([*nodes, *nodes])
    trouble = LogTrouble(servers, nodes)
    workers = Workers(
        lambda: servers.log("orders", next(homes), kernel.random.choice(SERVERS)), kernel.random.getrandbits(32)
    )

    def run() -> None:
        workers.start(claimants=3, followers=2)
        for _ in range(60_000_000 // trouble_us):
            wait_here(kernel.between_us(0, 2 * trouble_us) / 1_000_000)
            trouble.make()
        trouble.end()
        history = workers.stop()
        records = read_all(servers.log("orders", nodes[0], SERVERS[0]))
        assert check(history, records) == []
        assert len(records) > 10
        assert len(servers.entries) >= len(records)

    in_a_thread(kernel, run)
