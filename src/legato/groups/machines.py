"""Groups on machines: where the members of each group run, over different racks, with few moves.

The members of groups are few, and moving one means to copy a store. So this is not a hash: what is there stays, and
only what a lost machine had, or what others have too much of, is placed anew. Hashes decide between equals, so that the
same input gives the same placement everywhere.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from legato.errors import ConfigError
from legato.groups.rendezvous import hash_of, mixed


class Machine(NamedTuple):
    """A machine, and the rack (or zone) with which it may be lost."""

    name: str
    rack: str
    weight: float = 1.0
    """Its share of the members, over the sum of all weights."""


Seats = Mapping[str, tuple[str, ...]]
"""By group, the machines of its members; the first is to be the primary's."""


def place(groups: Sequence[str], machines: Sequence[Machine], members: int, former: Seats | None = None) -> Seats:
    """Give each group that many machines, in as many racks as there are.

    Each machine gets its share of members, and of primaries, up to rounding, as far as racks allow; what `former` says
    stays wherever that can be kept.

    Raises:
        ConfigError: there are fewer machines than members of a group.
    """
    if len(machines) < members:
        raise ConfigError(f"A group of {members} brokers needs as many machines; there are {len(machines)}.")
    return _Placement(groups, machines, members, former or {}).seats()


class _Placement:
    def __init__(self, groups: Sequence[str], machines: Sequence[Machine], members: int, former: Seats) -> None:
        self._groups = groups
        self._members = members
        self._machines = {machine.name: machine for machine in machines}
        self._hashes = {name: hash_of(name) for name in (*groups, *self._machines)}
        racks = len({machine.rack for machine in machines})
        self._in_a_rack_max = math.ceil(members / racks)
        self._share = {name: each.weight / sum(m.weight for m in machines) for name, each in self._machines.items()}
        self._seats = {
            group: [name for name in former.get(group, ()) if name in self._machines][:members] for group in groups
        }
        self._loads = Counter(name for seats in self._seats.values() for name in seats)

    def seats(self) -> Seats:
        self._fill()
        self._even_out()
        self._even_out_primaries()
        return {group: tuple(seats) for group, seats in self._seats.items()}

    def _bounds(self, name: str, count: int) -> tuple[int, int]:
        share = count * self._share[name]
        # What is a whole number but for the last bit of a float is one.
        return math.floor(share + 1e-9), math.ceil(share - 1e-9)

    def _draw(self, group: str, machine: str) -> int:
        return mixed(self._hashes[group] ^ self._hashes[machine])

    def _fits(self, group: str, machine: str, leaving: str | None = None) -> bool:
        """Whether the group may have a member there, once the one on `leaving` has gone."""
        rack = self._machines[machine].rack
        others = [name for name in self._seats[group] if name != leaving]
        in_rack = sum(self._machines[name].rack == rack for name in others)
        return machine not in others and in_rack < self._in_a_rack_max

    def _fill(self) -> None:
        """Members that are missing go where there is least, for its weight."""
        for group in self._groups:
            while len(self._seats[group]) < self._members:
                free = [name for name in self._machines if self._fits(group, name)]
                # Where weights are very different racks may be full before their machines are.
                free = free or [name for name in self._machines if name not in self._seats[group]]
                least = min(self._loads[name] / self._share[name] for name in free)
                tied = [name for name in free if self._loads[name] / self._share[name] == least]
                chosen = min(tied, key=lambda name: self._draw(group, name))
                self._seats[group].append(chosen)
                self._loads[chosen] += 1

    def _even_out(self) -> None:
        """Members go from machines with too many, or to machines with too few, one at a time."""
        total = len(self._groups) * self._members
        bounds = {name: self._bounds(name, total) for name in self._machines}
        loads = self._loads

        def over(name: str) -> int:
            return loads[name] - bounds[name][1]

        def under(name: str) -> int:
            return bounds[name][0] - loads[name]

        while self._move_one(lambda name: over(name) > 0, lambda name: over(name) < 0):
            pass
        while self._move_one(lambda name: under(name) < 0, lambda name: under(name) > 0):
            pass

    def _move_one(self, gives: Callable[[str], bool], takes: Callable[[str], bool]) -> bool:
        """Move one member, from where there is most to where there is least; False if none can be moved."""
        sources = sorted(filter(gives, self._machines), key=lambda name: -self._loads[name] / self._share[name])
        targets = sorted(filter(takes, self._machines), key=lambda name: self._loads[name] / self._share[name])
        for source in sources:
            here = [group for group in self._groups if source in self._seats[group]]
            for target in targets:
                movable = [group for group in here if self._fits(group, target, leaving=source)]
                if movable:
                    group = self._cheapest(movable, source, target)
                    seats = self._seats[group]
                    # The one that has to copy the store is not the primary at once.
                    seats.remove(source)
                    seats.append(target)
                    self._loads[source] -= 1
                    self._loads[target] += 1
                    return True
        return False

    def _cheapest(self, movable: Sequence[str], source: str, target: str) -> str:
        """A backup costs less to move than a primary, whose clients notice."""
        return min(movable, key=lambda group: (self._seats[group][0] == source, self._draw(group, target)))

    def _even_out_primaries(self) -> None:
        """Primaries change places with backups of their groups, along the shortest ways, until they are spread too."""
        primaries = Counter(seats[0] for seats in self._seats.values())
        bounds = {name: self._bounds(name, len(self._groups)) for name in self._machines}

        def over(name: str) -> bool:
            return primaries[name] > bounds[name][1]

        def under(name: str) -> bool:
            return primaries[name] < bounds[name][0]

        self._swap_primaries(primaries, over, lambda name: primaries[name] < bounds[name][1])
        self._swap_primaries(primaries, lambda name: primaries[name] > bounds[name][0], under)
        # Where one more backup is, there should not be one more primary as well.
        total = len(self._groups) * self._members
        least = {name: self._bounds(name, total)[0] for name in self._machines}

        def laden(name: str) -> bool:
            return self._loads[name] > least[name] and primaries[name] > bounds[name][0]

        def light(name: str) -> bool:
            return self._loads[name] <= least[name] and primaries[name] <= bounds[name][0] < bounds[name][1]

        self._swap_primaries(primaries, laden, light)

    def _swap_primaries(
        self, primaries: Counter[str], gives: Callable[[str], bool], takes: Callable[[str], bool]
    ) -> None:
        while way := self._way([name for name in self._machines if gives(name)], takes):
            for group, target in way:
                seats = self._seats[group]
                primaries[seats[0]] -= 1
                primaries[target] += 1
                seats.remove(target)
                seats.insert(0, target)

    def _way(self, sources: Sequence[str], is_target: Callable[[str], bool]) -> list[tuple[str, str]]:
        """Groups, each with the machine that its primary goes to, from a source to a target; empty if there is none."""
        led: dict[str, list[str]] = {}
        for group, seats in self._seats.items():
            led.setdefault(seats[0], []).append(group)
        came: dict[str, tuple[str, str] | None] = dict.fromkeys(sources)
        waiting = deque(sources)
        while waiting:
            here = waiting.popleft()
            for group in led.get(here, ()):
                for other in self._seats[group][1:]:
                    if other in came:
                        continue
                    came[other] = (here, group)
                    if is_target(other):
                        return _steps(came, other)
                    waiting.append(other)
        return []


def _steps(came: Mapping[str, tuple[str, str] | None], end: str) -> list[tuple[str, str]]:
    steps: list[tuple[str, str]] = []
    at = end
    while (step := came[at]) is not None:
        steps.append((step[1], at))
        at = step[0]
    return steps


def moved(before: Seats, after: Seats) -> int:
    """Members that have to be made on a machine where their group had none: stores to copy."""
    return sum(len(set(seats) - set(before.get(group, ()))) for group, seats in after.items())
