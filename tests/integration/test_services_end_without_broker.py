"""Services that are told to stop while no broker answers: they end soon, and say what was not confirmed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.server import Server, server

WAIT_S = 240.0
ROOT = Path(__file__).parents[2]
READY = {"flows": "works on Work", "faststream": "waiting for messages", "celery": "ready."}
SAID = {
    "flows": "stops after 0.3 s without having finished in Work 1, Work 2. No broker answered.",
    "faststream": "work: 1 messages were not done, or not confirmed, within the 0.3 s of graceful_timeout",
    "celery": "No broker confirmed 1 acknowledgements of celery: they may be delivered again.",
}
WAITS_LONG = "Waiting for a broker for 30 s"
"""What a client says that waits for so long: nobody who is to end does."""


class Running:
    """A service in a process of its own, whose broker can be killed."""

    def __init__(self, service: str, directory: Path, broker: Server) -> None:
        self.service = service
        self.log = directory / "log"
        self.file = directory / "go on"
        self.broker = broker
        # A broker that is away is waited for so long in `close()`, by whoever closes what is not confirmed.
        url = f"amqp://127.0.0.1:{broker.port}?close_timeout_s=0.3"
        self.command = [sys.executable, "-m", "tests.support.ending_services", service, url, str(self.file)]
        self.process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def working(self) -> Iterator[subprocess.Popen[bytes]]:
        """Until it ends, which is up to the test."""
        with self.log.open("wb") as log:
            process = self.process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT)
        try:
            self.wait_for(READY[self.service])
            yield process
        finally:
            process.kill()
            process.wait()

    def give(self) -> None:
        """Give it something to do, and wait until it does it."""
        subprocess.run([*self.command, "give"], check=True, cwd=ROOT, timeout=WAIT_S)
        for item in ("tea", "milk") if self.service == "flows" else ("tea",):
            self.wait_for(f"has {item}")

    def lose_the_broker(self) -> None:
        """Kill it, and wait until that is noticed."""
        self.broker.kill()
        self.wait_for("Lost the connection")

    def wait_for(self, words: str) -> None:
        """Wait until it has said something."""
        deadline = time.monotonic() + WAIT_S
        while words not in self.log.read_text():
            assert self.process is None or self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)


@pytest.fixture(params=["flows", "faststream", "celery"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    with server(tmp_path / "store") as broker:
        yield Running(request.param, tmp_path, broker)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, id="sigterm"),
        pytest.param(signal.SIGINT, id="ctrl-c", marks=pytest.mark.slow),
    ],
)
def test_a_service_that_does_nothing_ends(running: Running, number: signal.Signals) -> None:
    with running.working() as process:
        running.lose_the_broker()
        process.send_signal(number)
        assert process.wait(WAIT_S) == 0, running.log.read_text()
    assert WAITS_LONG not in running.log.read_text()
    assert "Traceback" not in running.log.read_text()


def test_a_service_with_work_that_no_broker_confirms_ends_and_says_so(running: Running) -> None:
    with running.working() as process:
        running.give()
        running.lose_the_broker()
        running.file.touch()
        running.wait_for("is done with tea")
        if running.service == "celery":
            running.wait_for("succeeded in")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0, running.log.read_text()
    assert SAID[running.service] in running.log.read_text()
    assert WAITS_LONG not in running.log.read_text()
