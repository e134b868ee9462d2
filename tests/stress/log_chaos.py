"""A replicated log on three real servers that are killed, stopped, cut off, wiped and damaged, and a check of it all.

python -m tests.stress.log_chaos --minutes 10
python -m tests.stress.log_chaos --minutes 1 --seed 7 --only kill-leader,freeze-leader --json result.json

Claimants contend for the log and append; followers take what comes. At the end each server leads once, and what it has
is compared with what everybody was told: nothing acknowledged is missing, nothing refused is there, nothing is there
twice, each epoch has one owner, and each follower took the log.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from legato.errors import LogDamagedError, LogUnavailableError
from legato.processes.child import ProcessError
from legato.processes.log_servers import LogServer, LogServers
from legato.replication.log import BEGINNING, Record, ReplicatedLog
from legato.replication.nats import NatsSettings, open_log
from legato.testing.log_network import LogNetwork
from legato.testing.log_servers import log_servers
from tests.support.log_history import CALL_S, Workers, check, decode

GROUP = "chaos"
CLAIMANTS, FOLLOWERS = 3, 2
POLL_S = 0.1


class Nemesis:
    """Faults of servers, one at a time; each ends with all servers healthy again.

    Args:
        servers: which it harms.
        network: between them, and between brokers and them.
        log: by which it sees who leads.
        chance: decides whom and how long.
    """

    def __init__(self, servers: LogServers, network: LogNetwork, log: ReplicatedLog, chance: random.Random) -> None:
        self._servers = servers
        self._network = network
        self._log = log
        self._chance = chance
        self.damage_told = 0
        self.not_recovered = 0
        self.faults: dict[str, Callable[[], None]] = {
            "kill-leader": lambda: self._kill([self._leader()]),
            "kill-follower": lambda: self._kill([self._follower()]),
            "kill-two": lambda: self._kill(self._chance.sample(self._servers.servers, 2)),
            "kill-all": lambda: self._kill(self._servers.servers),
            "stop-leader": lambda: self._terminate(self._leader()),
            "freeze-leader": lambda: self._freeze([self._leader()]),
            "freeze-follower": lambda: self._freeze([self._follower()]),
            "freeze-all": lambda: self._freeze(self._servers.servers),
            "move-leader": self._move,
            "silence-leader": lambda: self._cut(lambda: self._network.silence(*self._from_others(self._leader()))),
            "separate-leader": lambda: self._cut(lambda: self._network.separate(*self._from_others(self._leader()))),
            "separate-follower": lambda: self._cut(
                lambda: self._network.separate(*self._from_others(self._follower()))
            ),
            "lose-answers": lambda: self._cut(self._network.silence_to_clients),
            "cut-all": lambda: self._cut(self._network.cut),
            "wipe": self._wipe,
            "damage": self._damage,
        }

    def strike(self, name: str) -> None:
        """Do one fault, and wait until all servers are healthy and have all records."""
        self.faults[name]()
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        """Wait until each server has what the leader has."""
        for server in self._servers.servers:
            server.wait_until_healthy()
        until_s = time.monotonic() + CALL_S
        while time.monotonic() < until_s:
            health = self._log.health(CALL_S)
            if len(health.replicas) == len(self._servers.servers) and all(
                each.current and not each.lag for each in health.replicas
            ):
                return
            time.sleep(POLL_S)
        raise LogUnavailableError(f"the servers do not catch up: {self._log.health(CALL_S)}")

    def lead(self, server: LogServer) -> None:
        """Let a server lead."""
        until_s = time.monotonic() + CALL_S
        while (leader := self._log.health(CALL_S).leader) != server.name and time.monotonic() < until_s:
            if leader is not None:
                self._log.move_leader(leader, CALL_S)

    def _leader(self) -> LogServer:
        while (leader := self._log.health(CALL_S).leader) is None:
            time.sleep(POLL_S)
        return self._servers[leader]

    def _follower(self) -> LogServer:
        leader = self._leader()
        return self._chance.choice([server for server in self._servers.servers if server is not leader])

    def _kill(self, struck: Sequence[LogServer]) -> None:
        for server in struck:
            server.kill()
        time.sleep(self._chance.choice((0, 0.5, 8.0)))
        for server in struck:
            server.start()

    def _terminate(self, server: LogServer) -> None:
        server.ask_to_stop()
        server.wait_until_ended()
        server.start()

    def _freeze(self, struck: Sequence[LogServer]) -> None:
        for server in struck:
            server.freeze()
        time.sleep(self._chance.choice((0.5, 3.0, 12.0)))
        for server in struck:
            server.thaw()

    def _from_others(self, server: LogServer) -> tuple[str, list[str]]:
        return server.name, [other.name for other in self._servers.servers if other is not server]

    def _cut(self, cut: Callable[[], None]) -> None:
        cut()
        time.sleep(self._chance.choice((0.2, 3.0, 12.0)))
        if self._chance.random() < 0.5:
            self._network.cut()  # what was on its way is lost
        self._network.heal()

    def _move(self) -> None:
        for _ in range(self._chance.randint(1, 5)):
            self._log.move_leader(self._leader().name, CALL_S)
            time.sleep(self._chance.uniform(0, 0.3))

    def _wipe(self) -> None:
        """Lose a disk. The others have to be whole, and nothing else may happen until it has all again."""
        struck = self._chance.choice(self._servers.servers)
        struck.kill()
        struck.wipe()
        struck.start()

    def _damage(self) -> None:
        """Flip bits in the messages of one server, let it lead for a while, then replace what it has.

        A server that was ended in order has its messages in these files alone; else they are in its Raft log, too.
        Some bits keep JetStream busy with its own files before it listens: that server never joins, and is replaced.
        """
        struck = self._follower()
        struck.ask_to_stop()
        struck.wait_until_ended()
        if blocks := struck.blocks(f"LEGATO_{GROUP}"):
            flip_bits(self._chance.choice(blocks), self._chance)
        struck.start()
        try:
            self.wait_until_whole()
            self._read_from(struck)
        except (ProcessError, LogUnavailableError):
            self.not_recovered += 1
        struck.kill()
        struck.wipe()
        struck.start()

    def _read_from(self, damaged: LogServer) -> None:
        """Read all records while a server leads whose files are damaged, and let another one lead."""
        self.lead(damaged)
        try:
            read_all(self._log)
        except LogDamagedError:
            self.damage_told += 1
        if self._leader() is damaged:
            self._log.move_leader(damaged.name, CALL_S)


def flip_bits(file: Path, chance: random.Random, count: int = 19) -> None:
    """Flip bits at random places of a file."""
    data = bytearray(file.read_bytes())
    for _ in range(count if data else 0):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


def read_all(log: ReplicatedLog) -> list[Record]:
    """All records."""
    records: list[Record] = []
    reading = log.read(BEGINNING, timeout_s=CALL_S)
    records.extend(reading.records)
    while not reading.drained:
        reading = log.read(reading.end, timeout_s=CALL_S)
        records.extend(reading.records)
    return records


def run(minutes: float, seed: int, only: Sequence[str] = ()) -> dict[str, object]:
    """One run; what is wrong is under `wrong`."""
    chance = random.Random(seed)
    struck: Counter[str] = Counter()
    wrong: list[str] = []
    with log_servers(start=False) as servers, LogNetwork(servers) as network:
        servers.start()
        settings = NatsSettings(network.url, GROUP)
        log = open_log(NatsSettings(servers.url, GROUP))
        nemesis = Nemesis(servers, network, log, chance)
        workers = Workers(lambda: open_log(settings, CALL_S), seed)
        workers.start(CLAIMANTS, FOLLOWERS)
        until_s = time.monotonic() + 60 * minutes
        try:
            while time.monotonic() < until_s:
                time.sleep(chance.uniform(0.5, 3.0))
                fault = chance.choice(list(only) or list(nemesis.faults))
                print(f"{until_s - time.monotonic():6.0f} s left, {fault}", file=sys.stderr, flush=True)
                nemesis.strike(fault)
                struck[fault] += 1
        except LogUnavailableError as error:
            wrong.append(str(error))
        history = workers.stop()
        records: list[Record] = []
        for server in servers.servers:
            nemesis.lead(server)
            try:
                records = read_all(log)
            except LogDamagedError as error:
                wrong.append(str(error))
            wrong.extend(f"{server.name} leads: {each}" for each in check(history, records))
        if history.damage and not struck["damage"]:
            wrong.append(f"damage was told where none was: {history.damage[0]}")
        health = log.health(CALL_S)
        log.close()
    return {
        "seed": seed,
        "faults": dict(struck),
        "epochs": sum(decode(record.data).number == 0 for record in records),
        "records": len(records),
        "acknowledged": len(history.acknowledged),
        "refused": len(history.refused),
        "in_doubt": len(history.in_doubt),
        "in_doubt_and_there": len({record.data for record in records}.intersection(history.in_doubt)),
        "longest_append_s": round(history.longest_append_s, 1),
        "damage_told": nemesis.damage_told + len(history.damage),
        "damaged_servers_not_recovered": nemesis.not_recovered,
        "voided": health.voided,
        "wrong": wrong,
    }


def main() -> int:
    """One run; returns 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1_000_000))
    parser.add_argument("--only", default="", help="names of faults, with commas")
    parser.add_argument("--json", type=Path, help="write the result here, too")
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    result = run(options.minutes, options.seed, [each for each in options.only.split(",") if each])
    text = json.dumps(result)
    if options.json:
        options.json.write_text(text + "\n")
    print(text)
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
