"""A server of the simulated log: elections, replication, acknowledgements by a majority, as of one Raft group.

What JetStream does and this does too: the condition of an append is compared by the leader before it proposes, an
append in flight vanishes with its leader, a deposed leader answers until it hears of that, followers deliver to who
watches. Elections and votes are messages over `Cables`, files are lost by a power cut unless they were synced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from legato.replication.nats.answers import WRONG_LAST_SEQUENCE
from simulator.kernel import Process

if TYPE_CHECKING:
    from simulator.replicas.log_servers import LogServers

MAJORITY = 2
HEARTBEAT_US = 250_000
ELECTION_US = (1_000_000, 9_000_000)
"""Of silence, before a server wants to lead."""
QUICK_US = (50_000, 600_000)
"""The same where a connection ended with its process."""
HEARD_US = 900_000
"""Who has heard of a majority within that time is sure to lead: less than the shortest silence before an election."""
DEPOSED_US = 10_000_000
"""A leader that hears of no majority for so long leads no more."""
SYNC_US = (50, 8_000)
ENTRIES_MAX = 64
UNAVAILABLE = 10008
NO_LEADER = 503


class Entry(NamedTuple):
    """An entry of the group's log.

    Args:
        term: of the leader that made it.
        sequence: of the last message up to here.
        data: the message; None where a leader began.
    """

    term: int
    sequence: int
    data: bytes | None


class Request(NamedTuple):
    """A broker's request to the leader.

    Args:
        node: the broker's machine.
        entry: the server that took it.
        operation: `append`, `info`, `read`, `trim` or `step_down`.
        arguments: of the operation.
        answer: is told the answer, at the broker.
    """

    node: str
    entry: str
    operation: str
    arguments: tuple[Any, ...]
    answer: Callable[[Any], None]


class Watcher(Protocol):
    """Who watches a server's messages."""

    node: str

    def arrive(self, subscription: int, sequence: int, data: bytes) -> None:
        """A message came."""


class LogServer:
    """One of the servers.

    Attributes:
        process: that runs; a dead one if it is down.
        voter: its log counts; not so after its disk was wiped, until it has all again.
        messages: those that it knows to be acknowledged.
    """

    def __init__(self, group: LogServers, name: str) -> None:
        self.name = name
        self.log: list[Entry] = []
        self.term = 0
        self.voter = True
        self.process = Process(name)
        self._group = group
        self._voted_for = ""
        self._synced = 0
        self._begin()

    def _begin(self) -> None:
        self.leads = False
        self.leader = ""
        self.committed = 0
        self.messages: list[bytes] = []
        self._votes: set[str] = set()
        self._match: dict[str, int] = {}
        self._next: dict[str, int] = {}
        self._heard_of: dict[str, int] = {}
        """When what others answered was sent to them, while this one leads."""
        self._pending: dict[int, Request] = {}
        self._watchers: dict[Watcher, tuple[int, int]] = {}
        self._heard_us = self._group.kernel.now_us
        self._patience_us = 0
        self._wait_for_leader(ELECTION_US)

    # -- what happens to it

    def kill(self, *, power: bool, wiped: bool = False) -> None:
        """It dies, at once.

        Args:
            power: what was not synced is lost.
            wiped: all of its disk is.
        """
        self.process.alive = False
        self.leads = False
        if power:
            del self.log[self._synced :]
        self._synced = len(self.log)
        if wiped:
            # Not how it voted: who lost that could let two lead in a term, as a server that is wiped in the midst of
            # an election could in truth. An operator puts an empty one in its place while another leads.
            self.log, self._synced, self.voter = [], 0, False
        for other in self._group.servers.values():
            if other is self:
                continue
            other._match.pop(self.name, None)
            if other.leader == self.name and not other.leads and self._group.kernel.chance(0.5):
                other._wait_for_leader(QUICK_US)

    def start(self) -> None:
        """It is there again."""
        if not self.process.alive:
            self.process = Process(self.name)
            self._begin()

    # -- elections

    def _wait_for_leader(self, bounds: tuple[int, int]) -> None:
        kernel = self._group.kernel
        self._patience_us = kernel.between_us(*bounds)
        kernel.after_for(self.process, self._patience_us, self._look_for_leader, self._patience_us)

    def _look_for_leader(self, patience_us: int) -> None:
        kernel = self._group.kernel
        if self.leads or patience_us != self._patience_us:
            return
        silence_us = kernel.now_us - self._heard_us
        if silence_us < patience_us:
            kernel.after_for(self.process, patience_us - silence_us, self._look_for_leader, patience_us)
            return
        self.campaign()

    def campaign(self) -> None:
        """Ask the others to let it lead."""
        if not self.voter or self.leads:
            self._wait_for_leader(ELECTION_US)
            return
        self.term += 1
        self._voted_for, self._votes, self.leader = self.name, {self.name}, ""
        for other in self._others():
            last_term = self.log[-1].term if self.log else 0
            self._send(other, other.on_vote_wanted, self.term, self, last_term, len(self.log))
        self._wait_for_leader(ELECTION_US)

    def on_vote_wanted(self, term: int, candidate: LogServer, last_term: int, last_index: int) -> None:
        """Another wants to lead."""
        if not self.voter:
            return
        if term > self.term:
            self._follow(term, "")
        mine = (self.log[-1].term if self.log else 0, len(self.log))
        if term == self.term and self._voted_for in ("", candidate.name) and (last_term, last_index) >= mine:
            self._voted_for = candidate.name
            self._heard_us = self._group.kernel.now_us
            self._send(candidate, candidate.on_vote, term, self.name)

    def on_vote(self, term: int, voter: str) -> None:
        """Another lets it lead."""
        if term != self.term or self.leads or self._voted_for != self.name:
            return
        self._votes.add(voter)
        if len(self._votes) >= MAJORITY:
            self._lead()

    def _lead(self) -> None:
        group = self._group
        group.elected(self)
        self.leads, self.leader = True, self.name
        self._match = {}
        self._next = {other.name: len(self.log) + 1 for other in self._others()}
        self._heard_of = dict.fromkeys(self._next, group.kernel.now_us)
        self._pending = {}
        self._append(None)
        self._beat(self.term)

    def _follow(self, term: int, leader: str) -> None:
        if term > self.term:
            self.term, self._voted_for = term, ""
        if self.leads:
            self.leads = False
            self._pending.clear()
            self._wait_for_leader(ELECTION_US)
        self.leader = leader

    def _beat(self, term: int) -> None:
        if not self.leads or self.term != term:
            return
        kernel = self._group.kernel
        if not self._heard_within(DEPOSED_US):
            self._follow(self.term, "")
            return
        self._replicate()
        kernel.after_for(self.process, HEARTBEAT_US, self._beat, term)

    def _heard_within(self, duration_us: int) -> bool:
        since_us = self._group.kernel.now_us - duration_us
        return 1 + sum(at_us >= since_us for at_us in self._heard_of.values()) >= MAJORITY

    # -- replication

    def _append(self, data: bytes | None) -> int:
        sequence = self.last_sequence + (data is not None)
        self.log.append(Entry(self.term, sequence, data))
        index = len(self.log)
        self._sync(index, self._advance)
        return index

    def _sync(self, index: int, then: Callable[[], None]) -> None:
        """Call `then` when the entries up to one are on the disk."""
        kernel = self._group.kernel
        last = self.log[index - 1] if index else None
        delay_us = kernel.between_us(*SYNC_US)
        kernel.after_for(self.process, delay_us, self._synced_upto, index, last, then)

    def _synced_upto(self, index: int, last: Entry | None, then: Callable[[], None]) -> None:
        if index <= len(self.log) and (not index or self.log[index - 1] is last):
            self._synced = max(self._synced, index)
            then()

    def _replicate(self) -> None:
        for other in self._others():
            self._replicate_to(other)

    def on_entries(
        self,
        term: int,
        leader: LogServer,
        before: int,
        before_term: int,
        entries: Sequence[Entry],
        committed: int,
        sent_us: int,
    ) -> None:
        """A leader says what comes behind an entry."""
        if term < self.term:
            self._send(leader, leader.on_newer_term, self.term)
            return
        self._follow(term, leader.name)
        self._heard_us = self._group.kernel.now_us
        if before > len(self.log) or (before and self.log[before - 1].term != before_term):
            hint = min(len(self.log), before - 1)
            self._send(leader, leader.on_entries_taken, term, self, self.process, False, hint, sent_us)
            return
        for index, entry in enumerate(entries, before):
            if index < len(self.log) and self.log[index].term != entry.term:
                assert index >= self.committed, "an acknowledged entry is replaced"
                del self.log[index:]
                self._synced = min(self._synced, index)
            if index == len(self.log):
                self.log.append(entry)
        upto = before + len(entries)
        self._sync(
            upto,
            lambda: self._send(leader, leader.on_entries_taken, term, self, self.process, True, upto, sent_us),
        )
        self._commit(min(committed, upto))

    def on_newer_term(self, term: int) -> None:
        """Another leads by now, or wants to."""
        if term > self.term:
            self._follow(term, "")

    def on_entries_taken(
        self, term: int, other: LogServer, process: Process, taken: bool, upto: int, sent_us: int
    ) -> None:
        """A follower has all entries up to one, or lacks some before those it was sent."""
        if not self.leads or term != self.term or other.process is not process:
            return
        if not (other.voter or process.alive):
            return  # It had them before it was wiped.
        self._heard_of[other.name] = max(self._heard_of[other.name], sent_us)
        if taken:
            self._match[other.name] = max(self._match.get(other.name, 0), upto)
            self._next[other.name] = max(self._next[other.name], upto + 1)
            if not other.voter and self._match[other.name] >= max(len(self._group.entries), len(self.log)):
                other.voter = True
            self._advance()
        else:
            self._next[other.name] = upto + 1
        if self._next[other.name] <= len(self.log):
            self._replicate_to(other)

    def _replicate_to(self, other: LogServer) -> None:
        index = self._next[other.name]
        before = self.log[index - 2].term if index > 1 else 0
        entries = self.log[index - 1 : index - 1 + ENTRIES_MAX]
        now_us = self._group.kernel.now_us
        self._send(other, other.on_entries, self.term, self, index - 1, before, entries, self.committed, now_us)

    def _advance(self) -> None:
        """What a majority has on its disks, and what is before it, is acknowledged."""
        if not self.leads:
            return
        servers = self._group.servers
        on_disks = [self._synced, *(upto for name, upto in self._match.items() if servers[name].voter)]
        if len(on_disks) < MAJORITY:
            return
        upto = sorted(on_disks)[-MAJORITY]
        if upto > self.committed and self.log[upto - 1].term == self.term:
            self._commit(upto)
            self._replicate()

    def _commit(self, upto: int) -> None:
        while self.committed < upto:
            entry = self.log[self.committed]
            self.committed += 1
            self._group.acknowledged(self.committed, entry)
            if entry.data is not None:
                self.messages.append(entry.data)
            if (request := self._pending.pop(self.committed, None)) is not None:
                self._answer_append(request, entry.sequence)
        for watcher in list(self._watchers):
            self._push(watcher)

    @property
    def last_sequence(self) -> int:
        """Of the last message in its log, acknowledged or not."""
        return self.log[-1].sequence if self.log else 0

    # -- requests

    def take(self, request: Request) -> None:
        """A broker's request, to be handed to the leader."""
        leader = self._group.servers.get(self.leader)
        if leader is None:
            self._answer(request, _error(NO_LEADER, "no responders"))
        elif leader is self:
            self.handle(request)
        else:
            self._send(leader, leader.handle, request)

    def handle(self, request: Request) -> None:
        """A request to the leader."""
        if not self.leads:
            return
        handle: Callable[..., None] = getattr(self, f"_do_{request.operation}")
        handle(request, *request.arguments)

    def _do_append(self, request: Request, data: bytes, after: int) -> None:
        group = self._group
        if group.refuses():
            self._answer(request, _error(UNAVAILABLE, "JetStream system temporarily unavailable"))
            return
        last = self.last_sequence
        if after != last and not group.lets_in(after, last):
            self._answer(request, _error(WRONG_LAST_SEQUENCE, f"wrong last sequence: {last}"))
            return
        index = self._append(data)
        self._replicate()
        self._acknowledge(index, request)

    def _acknowledge(self, index: int, request: Request) -> None:
        """Answer when a majority has it."""
        self._pending[index] = request

    def _answer_append(self, request: Request, sequence: int) -> None:
        if not self._group.loses_answer():
            self._answer(request, msgspec.json.encode({"stream": "log", "seq": sequence}))

    def _do_info(self, request: Request) -> None:
        now_us = self._group.kernel.now_us
        others = [
            (name, now_us - at_us < 2 * HEARTBEAT_US + HEARD_US, len(self.log) - self._match.get(name, 0))
            for name, at_us in self._heard_of.items()
        ]
        own = self.committed > 0 and self.log[self.committed - 1].term == self.term
        settled = own and self._heard_within(HEARD_US)
        self._answer(request, (self._group.first, len(self.messages), settled, self.name, others))

    def _do_read(self, request: Request, first: int, last: int, limit_bytes: int) -> None:
        found: list[tuple[int, bytes]] = []
        for sequence in range(max(first, self._group.first), min(last, len(self.messages)) + 1):
            found.append((sequence, self.messages[sequence - 1]))
            limit_bytes -= len(found[-1][1])
            if limit_bytes <= 0:
                break
        self._answer(request, found)

    def _do_trim(self, request: Request, first: int) -> None:
        self._group.first = max(self._group.first, min(first, len(self.messages)))
        self._answer(request, True)

    def _do_step_down(self, request: Request) -> None:
        self._answer(request, self.step_down())

    def step_down(self) -> bool:
        """Let another lead, if one has everything; returns whether there is one."""
        current = [other for other in self._others() if self._match.get(other.name, 0) == len(self.log) and other.voter]
        if current:
            successor = self._group.kernel.random.choice(current)
            self._send(successor, successor.campaign)
            self._follow(self.term, "")
        return bool(current)

    @property
    def synced(self) -> int:
        """So many entries survive a power cut."""
        return self._synced

    def _answer(self, request: Request, answer: Any) -> None:
        entry = self._group.servers[request.entry]
        if entry is self:
            self.pass_on(request, answer)
        else:
            self._send(entry, entry.pass_on, request, answer)

    def pass_on(self, request: Request, answer: Any) -> None:
        """The leader has answered."""
        self._group.cables.send(self.name, request.node, None, request.answer, answer)

    # -- who watches

    def subscribe(self, watcher: Watcher, subscription: int, first: int) -> None:
        """Send somebody the messages from one on as they are acknowledged."""
        self._watchers[watcher] = (subscription, first)
        self._push(watcher)

    def unsubscribe(self, watcher: Watcher) -> None:
        """Send no more."""
        self._watchers.pop(watcher, None)

    def _push(self, watcher: Watcher) -> None:
        subscription, first = self._watchers[watcher]
        first = max(first, self._group.first)
        for sequence in range(first, len(self.messages) + 1):
            data = self.messages[sequence - 1]
            self._group.cables.send(self.name, watcher.node, None, watcher.arrive, subscription, sequence, data)
        self._watchers[watcher] = (subscription, max(first, len(self.messages) + 1))

    def _others(self) -> list[LogServer]:
        return [server for server in self._group.servers.values() if server is not self]

    def _send(self, other: LogServer, call: Callable[..., object], *arguments: Any) -> None:
        self._group.cables.send(self.name, other.name, other.process, call, *arguments)


def _error(code: int, description: str) -> bytes:
    """As JetStream answers: a refusal has a sequence, too."""
    return msgspec.json.encode({"error": {"code": 400, "err_code": code, "description": description}, "seq": 0})
