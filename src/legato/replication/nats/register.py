"""The register of replicas as a bucket of JetStream's key-value store: a subject for each broker, its last message."""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from legato.errors import LogUnavailableError
from legato.replication.nats import answers
from legato.replication.nats.connection import Connection
from legato.replication.nats.settings import NatsSettings
from legato.replication.register import Entry, Registered

BEGIN_KEY = "=begin"
"""The key of an administrator's word that the group is new; no key of a broker is like that."""
ENTRIES_MAX = 100
"""A group has a handful of brokers; what more there may be was not put there by them."""
_NOT_THERE = {answers.STREAM_NOT_FOUND, answers.NO_MESSAGE}


def open_register(settings: NatsSettings, timeout_s: float) -> "NatsRegister":
    """The register of a group, to be closed.

    Args:
        settings: which servers, which group, which credentials.
        timeout_s: wait so long for servers.

    Raises:
        LogAccessError: the servers refuse the credentials.
        LogUnavailableError: they do not answer.
    """
    connection = Connection(settings)
    try:
        connection.wait_for_first(timeout_s)
    except BaseException:
        connection.close()
        raise
    return NatsRegister(connection, settings)


class NatsRegister:
    """A bucket, by the requests of JetStream. It is made when the first broker has something to say.

    Args:
        connection: to the servers of the log.
        settings: of the group.
    """

    def __init__(self, connection: Connection, settings: NatsSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._is_there = False

    def say(self, entry: Entry, timeout_s: float) -> None:
        """As `Register.say`."""
        self._connection.call(lambda: self._say(entry, timeout_s), timeout_s)

    def entries(self, timeout_s: float) -> Sequence[Registered]:
        """As `Register.entries`."""
        return self._connection.call(lambda: self._entries(timeout_s), timeout_s)

    def allow_beginning(self, timeout_s: float) -> None:
        """As `Register.allow_beginning`."""
        self._connection.call(lambda: self._put(self._begin_subject, b"{}", timeout_s), timeout_s)

    def may_begin(self, timeout_s: float) -> bool:
        """As `Register.may_begin`."""
        found = self._connection.call(lambda: self._message(self._begin_subject, timeout_s), timeout_s)
        return found is not None

    def forget(self, listen: str, timeout_s: float) -> bool:
        """As `Register.forget`."""
        return self._connection.call(lambda: self._forget(listen, timeout_s), timeout_s)

    def close(self) -> None:
        """Leave the servers, and with them a log on the same connection."""
        self._connection.close()

    async def _say(self, entry: Entry, timeout_s: float) -> None:
        subject = self._subject(entry.listen)
        if not entry.commits:
            former = await self._last(subject, timeout_s)
            if former is not None and former.entry.commits:
                return
        await self._put(subject, msgspec.json.encode(entry), timeout_s)

    async def _put(self, subject: str, data: bytes, timeout_s: float) -> None:
        if not self._is_there:
            await self._prepare(timeout_s)
        try:
            answer = await self._connection.request(subject, data, timeout_s)
            answers.result(answer.data)
        except (answers.Refusal, LogUnavailableError) as error:
            self._is_there = False  # its servers may have lost their disks
            raise error.as_trouble() if isinstance(error, answers.Refusal) else error from None

    async def _entries(self, timeout_s: float) -> Sequence[Registered]:
        try:
            info = await self._ask("STREAM.INFO", {"subjects_filter": f"{self._settings.register_prefix}>"}, timeout_s)
        except answers.Refusal as refusal:
            if refusal.code in _NOT_THERE:
                return ()
            raise refusal.as_trouble() from None
        subjects = sorted(set(info["state"].get("subjects") or ()) - {self._begin_subject})[:ENTRIES_MAX]
        found = [await self._last(subject, timeout_s, _time(info.get("ts"))) for subject in subjects]
        return [each for each in found if each is not None]

    async def _forget(self, listen: str, timeout_s: float) -> bool:
        try:
            purged = await self._ask("STREAM.PURGE", {"filter": self._subject(listen)}, timeout_s)
        except answers.Refusal as refusal:
            if refusal.code in _NOT_THERE:
                return False
            raise refusal.as_trouble() from None
        return int(purged.get("purged", 0)) > 0

    async def _last(self, subject: str, timeout_s: float, now: datetime | None = None) -> Registered | None:
        """The entry on a subject; None if there is none that a broker wrote."""
        message = await self._message(subject, timeout_s)
        if message is None:
            return None
        with contextlib.suppress(msgspec.DecodeError, ValueError):
            entry = msgspec.json.decode(answers.data_of(message), type=Entry)
            said = _time(message.get("time"))
            age_s = 0.0 if now is None or said is None else max((now - said).total_seconds(), 0.0)
            return Registered(entry, age_s)
        return None

    async def _message(self, subject: str, timeout_s: float) -> Mapping[str, Any] | None:
        """The last message on a subject; None if there is none."""
        try:
            answer = await self._ask("STREAM.MSG.GET", {"last_by_subj": subject}, timeout_s)
        except answers.Refusal as refusal:
            if refusal.code in _NOT_THERE:
                return None
            raise refusal.as_trouble() from None
        message: Mapping[str, Any] = answer["message"]
        return message

    async def _prepare(self, timeout_s: float) -> None:
        try:
            await self._ask("STREAM.INFO", None, timeout_s)
        except answers.Refusal as refusal:
            if refusal.code != answers.STREAM_NOT_FOUND:
                raise refusal.as_trouble() from None
            try:
                await self._ask("STREAM.CREATE", self._configuration(), timeout_s)
            except answers.Refusal as late:
                raise late.as_trouble() from None
        self._is_there = True

    def _configuration(self) -> dict[str, Any]:
        """What a new bucket is made with: each key has one value."""
        return {
            "name": self._settings.register_stream,
            "description": f"The register of the replicas of the Legato group {self._settings.group}",
            "subjects": [f"{self._settings.register_prefix}>"],
            "retention": "limits",
            "storage": "file",
            "num_replicas": self._settings.replicas,
            "discard": "new",
            "max_msgs_per_subject": 1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_msg_size": -1,
            "deny_delete": True,
            "allow_rollup_hdrs": True,
        }

    @property
    def _begin_subject(self) -> str:
        return f"{self._settings.register_prefix}{BEGIN_KEY}"

    def _subject(self, listen: str) -> str:
        """The subject of a broker's entry: keys have letters, digits and few other characters."""
        key = "".join(
            letter if letter.isascii() and letter.isalnum() else "".join(f"={byte:02X}" for byte in letter.encode())
            for letter in listen
        )
        return f"{self._settings.register_prefix}{key}"

    async def _ask(self, operation: str, request: Mapping[str, Any] | None, timeout_s: float) -> dict[str, Any]:
        payload = b"" if request is None else msgspec.json.encode(request)
        subject = f"$JS.API.{operation}.{self._settings.register_stream}"
        return answers.result((await self._connection.request(subject, payload, timeout_s)).data)


def _time(text: object) -> datetime | None:
    """A time as the servers say it; None if it is none."""
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
