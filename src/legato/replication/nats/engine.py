"""A stream of NATS JetStream as the servers of a log."""

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from legato.clock import elapsed_s
from legato.errors import LogUnavailableError
from legato.replication.chained_log import ChainedLog
from legato.replication.engine import AppendRefused, Bounds, EngineHealth, Message
from legato.replication.log import PATIENCE_S, ReplicaHealth
from legato.replication.nats import answers, stream, sync_proof
from legato.replication.nats.connection import Connection
from legato.replication.nats.settings import NatsSettings
from legato.replication.nats.watch import NatsWatch
from legato.replication.patience import ATTEMPT_S, Patience

HEADERS_BYTES = 1024
"""Left free in each message: servers count headers into its size."""
GETS_MAX = 64
"""Requests for messages on their way at once."""
SERVERS_ANSWER_S = 1.0
MINORITY_ANSWERS_S = 0.05
"""So long a claim waits for the rest of the servers, once a majority has answered: clients wait for the claim, and a
server that was lost with the primary's machine never answers."""
UNSERVED_S = 5.0
"""A server that is told to end serves no questions of the system account before it leaves its clients, and none does
while it reads its configuration again. After so long it is the configuration."""
LEADERSHIP_POLL_S = 0.05
HEARD_WITHIN_NS = 3_000_000_000
"""Followers wait at least 4 s for their leader, which they hear each second, before they elect another."""


def open_log(settings: NatsSettings, timeout_s: float = PATIENCE_S) -> ChainedLog:
    """The log of a group; its stream is made if there is none.

    Args:
        settings: which servers, which group, which credentials.
        timeout_s: wait so long for servers.

    Raises:
        LogAccessError: the servers refuse the credentials.
        LogUnavailableError: they do not answer.
        LogFormatError: the stream of that name is something else.
        LogUnsafeError: it may lose records.
    """
    opening = Opening(settings)
    try:
        opening.connection.wait_for_first(timeout_s)
        return Patience(timeout_s).insist(opening.prepared)
    except BaseException:
        opening.close()
        raise


class Opening:
    """Opens the log of a group: call it until it no longer raises `LogUnavailableError`, which it does soon.

    Args:
        settings: which servers, which group, which credentials.

    Attributes:
        connection: to them, kept from one try to the next.
    """

    def __init__(self, settings: NatsSettings) -> None:
        self.connection = Connection(settings)
        self._settings = settings

    def __call__(self) -> ChainedLog:
        """The log; its stream is made if there is none.

        Raises:
            LogError: as `open_log`.
        """
        self.connection.wait_for_first(ATTEMPT_S, patient=False)
        return self.prepared(ATTEMPT_S)

    def prepared(self, timeout_s: float) -> ChainedLog:
        """The log on the servers that are connected.

        Raises:
            LogError: as `open_log`.
        """
        engine = NatsEngine(self.connection, self._settings)
        engine.prepare(timeout_s)
        return ChainedLog(self._settings.group, engine)

    def close(self) -> None:
        """Open nothing any more. A log that was opened is closed, too."""
        self.connection.close()


class NatsEngine:
    """A stream, by the requests of JetStream.

    Reads go to the stream's leader: other servers may lack what is acknowledged.

    Args:
        connection: to the servers.
        settings: of the group.
    """

    def __init__(self, connection: Connection, settings: NatsSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._unserved_s = (-math.inf, -math.inf)
        """Since when, and when last, nobody served the question when servers write to disk."""

    @property
    def message_bytes_max(self) -> int:
        """As `Engine.message_bytes_max`."""
        return self._connection.message_bytes_max() - HEADERS_BYTES

    def prepare(self, timeout_s: float) -> None:
        """Make the stream, or see that the one that is there is a log.

        Raises:
            LogFormatError, LogUnsafeError: it is not.
        """
        self._connection.call(lambda: self._prepare(timeout_s), timeout_s)

    def append(self, data: bytes, after: int, timeout_s: float) -> int:
        """As `Engine.append`."""
        return self._connection.call(lambda: self._append(data, after, timeout_s), timeout_s)

    def bounds(self, timeout_s: float) -> Bounds:
        """As `Engine.bounds`."""

        async def bounds() -> Bounds:
            return _bounds(await self._info(timeout_s))

        return self._connection.call(bounds, timeout_s)

    def get(self, sequence: int, timeout_s: float) -> bytes | None:
        """As `Engine.get`."""
        return self._connection.call(lambda: self._get(sequence, timeout_s), timeout_s)

    def read(self, first: int, last: int, limit_bytes: int, timeout_s: float) -> Sequence[Message]:
        """As `Engine.read`."""
        return self._connection.call(lambda: self._read(first, last, limit_bytes, timeout_s), timeout_s)

    def watch(self, first: int) -> NatsWatch:
        """As `Engine.watch`."""
        return NatsWatch(self._connection, first)

    def trim(self, first: int, timeout_s: float) -> None:
        """As `Engine.trim`."""
        request = {"seq": first}
        self._connection.call(lambda: self._api("STREAM.PURGE", request, timeout_s), timeout_s)

    def vouch(self, timeout_s: float) -> None:
        """As `Engine.vouch`."""

        async def vouch() -> None:
            info = await self._info(timeout_s)
            stream.check(info["config"], self._settings)
            names = [name for name, _ in _servers(info)]
            synced = await self._synced(len(names), MINORITY_ANSWERS_S)
            if synced is None and not self._is_unserved_for_long():
                raise LogUnavailableError(sync_proof.UNPROVED)
            sync_proof.demand(synced, names)

        self._connection.call(vouch, timeout_s + SERVERS_ANSWER_S)

    def health(self, timeout_s: float) -> EngineHealth:
        """As `Engine.health`."""
        return self._connection.call(lambda: self._health(timeout_s), timeout_s + SERVERS_ANSWER_S)

    def move_leader(self, away_from: str, timeout_s: float) -> str:
        """As `Engine.move_leader`."""
        return self._connection.call(lambda: self._move_leader(away_from, timeout_s), timeout_s)

    def close(self) -> None:
        """As `Engine.close`."""
        self._connection.close()

    async def _prepare(self, timeout_s: float) -> None:
        try:
            info = await self._ask("STREAM.INFO", None, timeout_s)
        except answers.Refusal as refusal:
            if refusal.code != answers.STREAM_NOT_FOUND:
                raise refusal.as_trouble() from None
            wanted = stream.configuration(self._settings)
            try:
                info = await self._ask("STREAM.CREATE", wanted, timeout_s)
            except (
                answers.Refusal
            ) as late:  # of another broker that made it, or of servers that do not know each other yet
                raise late.as_trouble() from None
        stream.check(info["config"], self._settings)

    async def _append(self, data: bytes, after: int, timeout_s: float) -> int:
        headers = {"Nats-Expected-Stream": self._settings.stream, "Nats-Expected-Last-Sequence": str(after)}
        answer = await self._connection.request(self._settings.subject, data, timeout_s, headers)
        try:
            stored = int(answers.result(answer.data)["seq"])
        except answers.Refusal as refusal:
            if refusal.code == answers.WRONG_LAST_SEQUENCE:
                raise AppendRefused from None
            raise refusal.as_trouble() from None
        self._connection.reach(leader=True)
        return stored

    async def _get(self, sequence: int, timeout_s: float) -> bytes | None:
        try:
            answer = await self._ask("STREAM.MSG.GET", {"seq": sequence}, timeout_s)
        except answers.Refusal as refusal:
            if refusal.code == answers.NO_MESSAGE:
                return None
            raise refusal.as_trouble() from None
        return answers.data_of(answer["message"])

    async def _read(self, first: int, last: int, limit_bytes: int, timeout_s: float) -> Sequence[Message]:
        messages: list[Message] = []
        size, width = 0, 1
        while first <= last and size < limit_bytes:
            sequences = range(first, min(first + width, last + 1))
            found = await asyncio.gather(*(self._get(sequence, timeout_s) for sequence in sequences))
            pairs = zip(sequences, found, strict=True)
            there = [Message(sequence, data) for sequence, data in pairs if data is not None]
            messages.extend(there)
            if len(there) < len(sequences):
                break
            size += sum(len(message.data) for message in there)
            first += len(sequences)
            each_bytes = max(size // len(messages), 1)
            width = max(1, min(GETS_MAX, 4 * width, (limit_bytes - size) // each_bytes))
        return messages

    async def _health(self, timeout_s: float) -> EngineHealth:
        info = await self._info(timeout_s)
        servers = _servers(info)
        synced = await self._synced(len(servers), SERVERS_ANSWER_S)
        known = synced or {}
        replicas = [
            ReplicaHealth(
                server=name,
                leads=state is None,
                current=state is None or (bool(state.get("current")) and _is_heard(state)),
                lag=0 if state is None else int(state.get("lag", 0)),
                synced=known.get(name),
                heard=state is None or _is_heard(state),
            )
            for name, state in servers
        ]
        trouble = [*self._trouble(info, replicas), *stream.hindrances(info["config"], self._settings)]
        if synced is None:
            trouble.append(sync_proof.UNPROVED)
        stops = stream.stops(info["config"], self._settings)
        return EngineHealth(replicas, _bounds(info), int(info["state"]["bytes"]), trouble, stops)

    def _trouble(self, info: Mapping[str, Any], replicas: Sequence[ReplicaHealth]) -> list[str]:
        trouble: list[str] = []
        wanted = int(info["config"]["num_replicas"])
        if not any(replica.leads for replica in replicas):
            trouble.append("nobody leads the log: an election, or no quorum")
        if missing := wanted - len(replicas):
            trouble.append(f"{missing} of {wanted} replicas of the log {'has' if missing == 1 else 'have'} no server")
        trouble.extend(replica.trouble for replica in replicas if not replica.current)
        if lazy := [replica.server for replica in replicas if replica.synced is False]:
            trouble.append(sync_proof.lazy_sentence(lazy))
        return trouble

    async def _move_leader(self, away_from: str, timeout_s: float) -> str:
        info = await self._info(timeout_s)
        leader = _leader(info)
        if leader and leader != away_from:
            return leader
        others = [name for name, state in _servers(info) if state and state.get("current") and not state.get("offline")]
        if not others:
            raise LogUnavailableError(f"no server but {away_from} is current, so that none may lead the log")
        # The servers take the first of equals as well as any; the preferred one may have failed meanwhile.
        await self._api("STREAM.LEADER.STEPDOWN", {"placement": {"preferred": others[0]}}, timeout_s)
        while True:
            await asyncio.sleep(LEADERSHIP_POLL_S)
            with contextlib.suppress(LogUnavailableError):
                leader = _leader(await self._info(ATTEMPT_S))
                if leader and leader != away_from:
                    return leader

    def _is_unserved_for_long(self) -> bool:
        """Whether nobody has served the question for so long that it is no server that ends or reads its configuration
        again."""
        now_s = elapsed_s()
        if now_s - self._unserved_s[1] > UNSERVED_S:
            self._unserved_s = now_s, now_s
        began_s, _ = self._unserved_s = self._unserved_s[0], now_s
        return now_s - began_s > UNSERVED_S

    async def _synced(self, wanted: int, minority_s: float) -> dict[str, bool] | None:
        answered = await self._connection.gather(sync_proof.SUBJECT, wanted, SERVERS_ANSWER_S, minority_s)
        return None if answered is None else sync_proof.synced_by_server(answered)

    async def _info(self, timeout_s: float) -> dict[str, Any]:
        info = await self._api("STREAM.INFO", None, timeout_s)
        self._connection.reach(leader=_settled(info))
        return info

    async def _api(self, operation: str, request: Mapping[str, Any] | None, timeout_s: float) -> dict[str, Any]:
        try:
            return await self._ask(operation, request, timeout_s)
        except answers.Refusal as refusal:
            raise refusal.as_trouble() from None

    async def _ask(self, operation: str, request: Mapping[str, Any] | None, timeout_s: float) -> dict[str, Any]:
        payload = b"" if request is None else msgspec.json.encode(request)
        subject = f"$JS.API.{operation}.{self._settings.stream}"
        return answers.result((await self._connection.request(subject, payload, timeout_s)).data)


def _bounds(info: Mapping[str, Any]) -> Bounds:
    state = info["state"]
    last = int(state["last_seq"])
    return Bounds(int(state["first_seq"]) if int(state["messages"]) else last + 1, last, _settled(info))


def _settled(info: Mapping[str, Any]) -> bool:
    """Whether who answered has all that is acknowledged: it has heard of a majority so lately that nobody can have been
    elected since, and has applied what it had as it was elected, for servers name no leader before."""
    cluster = info.get("cluster") or {}
    others = cluster.get("replicas") or ()
    leads = bool(cluster.get("leader")) or not cluster
    return leads and 2 * (1 + sum(map(_is_heard, others))) > 1 + len(others)


def _is_heard(state: Mapping[str, Any]) -> bool:
    """Whether the leader has heard of a server lately."""
    return not state.get("offline") and int(state.get("active", 0)) < HEARD_WITHIN_NS


def _leader(info: Mapping[str, Any]) -> str | None:
    return info.get("cluster", {}).get("leader") or None


def _servers(info: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any] | None]]:
    """The servers that keep the stream, with what the leader says of them; it says nothing of itself."""
    leader = _leader(info)
    found: list[tuple[str, Mapping[str, Any] | None]] = [] if leader is None else [(leader, None)]
    found.extend((str(each["name"]), each) for each in info.get("cluster", {}).get("replicas") or ())
    return found
