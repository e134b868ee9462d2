"""Three machines, each a broker and a server of the log, through faults at random, under load, and a check.

They are killed, stopped and wiped; killed between the steps of a commit; cut off from the log, in one direction or
both; their clocks are set up to a day apart; a disk is full; all are restarted one by one with another version of the
code.

python -m tests.stress.machine_chaos --minutes 10
python -m tests.stress.machine_chaos --minutes 1 --seed 7 --only kill-primary,wipe-machine --json result.json
python -m tests.stress.machine_chaos --log-bytes 300000

With `--log-bytes` the log keeps so little that whoever was away is seeded over the network by the broker that serves.

Producers send numbered messages and remember which were confirmed. At the end every one of these is received, once and
in the order of its producer, nothing that was refused is there, and the stores of all brokers have the same content.
Without `--log-bytes` two others have to say the same (`machine_accounts`): the stream on the servers of the log, read
without Legato, and Spark's audit of one of the stores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

from legato.client import ConnectionFactory, TextMessage
from legato.drill.relay import Network
from legato.errors import ResourceAllocationError
from legato.failpoints import VARIABLE, DrillOrders, ReplicaPoint
from legato.processes.log_servers import LogServer, LogServers
from legato.store.content_digest import ContentDigest, content_digest
from legato.store.environment import DATA_NAME
from legato.testing.log_servers import log_servers
from tests.stress.machine_accounts import audit, count_stream, faults_of_audit, faults_of_stream
from tests.support.server import Server

ROOT = Path(__file__).parents[2]
RECORDS = "src/legato/store/commit_records.py"
"""What speaks of records: the commit that changed it last is the oldest version that may run beside this one."""
MACHINES = 3
PRODUCERS = 2
CALM_S = 60.0
"""Within so long after a fault messages are confirmed again."""
QUEUE = "q"
GROUP = "chaos"
POINT_S = 10.0
"""So long a fault waits for a broker to come to its point."""
DAY_S = 86_400
FULL_PAUSE_S = 0.2
COMMITS_BEHIND = 50
"""By no more than this are brokers behind each other when one of them is wiped."""


class Machine:
    """A broker with its directory, and a server of the log with its.

    Args:
        name: of the machine.
        directory: in which its own is made.
        log_server: the one on it.
        servers: all servers of the log.
        other_version: the source directory of another version of the code, if there is one.
    """

    def __init__(
        self, name: str, directory: Path, log_server: LogServer, servers: LogServers, other_version: Path | None
    ) -> None:
        (home := directory / name).mkdir()
        self.name = name
        self.log_server = log_server
        self.orders = DrillOrders(home / "orders")
        self.way_to_log = Network([("127.0.0.1", server.ports.client) for server in servers.servers])
        self._other_version = other_version
        self._runs_other = False
        self.way_to_log.__enter__()
        url = ",".join(f"nats://127.0.0.1:{port}" for port in self.way_to_log.ports)
        replicate = ("--replicate", url, "--group", GROUP, "--config", str(_config(home, log_server)))
        self.broker = Server(home / "store", *replicate, environment={VARIABLE: str(home / "orders")})

    def seed_over_network(self, url: str, log_bytes: int) -> None:
        """Keep little of the log, and take a copy of the store from the broker that serves at a URL where that is not
        enough."""
        _config(self.broker.store.parent, self.log_server, f'log_bytes = {log_bytes}\nseed_from = "{url}"\n')

    @property
    def seedings(self) -> int:
        """How often its store became a copy of another's."""
        return self.broker.log.read_text().count("is a copy of amqp://")

    def close(self) -> None:
        """Leave it."""
        self.kill_broker()
        self.way_to_log.__exit__(None, None, None)

    def change_version(self) -> None:
        """Run the other version of the code from the next start on."""
        if self._other_version is not None:
            self._runs_other = not self._runs_other
        # A program by another name is started by an interpreter of its own, with what is on its path.
        self.broker.program = "legato.cli.__main__" if self._runs_other else "legato.cli"
        self.broker.environment["PYTHONPATH"] = str(self._other_version) if self._runs_other else str(ROOT / "src")

    def limit_disk(self, size_bytes: int | None) -> None:
        """Let the files of its broker not grow beyond a size; None: as they want."""
        if self.runs:
            with suppress(ProcessLookupError):
                hard = resource.prlimit(self.broker.pid, resource.RLIMIT_FSIZE)[1]
                soft = hard if size_bytes is None else size_bytes
                resource.prlimit(self.broker.pid, resource.RLIMIT_FSIZE, (soft, hard))

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


def _config(home: Path, log_server: LogServer, more: str = "") -> Path:
    file = home / "legato.toml"
    file.write_text(f'[replication]\nbeside = "{log_server.name}"\n{more}[ha]\nactivation_interval_s = 60\n')
    return file


class Producer:
    """Sends numbered messages until it is told to stop, and remembers which were confirmed."""

    def __init__(self, number: int, url: str) -> None:
        self.number = number
        self.confirmed: list[int] = []
        self.refused: list[int] = []
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
                    try:
                        producer.send(session.create_text_message(f"{self.number}:{number}"))
                    except ResourceAllocationError:  # a full disk
                        self.refused.append(number)
                        time.sleep(FULL_PAUSE_S)
                        continue
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
            **{f"kill-{point}": partial(self._kill_at, point) for point in ReplicaPoint},
            "clocks": self._set_clocks,
            "full-disk": self._fill_disk,
            "cut-from-log": lambda: self._cut(lambda way: way.freeze()),
            "deaf-to-log": lambda: self._cut(lambda way: way.freeze_one_way(range(MACHINES), towards_brokers=False)),
            "mute-to-log": lambda: self._cut(lambda way: way.freeze_one_way(range(MACHINES), towards_brokers=True)),
            "reset-log": lambda: self._cut(lambda way: way.cut()),
            "rolling-restart": self._roll,
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
        """A machine, once the others can do without it: a log that keeps little does not have what they lack."""
        level(self._machines, behind_max=COMMITS_BEHIND)
        machine = self._chance.choice([self._primary(), self._backup()])
        machine.kill()
        machine.wipe()

    def _kill_at(self, point: ReplicaPoint) -> None:
        """A broker, when it comes to a point of a commit."""
        machine = self._backup() if point is ReplicaPoint.DURING_REPLICA_APPLY else self._primary()
        machine.orders.arm(point)
        until_s = time.monotonic() + POINT_S
        while not machine.orders.reached and time.monotonic() < until_s:
            time.sleep(0.005)
        machine.kill_broker()
        machine.orders.disarm()

    def _set_clocks(self) -> None:
        """Up to a day apart, each way, until the next time."""
        for machine in self._machines:
            machine.orders.set_clock(self._chance.uniform(-DAY_S / 2, DAY_S / 2))
        time.sleep(self._chance.uniform(0.5, 3.0))

    def _fill_disk(self) -> None:
        machine = self._any()
        data = machine.broker.store / DATA_NAME
        if not data.exists():
            return
        machine.limit_disk(data.stat().st_size)
        time.sleep(self._chance.uniform(0.5, 5.0))
        machine.limit_disk(None)

    def _cut(self, how: Callable[[Network], None]) -> None:
        """A broker from the log, for a while."""
        machine = self._any()
        how(machine.way_to_log)
        time.sleep(self._chance.uniform(0.2, 4.0))
        machine.way_to_log.heal()

    def _roll(self) -> None:
        """Restart all brokers with the other version, the primary last; clients are served meanwhile."""
        for machine in sorted(self._machines, key=lambda machine: machine.leads):
            self._end(machine)
            machine.change_version()
            machine.broker.start()

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
        if false := sorted(set(each.refused) & set(there)):
            said.append(f"of producer {each.number} {len(false)} refused messages are there, such as {false[:5]}")
        if there != sorted(there):
            said.append(f"messages of producer {each.number} are out of order")
    return said


def level(machines: list[Machine], behind_max: int = 0) -> list[ContentDigest]:
    """The contents of all stores, once none is further behind another one, or after a while as they are."""
    deadline = time.monotonic() + CALM_S
    while True:
        start(machines)  # one that found nobody to be seeded by has ended
        contents = [content_digest(machine.broker.store) for machine in machines]
        commits = [content.commit for content in contents]
        if max(commits) - min(commits) <= behind_max or time.monotonic() > deadline:
            return contents
        time.sleep(0.2)


@contextmanager
def other_version(revision: str) -> Iterator[Path | None]:
    """The source directory of a revision; None if there is no such, as in a copy without history."""
    if not revision:
        found = _git("log", "-1", "--format=%H", "--", RECORDS)
        revision = found.stdout.strip() if found.returncode == 0 else ""
    with tempfile.TemporaryDirectory(prefix="machines-version-") as directory:
        tree = Path(directory) / "tree"
        if not revision or _git("worktree", "add", "--detach", str(tree), revision).returncode:
            print("no other version: rolling restarts are with this one", file=sys.stderr)
            yield None
            return
        try:
            yield tree / "src"
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)


def run(
    minutes: float, seed: int, only: list[str], revision: str = "", log_bytes: int | None = None
) -> dict[str, object]:
    """One run; its result.

    Args:
        log_bytes: what the log keeps, if that is to be so little that brokers are seeded. All are of this version then.
    """
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    problems: list[str] = []
    told: dict[str, object] = {}
    with (
        log_servers(MACHINES) as servers,
        tempfile.TemporaryDirectory(prefix="machines-") as directory,
        other_version(revision) if log_bytes is None else nullcontext() as other,
    ):
        machines = [
            Machine(f"m{n}", Path(directory), each, servers, other) for n, each in enumerate(servers.servers, 1)
        ]
        url = "amqp://" + ",".join(f"127.0.0.1:{machine.broker.port}" for machine in machines)
        if log_bytes is not None:
            for machine in machines:
                machine.seed_over_network(url, log_bytes)
        start(machines)
        producers = [Producer(number, url) for number in range(1, PRODUCERS + 1)]
        nemesis = Nemesis(machines, chance)
        try:
            until_s = time.monotonic() + minutes * 60
            while time.monotonic() < until_s and not problems:
                name = chance.choice(only or sorted(nemesis.faults))
                print(f"{until_s - time.monotonic():6.0f} s left, {name}", file=sys.stderr, flush=True)
                nemesis.faults[name]()
                time.sleep(chance.uniform(0.0, 3.0))
                start(machines)
                done[name] += 1
                problems += _stalled(producers, name)
            for producer in producers:
                producer.end()
            found = received(url)
            problems += faults_of(producers, found)
            contents = level(machines)
            if len(set(contents)) > 1:
                problems.append(f"the stores differ: {contents}")
            if log_bytes is None:
                stream = count_stream(servers.url, GROUP)
                confirmed = ((each.number, number) for each in producers for number in each.confirmed)
                refused = ((each.number, number) for each in producers for number in each.refused)
                problems += faults_of_stream(stream, confirmed, refused)
                told["stream"] = {"records": stream.records, "voided": stream.voided, "messages": len(stream.stored)}
                for machine in machines:
                    machine.kill_broker()
                audited = audit(chance.choice(machines).broker.store)
                problems += faults_of_audit(audited, QUEUE, len(found))
                told["audit"] = {"facts": audited["facts"], "takeovers": len(audited["takeovers"])}
            seeded = sum(machine.seedings for machine in machines)
            if log_bytes is not None and "wipe-machine" in done and not seeded:
                problems.append("no broker was seeded: the log kept all that it had to")
        finally:
            if problems:
                for machine in machines:
                    shutil.copy(machine.broker.log, Path(tempfile.gettempdir()) / f"machine-chaos-{machine.name}.log")
            for machine in machines:
                machine.close()
    return {
        "seed": seed,
        "other_version": other is not None,
        "faults": dict(done),
        "confirmed": sum(len(producer.confirmed) for producer in producers),
        "refused": sum(len(producer.refused) for producer in producers),
        "seeded": seeded,
        **told,
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
    parser.add_argument("--other-version", default="", help="a revision for rolling restarts; the oldest that may be")
    parser.add_argument("--log-bytes", type=int, help="what the log keeps, so that brokers are seeded over the network")
    parser.add_argument("--json", type=Path, default=None, help="file for the result")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if given.seed is None else given.seed
    result = run(
        given.minutes, seed, [name for name in given.only.split(",") if name], given.other_version, given.log_bytes
    )
    text = json.dumps(result, indent=1)
    print(text)
    if given.json is not None:
        given.json.write_text(text + "\n")
    sys.exit(1 if result["problems"] else 0)


if __name__ == "__main__":
    main()
