"""Two independent counts of a run of `machine_chaos`: by Spark's audit of a ledger, and by the stream of the log.

The stream is read with NATS's own client and by the description of its format alone (`docs/howto/replication.md`, the
docstrings of `legato.replication.envelopes` and `legato.store.commit_records`): nothing of Legato is called, so that a
mistake in how Legato reads its log cannot hide one in what it wrote.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import nats
from nats.js import JetStreamContext

from legato.spark.exporter import export_all

Numbered = tuple[int, int]
"""A producer, and the number that it gave to a message."""

_FIELDS = struct.Struct(">4sB3x8s8sII16s")
_DIGEST_BYTES = 16
_COMMIT, _EPOCH, _BEAT = 1, 2, 3
_BODY = re.compile(rb"\x00Sw\xa1.(\d+):(\d+)", re.DOTALL)
"""An AMQP value that is a short text of a producer's number and a message's."""
_SILENCE_S = 30.0


class StreamCount:
    """Counts the messages in records of a log, as whoever applies them has to.

    A message that does not follow the last by its digest is void, and so is a commit of an epoch that is over.

    Attributes:
        stored: how often each message was stored.
        records, voided: how many there are that count, and that do not.
    """

    def __init__(self) -> None:
        self.stored: Counter[Numbered] = Counter()
        self.records = self.voided = 0
        self._tip = bytes(_DIGEST_BYTES)
        self._parts: list[bytes] = []
        self._epoch = self._position = 0

    def feed(self, message: bytes) -> None:
        """The next message of the stream.

        Raises:
            ValueError: it is damaged, or does not follow by its number.
        """
        magic, _, _, _, part, parts, before = _FIELDS.unpack_from(message)
        fields, data = message[: _FIELDS.size], message[_FIELDS.size + _DIGEST_BYTES :]
        digest = message[_FIELDS.size : _FIELDS.size + _DIGEST_BYTES]
        if magic != b"LGRL" or hashlib.blake2b(fields + data, digest_size=_DIGEST_BYTES).digest() != digest:
            raise ValueError("a message of the stream is damaged")
        if before != self._tip:
            self.voided += 1
            return
        self._tip = digest
        self._parts = [*(self._parts if part else []), data]
        if part == parts - 1:
            self._record(b"".join(self._parts))

    def _record(self, data: bytes) -> None:
        tag, *rest = msgspec.msgpack.decode(data)
        if tag == _BEAT:
            return
        position, log_bytes = rest[:2]
        epoch = msgspec.msgpack.decode(log_bytes)[0]
        if epoch != self._epoch + (tag == _EPOCH):
            self.voided += 1
            return
        if position != self._position + 1:
            raise ValueError(f"commit {position} follows commit {self._position}")
        self._epoch, self._position = epoch, position
        self.records += 1
        if tag == _COMMIT:
            bodies, _, _, runs = rest[3:7]
            for body in (*bodies, *(piece for run in runs for piece in run)):
                self.stored.update((int(found[1]), int(found[2])) for found in _BODY.finditer(body))


async def _messages(stream: JetStreamContext, name: str) -> AsyncIterator[bytes]:
    """All messages that a stream has now."""
    last = (await stream.stream_info(name)).state.last_seq
    following = await stream.subscribe(">", stream=name, ordered_consumer=True)
    at = 0
    while at < last:
        message = await following.next_msg(timeout=_SILENCE_S)
        at = message.metadata.sequence.stream
        yield message.data
    await following.unsubscribe()


async def _count(servers: list[str], name: str) -> StreamCount:
    client: Any = await nats.connect(servers=servers)
    try:
        count = StreamCount()
        async for message in _messages(client.jetstream(), name):
            count.feed(message)
        return count
    finally:
        await client.close()


def count_stream(url: str, group: str) -> StreamCount:
    """What the stream of a group holds.

    Args:
        url: of the servers, with commas.
    """
    return asyncio.run(_count(url.split(","), f"LEGATO_{group}"))


def faults_of_stream(count: StreamCount, confirmed: Iterable[Numbered], refused: Iterable[Numbered]) -> Iterator[str]:
    """Sentences about what the stream should hold, and does not, or the reverse."""
    if lost := sorted(set(confirmed) - count.stored.keys()):
        yield f"the stream lacks {len(lost)} confirmed messages, such as {lost[:5]}"
    if false := sorted(set(refused) & count.stored.keys()):
        yield f"the stream has {len(false)} refused messages, such as {false[:5]}"
    if twice := [each for each, stored in count.stored.items() if stored > 1]:
        yield f"the stream has {len(twice)} messages twice, such as {twice[:5]}"


def audit(store: Path) -> dict[str, Any]:
    """Spark's audit of all that a store says of the past; no broker may use it."""
    ledger = store.parent / "ledger"
    export_all(store, ledger)
    command = [sys.executable, "-m", "legato.cli", "audit", str(ledger), "--store", str(store), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"the audit failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def faults_of_audit(found: dict[str, Any], queue: str, stored: int) -> Iterator[str]:
    """Sentences about what an audit says, and should not.

    Args:
        queue: whose messages were all consumed.
        stored: how many there were.
    """
    yield from (
        f"the audit: {check['sentence']}: {check['count']} offend" for check in found["checks"] if check["count"]
    )
    [told] = [each for each in found["queues"] if each["name"] == queue]
    names = ("stored", "consumed", "waiting", "lost", "duplicated")
    if tuple(told[name] for name in names) != (stored, stored, 0, 0, 0):
        yield f"of {stored} messages that were received the audit says: { ({name: told[name] for name in names}) }"
