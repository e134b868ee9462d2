"""A fleet and its bad days: addresses and members spread, a rack lost, machines and groups added, clients back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import msgspec
import numpy as np

from legato import limits
from legato.groups.machines import Machine, Seats, moved, place
from simulator.fleet.returning import AllBack, Crowd, all_back
from simulator.fleet.spreading import Spread, hashes, owners, spread_of

IMBALANCE_MAX = 1.15
"""Of the 99th percentile over the mean."""
MOVED_MAX = 1.2
"""Over the least that has to move."""


class Plan(msgspec.Struct, frozen=True):
    """A fleet, and how it is used."""

    groups: int = 1_000
    machines: int = 300
    racks: int = 20
    members: int = 3
    """Of a group: a primary and backups."""
    backup_load: float = 0.5
    """What a backup costs its machine, over what the primary does."""
    addresses: int = 1_000_000
    clients: int = 1_000_000
    cores: int = 8
    """Of a machine."""
    returns_per_s: int = 500
    login_s: float = 0.001
    """Processor time of a broker to let a client in."""
    serves_s: float = 0.6
    """From the loss of a primary until its backup serves."""
    outage_s: float = 30.0
    """For so long there is no broker at all, in one of the trials."""
    added: float = 0.1
    """So many more machines and groups come, as a share."""
    seed: int = 1


class Moves(msgspec.Struct, frozen=True):
    """What moves in one change, and the least that must."""

    moved: int
    least: float

    @property
    def ratio(self) -> float:
        """The one over the other; 1 where neither moves."""
        return self.moved / self.least if self.least else float(self.moved > 0) + 1.0


class Report(msgspec.Struct, frozen=True):
    """What the simulation found."""

    spreads: dict[str, Spread]
    moves: dict[str, Moves]
    returns: dict[str, AllBack]
    switchovers: int
    """Primaries that change places when machines are added."""

    def misses(self) -> list[str]:
        """What is not as it should be."""
        found = [f"{name}: p99 is {s.p99:.3f} of the mean" for name, s in self.spreads.items() if s.p99 > IMBALANCE_MAX]
        found += [
            f"{name}: {m.moved:,} move, {m.ratio:.2f} of the least possible"
            for name, m in self.moves.items()
            if m.ratio > MOVED_MAX
        ]
        kept_s = limits.RECONNECT_TIMEOUT_S
        found += [
            f"{name}: the last client is back after {r.last_s:.1f} s, and what it had is kept for {kept_s} s"
            for name, r in self.returns.items()
            if r.last_s > kept_s
        ]
        return found


class Fleet:
    """The fleet of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._chance = Random(plan.seed)
        self._groups = [f"group-{number:04}" for number in range(plan.groups)]
        self._machines = _machines("machine", plan.machines, plan.machines // plan.racks)
        self._seats = place(self._groups, self._machines, plan.members)
        self._spreads: dict[str, Spread] = {}
        self._moves: dict[str, Moves] = {}

    def run(self) -> Report:
        """Let it go through all."""
        self._addresses()
        self._spread("members", self._seats, self._machines)
        plan = self._plan
        returns = self._rack_lost()
        switchovers = self._machines_added()
        everybody = [self._crowd(group, self._seats, gone=False) for group in self._groups]
        returns["all primaries killed at once"] = self._return(everybody)
        returns["the same, nobody asked to wait"] = self._return(everybody, returns_per_s=0)
        # Groups wait for themselves alone: a tenth of them takes as long as all.
        some = everybody[: -(-len(everybody) // 10)]
        late = [msgspec.structs.replace(crowd, serves_s=plan.outage_s) for crowd in some]
        returns["no broker for a while, a tenth"] = self._return(late)
        return Report(self._spreads, self._moves, returns, switchovers)

    def _addresses(self) -> None:
        plan = self._plan
        by_change = max(round(plan.groups * plan.added), 1)
        fewer, more = plan.groups - by_change, plan.groups + by_change
        groups = hashes([*self._groups, *(f"group-{plan.groups + number:04}" for number in range(by_change))])
        addresses = hashes([f"address.{number}" for number in range(plan.addresses)])
        found = owners(addresses, groups, np.ones(more), (fewer, plan.groups, more))
        self._spreads["addresses"] = spread_of(np.bincount(found[plan.groups], minlength=plan.groups).tolist())
        self._spreads["addresses, groups added"] = spread_of(np.bincount(found[more], minlength=more).tolist())
        added = found[plan.groups] != found[more]
        self._moves["addresses, groups added"] = Moves(int(added.sum()), plan.addresses * by_change / more)
        # Those that go give away what they have.
        removed = found[plan.groups] != found[fewer]
        had = int((found[plan.groups] >= fewer).sum())
        self._moves["addresses, groups removed"] = Moves(int(removed.sum()), had)

    def _rack_lost(self) -> dict[str, AllBack]:
        lost = self._machines[0].rack
        left = [machine for machine in self._machines if machine.rack != lost]
        gone = {machine.name for machine in self._machines} - {machine.name for machine in left}
        after = place(self._groups, left, self._plan.members, self._seats)
        self._spread("members, a rack lost", after, left)
        least = sum(name in gone for seats in self._seats.values() for name in seats)
        self._moves["members, a rack lost"] = Moves(moved(self._seats, after), least)
        # Its groups are served by backups where these are, before anything is placed anew.
        standing = {group: tuple(n for n in seats if n not in gone) for group, seats in self._seats.items()}
        crowds = [self._crowd(group, standing, gone=True) for group, seats in self._seats.items() if seats[0] in gone]
        return {"a rack lost": self._return(crowds)}

    def _machines_added(self) -> int:
        plan = self._plan
        in_a_rack = plan.machines // plan.racks
        added = max(round(plan.machines * plan.added), 1)
        every = [*self._machines, *_machines("added", added, in_a_rack)]
        after = place(self._groups, every, plan.members, self._seats)
        self._spread("members, machines added", after, every)
        # The least with which all machines are even up to rounding.
        total = plan.groups * plan.members
        least = max(added * (total // len(every)), total - plan.machines * -(-total // len(every)))
        self._moves["members, machines added"] = Moves(moved(self._seats, after), least)
        return sum(after[group][0] != seats[0] for group, seats in self._seats.items())

    def _spread(self, title: str, seats: Seats, machines: Sequence[Machine]) -> None:
        loads = dict.fromkeys((machine.name for machine in machines), 0.0)
        for members in seats.values():
            loads[members[0]] += 1.0
            for backup in members[1:]:
                loads[backup] += self._plan.backup_load
        self._spreads[title] = spread_of([loads[m.name] for m in machines], [m.weight for m in machines])

    def _crowd(self, group: str, seats: Seats, *, gone: bool) -> Crowd:
        """The clients of a group, of which the first machine that is left serves."""
        on_machine = Counter(members[0] for members in seats.values())
        cores = self._plan.cores / max(on_machine[seats[group][0]], 1)
        return Crowd(self._plan.clients // self._plan.groups, self._plan.serves_s, gone, cores)

    def _return(self, crowds: Sequence[Crowd], returns_per_s: int | None = None) -> AllBack:
        plan = self._plan
        paced = plan.returns_per_s if returns_per_s is None else returns_per_s
        return all_back(crowds, paced, limits.RECONNECT_TIMEOUT_S, plan.login_s, self._chance)


def _machines(prefix: str, count: int, in_a_rack: int) -> list[Machine]:
    return [Machine(f"{prefix}-{n:04}", f"{prefix}-rack-{n // max(in_a_rack, 1):02}") for n in range(count)]
