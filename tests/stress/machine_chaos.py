"""Three machines, each a broker and a server of the log: killed, stopped and wiped at random, under load, and a check.

python -m tests.stress.machine_chaos --minutes 10
python -m tests.stress.machine_chaos --minutes 1 --seed 7 --only kill-primary,wipe-machine --json result.json

Producers send numbered messages and remember which were confirmed. At the end every one of these is received, once and
in the order of its producer, and the stores of all brokers have the same content.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from legato.client import ConnectionFactory, TextMessage
from legato.processes.log_servers import LogServer, LogServers
from legato.store.content_digest import ContentDigest, content_digest
from legato.testing.log_servers import log_servers
from tests.support.server import Server

MACHINES = 3
PRODUCERS = 2
CALM_S = 60.0
"""Within so long after a fault messages are confirmed again."""
QUEUE = "q"


class Machine:
    """A broker with its directory, and a server of the log with its."""

    def __init__(self, name: str, directory: Path, log_server: LogServer, servers: LogServers) -> None:
        (home := directory / name).mkdir()
        self.name = name
        self.log_server = log_server
        replicate = ("--replicate", servers.url, "--group", "chaos")
        self.broker = Server(home / "store", *replicate, "--config", str(_config(home, log_server)))

    def kill(self) -> None:
        """All that runs on it."""
        self.log_server.kill()
        self.kill_broker()

    def kill_broker(self) -> None:
        """The broker, if it runs."""
        if self.runs:
            self.broker.kill()

    @property
    def runs(self) -> bool:
        """Whether its broker does."""
        process = self.broker._process
        return process is not None and process.poll() is None

    @property
    def leads(self) -> bool:
        """Whether its broker said last that it is the primary."""
        return self.runs and self.broker.role.startswith("active")

    def wipe(self) -> None:
        """Lose its disks."""
        shutil.rmtree(self.broker.store, ignore_errors=True)
        self.log_server.wipe()


def start(machines: list[Machine]) -> None:
    """All that does not run: first the servers of the log, which need each other."""
    for machine in machines:
        if not machine.log_server.running:
            machine.log_server.start()
    for machine in machines:
        machine.log_server.wait_until_healthy()
    for machine in machines:
        if not machine.runs:
            machine.broker.start()


def _config(home: Path, log_server: LogServer) -> Path:
    file = home / "legato.toml"
    file.write_text(f'[replication]\nbeside = "{log_server.name}"\n[ha]\nactivation_interval_s = 60\n')
    return file


class Producer:
    """Sends numbered messages until it is told to stop, and remembers which were confirmed."""

    def __init__(self, number: int, url: str) -> None:
        self.number = number
        self.confirmed: list[int] = []
        self.failure: BaseException | None = None
        self.longest_s = 0.0
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with ConnectionFactory(self._url).create_connection() as connection:
                session = connection.create_session()
                producer = session.create_producer(session.create_queue(QUEUE))
                for number in itertools.count(1):
                    if self._stop.is_set():
                        return
                    began_s = time.monotonic()
                    producer.send(session.create_text_message(f"{self.number}:{number}"))
                    self.longest_s = max(self.longest_s, time.monotonic() - began_s)
                    self.confirmed.append(number)
        except BaseException as error:
            self.failure = error

    def end(self) -> None:
        """Stop it."""
        self._stop.set()
        self._thread.join(CALM_S)


class Nemesis:
    """Faults, one at a time; each ends with all machines running."""

    def __init__(self, machines: list[Machine], chance: random.Random) -> None:
        self._machines = machines
        self._chance = chance
        self.faults: dict[str, Callable[[], None]] = {
            "kill-primary": lambda: self._primary().kill_broker(),
            "kill-backup": lambda: self._backup().kill_broker(),
            "kill-brokers": self._kill_brokers,
            "end-primary": lambda: self._end(self._primary()),
            "freeze-primary": lambda: self._freeze(self._primary()),
            "freeze-backup": lambda: self._freeze(self._backup()),
            "kill-machine": lambda: self._primary().kill(),
            "wipe-machine": self._wipe,
            "kill-log-server": lambda: self._any().log_server.kill(),
            "freeze-quorum": self._freeze_quorum,
            "kill-all": self._kill_all,
        }

    def _any(self) -> Machine:
        return self._chance.choice(self._machines)

    def _primary(self) -> Machine:
        return next((machine for machine in self._machines if machine.leads), self._machines[0])

    def _backup(self) -> Machine:
        return self._chance.choice([machine for machine in self._machines if not machine.leads])

    def _kill_brokers(self) -> None:
        for machine in self._machines:
            machine.kill_broker()

    def _kill_all(self) -> None:
        for machine in self._machines:
            machine.kill()

    def _end(self, machine: Machine) -> None:
        if machine.runs:
            machine.broker.signal(signal.SIGTERM)
            machine.broker.wait()

    def _freeze(self, machine: Machine) -> None:
        if machine.runs:
            machine.broker.signal(signal.SIGSTOP)
            time.sleep(self._chance.uniform(0.1, 4.0))
            machine.broker.signal(signal.SIGCONT)

    def _wipe(self) -> None:
        machine = self._chance.choice([self._primary(), self._backup()])
        machine.kill()
        machine.wipe()

    def _freeze_quorum(self) -> None:
        frozen = self._chance.sample(self._machines, 2)
        for machine in frozen:
            machine.log_server.freeze()
        time.sleep(self._chance.uniform(0.2, 4.0))
        for machine in frozen:
            machine.log_server.thaw()


def received(url: str) -> list[tuple[int, int]]:
    """All that waits in the queue: producers and numbers."""
    found: list[tuple[int, int]] = []
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        consumer = session.create_consumer(session.create_queue(QUEUE))
        connection.start()
        while (message := consumer.receive(5.0)) is not None:
            assert isinstance(message, TextMessage)
            producer, number = (message.text or "").split(":")
            found.append((int(producer), int(number)))
    return found


def faults_of(producers: list[Producer], found: list[tuple[int, int]]) -> list[str]:
    """Sentences about what is lost, there twice, or out of order."""
    said = [f"producer {each.number} failed: {each.failure}" for each in producers if each.failure is not None]
    numbers: dict[int, list[int]] = defaultdict(list)
    for producer, number in found:
        numbers[producer].append(number)
    for each in producers:
        there = numbers[each.number]
        if lost := sorted(set(each.confirmed) - set(there)):
            said.append(f"of producer {each.number} {len(lost)} confirmed messages are lost, such as {lost[:5]}")
        if twice := [number for number, count in Counter(there).items() if count > 1]:
            said.append(f"of producer {each.number} {len(twice)} messages are there twice, such as {twice[:5]}")
        if there != sorted(there):
            said.append(f"messages of producer {each.number} are out of order")
    return said


def level(machines: list[Machine]) -> list[ContentDigest]:
    """The contents of all stores, once they are at the same commit, or after a while as they are."""
    deadline = time.monotonic() + CALM_S
    while True:
        contents = [content_digest(machine.broker.store) for machine in machines]
        if len({content.commit for content in contents}) == 1 or time.monotonic() > deadline:
            return contents
        time.sleep(0.2)


def run(minutes: float, seed: int, only: list[str]) -> dict[str, object]:
    """One run; its result."""
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    problems: list[str] = []
    with log_servers(MACHINES) as servers, tempfile.TemporaryDirectory(prefix="machines-") as directory:
        machines = [Machine(f"m{n}", Path(directory), each, servers) for n, each in enumerate(servers.servers, 1)]
        start(machines)
        url = "amqp://" + ",".join(f"127.0.0.1:{machine.broker.port}" for machine in machines)
        producers = [Producer(number, url) for number in range(1, PRODUCERS + 1)]
        nemesis = Nemesis(machines, chance)
        try:
            until_s = time.monotonic() + minutes * 60
            while time.monotonic() < until_s and not problems:
                name = chance.choice(only or sorted(nemesis.faults))
                nemesis.faults[name]()
                time.sleep(chance.uniform(0.0, 3.0))
                start(machines)
                done[name] += 1
                problems += _stalled(producers, name)
            for producer in producers:
                producer.end()
            problems += faults_of(producers, received(url))
            contents = level(machines)
            if len(set(contents)) > 1:
                problems.append(f"the stores differ: {contents}")
        finally:
            if problems:
                for machine in machines:
                    shutil.copy(machine.broker.log, Path(tempfile.gettempdir()) / f"machine-chaos-{machine.name}.log")
            for machine in machines:
                machine.kill_broker()
    return {
        "seed": seed,
        "faults": dict(done),
        "confirmed": sum(len(producer.confirmed) for producer in producers),
        "longest_pause_s": round(max(producer.longest_s for producer in producers), 2),
        "problems": problems,
    }


def _stalled(producers: list[Producer], after: str) -> list[str]:
    """Wait until each producer goes on."""
    deadline = time.monotonic() + CALM_S
    for producer in producers:
        before = len(producer.confirmed)
        while len(producer.confirmed) <= before and producer.failure is None:
            if time.monotonic() > deadline:
                return [f"nothing is confirmed {CALM_S:g} s after {after}"]
            time.sleep(0.05)
    return []


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="drawn if it is not given")
    parser.add_argument("--only", default="", help="faults, with commas")
    parser.add_argument("--json", type=Path, default=None, help="file for the result")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if given.seed is None else given.seed
    result = run(given.minutes, seed, [name for name in given.only.split(",") if name])
    text = json.dumps(result, indent=1)
    print(text)
    if given.json is not None:
        given.json.write_text(text + "\n")
    sys.exit(1 if result["problems"] else 0)


if __name__ == "__main__":
    main()
