"""Trouble with the log's servers and the cables: drawn at random, for a while each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simulator.kernel import Kernel
from simulator.replicas.cables import Cables
from simulator.replicas.log_server import LogServer
from simulator.replicas.log_servers import LogServers

DOWN_US = (50_000, 4_000_000)
STOPPED_US = (20_000, 12_000_000)
CUT_US = (50_000, 8_000_000)
LAGGING_US = (200_000, 6_000_000)
REFUSED_US = (50_000, 3_000_000)


class LogTrouble:
    """Makes trouble, and ends it.

    Args:
        group: the servers.
        nodes: the brokers' names on the cables.
        happened: is told what.
    """

    def __init__(
        self, group: LogServers, nodes: Sequence[str], happened: Callable[..., None] = lambda what, *whom: None
    ) -> None:
        self._group = group
        self._kernel: Kernel = group.kernel
        self._cables: Cables = group.cables
        self._nodes = nodes
        self._happened = happened
        self._calm = False
        kinds: list[tuple[int, Callable[[], None]]] = [
            (10, self._kill),
            (3, self._power_cut),
            (8, self._stop),
            (8, self._move),
            (8, self._cut),
            (6, self._isolate),
            (5, self._lag),
            (8, self._lose_answers),
            (4, self._refuse),
            (3, self._wipe),
        ]
        self._kinds = [kind for _, kind in kinds]
        self._weights = [weight for weight, _ in kinds]

    def make(self) -> None:
        """Something goes wrong."""
        self._kernel.random.choices(self._kinds, self._weights)[0]()

    def end(self) -> None:
        """All is well again."""
        self._calm = True
        group, cables = self._group, self._cables
        cables.calm = True
        cables.cut.clear()
        cables.lagging.clear()
        group.refusing = group.losing = group.letting_in = 0.0
        for server in group.servers.values():
            server.start()
            if server.process.paused:
                self._kernel.resume(server.process)

    def _server(self) -> LogServer:
        """One of the servers; the leader more often than others."""
        leader = self._group.leader
        if leader is not None and self._kernel.chance(0.5):
            return leader
        return self._kernel.random.choice(list(self._group.servers.values()))

    def _later(self, bounds: tuple[int, int], call: Callable[..., object], *arguments: object) -> None:
        self._kernel.after_for(None, self._kernel.between_us(*bounds), call, *arguments)

    def _kill(self) -> None:
        server, power = self._server(), self._kernel.chance(0.5)
        if server.process.alive:
            self._happened("log servers killed" if not power else "log servers without power", server.name)
            server.kill(power=power)
            self._later(DOWN_US, server.start)

    def _power_cut(self) -> None:
        self._happened("power cuts of all log servers")
        for server in self._group.servers.values():
            if server.process.alive:
                server.kill(power=True)
            self._later(DOWN_US, server.start)

    def _stop(self) -> None:
        server = self._server()
        process = server.process
        if process.alive and not process.paused:
            self._happened("log servers stopped", server.name)
            process.paused = True
            self._later(STOPPED_US, self._kernel.resume, process)

    def _move(self) -> None:
        leader = self._group.leader
        if leader is not None and not leader.process.paused:
            self._happened("leaders of the log moved", leader.name)
            leader.step_down()

    def _cut(self) -> None:
        """Two nodes hear nothing of each other, or one nothing of the other."""
        everybody = [*self._nodes, *self._group.servers]
        one, other = self._kernel.random.sample(everybody, 2)
        links = {(one, other)}
        if self._kernel.chance(0.5):
            links.add((other, one))
        self._disconnect("connections to the log cut", links, one, other)

    def _isolate(self) -> None:
        """One node hears of nobody, or nobody of it."""
        everybody = [*self._nodes, *self._group.servers]
        one = self._kernel.random.choice(everybody)
        others = [other for other in everybody if other != one]
        chance = self._kernel.random.random()
        links: set[tuple[str, str]] = set()
        if chance < 0.7:
            links |= {(other, one) for other in others}
        if chance > 0.3:
            links |= {(one, other) for other in others}
        self._disconnect("machines cut off", links, one)

    def _disconnect(self, what: str, links: set[tuple[str, str]], *whom: str) -> None:
        self._happened(what, *whom, len(links))
        self._cables.cut |= links
        self._later(CUT_US, self._cables.cut.difference_update, links)

    def _lag(self) -> None:
        node = self._kernel.random.choice([*self._nodes, *self._group.servers])
        self._happened("followers slow", node)
        self._cables.lagging.add(node)
        self._later(LAGGING_US, self._cables.lagging.discard, node)

    def _lose_answers(self) -> None:
        self._happened("acknowledgements of the log lost")
        self._group.losing = 0.5
        self._later(REFUSED_US, self._stop_losing)

    def _stop_losing(self) -> None:
        self._group.losing = 0.0

    def _refuse(self) -> None:
        self._happened("appends refused for a while")
        self._group.refusing = 0.5
        self._later(REFUSED_US, self._stop_refusing)

    def _stop_refusing(self) -> None:
        self._group.refusing = 0.0

    def _wipe(self) -> None:
        """A server loses its disk, while the others have everything: that is what an operator has to see to."""
        server = self._server()
        if server.process.alive and self._group.complete:
            self._happened("log servers wiped", server.name)
            server.kill(power=True, wiped=True)
            self._later(DOWN_US, server.start)
