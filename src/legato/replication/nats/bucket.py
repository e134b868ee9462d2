"""A bucket of JetStream's key-value store: a stream that keeps the last message on each of its subjects."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from legato.errors import LogUnavailableError
from legato.replication.nats import answers
from legato.replication.nats.connection import Connection
from legato.replication.patience import Patience

_T = TypeVar("_T")
_REMOVED = b"KV-Operation:"
"""The header of a message in the place of a value that was removed."""
_NOT_THERE = {answers.STREAM_NOT_FOUND, answers.NO_MESSAGE}


@dataclass(frozen=True, slots=True)
class Value:
    """What a key has.

    Args:
        sequence: of the message.
        data: its bytes.
        said: when it came, by the servers' clocks; None if they do not say.
        removed: somebody removed the value, with tools of NATS, which leave a message that says so.
    """

    sequence: int
    data: bytes
    said: datetime | None
    removed: bool = False


def insist(connection: Connection, ask: Callable[[float], Coroutine[Any, Any, _T]], timeout_s: float) -> _T:
    """The result of a call that servers may not answer at once: a bucket that was just made has no leader yet.

    Args:
        connection: in whose loop it runs.
        ask: the call; told how long its attempt may take.
        timeout_s: how long all attempts may take.

    Raises:
        LogUnavailableError: no answer in time.
    """
    return Patience(timeout_s).insist(lambda attempt_s: connection.call(lambda: ask(attempt_s), attempt_s))


class ValueChangedError(Exception):
    """The key has got another value meanwhile."""


class Bucket:
    """A bucket, by the requests of JetStream. It is made when something is put into it first.

    Calls run in the connection's loop, and raise `LogUnavailableError` when their time is over.

    Args:
        connection: to the servers.
        name: of the bucket.
        description: of what is in it, for whoever looks at the servers' streams.
        replicas: on how many servers it is kept.
    """

    def __init__(self, connection: Connection, name: str, description: str, replicas: int) -> None:
        self._connection = connection
        self._stream = f"KV_{name}"
        self._prefix = f"$KV.{name}."
        self._description = description
        self._replicas = replicas
        self._is_there = False

    async def put(self, key: str, data: bytes, timeout_s: float, after: int | None = None) -> None:
        """Give a key a value.

        Args:
            key: of letters, digits, hyphens and `=`.
            data: the value.
            timeout_s: how long to wait.
            after: the sequence of the value that it has, 0 for none; None: it does not matter.

        Raises:
            ValueChangedError: it has another one.
        """
        if not self._is_there:
            await self._prepare(timeout_s)
        headers = None if after is None else {"Nats-Expected-Last-Subject-Sequence": str(after)}
        try:
            answer = await self._connection.request(f"{self._prefix}{key}", data, timeout_s, headers)
            answers.result(answer.data)
        except answers.Refusal as refusal:
            if refusal.code == answers.WRONG_LAST_SEQUENCE:
                raise ValueChangedError from None
            raise refusal.as_trouble() from None
        except LogUnavailableError:
            self._is_there = False  # its servers may have lost their disks
            raise

    async def last(self, key: str, timeout_s: float) -> Value | None:
        """The value of a key, or what says that it was removed; None if it never had one."""
        try:
            answer = await self._ask("STREAM.MSG.GET", {"last_by_subj": f"{self._prefix}{key}"}, timeout_s)
        except answers.Refusal as refusal:
            if refusal.code in _NOT_THERE:
                return None
            raise refusal.as_trouble() from None
        message: Mapping[str, Any] = answer["message"]
        removed = _REMOVED in answers.headers_of(message)
        return Value(int(message["seq"]), answers.data_of(message), _time(message.get("time")), removed)

    async def keys(self, timeout_s: float) -> tuple[Sequence[str], datetime | None]:
        """All keys that have a value, in their order, and what time it is by the servers' clocks."""
        info = await self._info({"subjects_filter": f"{self._prefix}>"}, timeout_s)
        if info is None:
            return (), None
        subjects = sorted(info["state"].get("subjects") or ())
        return [subject.removeprefix(self._prefix) for subject in subjects], _time(info.get("ts"))

    async def revision(self, timeout_s: float) -> tuple[int, str]:
        """The sequence of the last value that was put, and when: it changes with each. 0 if there never was one."""
        info = await self._info(None, timeout_s)
        return (0, "") if info is None else (int(info["state"]["last_seq"]), str(info["state"].get("last_ts", "")))

    async def remove(self, key: str, timeout_s: float) -> bool:
        """Remove a key; whether it had a value."""
        try:
            purged = await self._ask("STREAM.PURGE", {"filter": f"{self._prefix}{key}"}, timeout_s)
        except answers.Refusal as refusal:
            if refusal.code in _NOT_THERE:
                return False
            raise refusal.as_trouble() from None
        return int(purged.get("purged", 0)) > 0

    async def _info(self, request: Mapping[str, Any] | None, timeout_s: float) -> dict[str, Any] | None:
        """What there is of the stream; None if it is not there."""
        try:
            return await self._ask("STREAM.INFO", request, timeout_s)
        except answers.Refusal as refusal:
            if refusal.code in _NOT_THERE:
                return None
            raise refusal.as_trouble() from None

    async def _prepare(self, timeout_s: float) -> None:
        if await self._info(None, timeout_s) is None:
            try:
                await self._ask("STREAM.CREATE", self._configuration(), timeout_s)
            except answers.Refusal as late:
                raise late.as_trouble() from None
        self._is_there = True

    def _configuration(self) -> dict[str, Any]:
        """What a new bucket is made with: each key has one value."""
        return {
            "name": self._stream,
            "description": self._description,
            "subjects": [f"{self._prefix}>"],
            "retention": "limits",
            "storage": "file",
            "num_replicas": self._replicas,
            "discard": "new",
            "max_msgs_per_subject": 1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_msg_size": -1,
            "deny_delete": True,
            "allow_rollup_hdrs": True,
        }

    async def _ask(self, operation: str, request: Mapping[str, Any] | None, timeout_s: float) -> dict[str, Any]:
        payload = b"" if request is None else msgspec.json.encode(request)
        return answers.result(
            (await self._connection.request(f"$JS.API.{operation}.{self._stream}", payload, timeout_s)).data
        )


def _time(text: object) -> datetime | None:
    """A time as the servers say it; None if it is none."""
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
