"""Management of staged batches (type `stage`): stage rows, publish a batch, abort it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from legato import limits
from legato.bulk.stage_files import (
    BlockRun,
    DigestRecord,
    MessageRecord,
    Record,
    digest_of,
    discard_stages,
    path_of,
    read_stage,
    remove_stages,
    stages_through,
)
from legato.bulk.stored_stages import checked
from legato.core.broker import Broker
from legato.core.producers import ONCE_PREFIX, SINK_PREFIX
from legato.core.published_batches import BatchIdentity
from legato.core.queues import Queue
from legato.core.refusals import Refusal
from legato.core.staged_batches import BatchBrokenOffError, StagedMessage, StagedRun
from legato.core.traits import Traits
from legato.errors import StoreError
from legato.quoting import quoted, sentence
from legato.server.access.permissions import SEND, Rights
from legato.server.limits.accounts import Holdings
from legato.server.limits.names import Names
from legato.server.links.nodes import Nodes
from legato.server.links.refused import Refused
from legato.server.management.bulk_process import BulkProcess
from legato.server.management.requests import Pending, Rejection, flag, number, text
from legato.sizes import sizes_apart

log = logging.getLogger("legato.stages")

_OWN = ("ticket", "publish", "discard", "published")
"""Operations whose transactional id is the asking user's; the others name one as a query shows it."""
_PAGE_ROWS_MAX = 1000
_READERS = 8


class Publishing(Pending):
    """A batch whose publication is under way; `published` is called when it is durable.

    Attributes:
        files: which are needed no more then.
    """

    def __init__(self, transactional_id: str, batch: int, published: Callable[[list[Path]], None]) -> None:
        super().__init__(transactional_id, "published")
        self.transactional_id = transactional_id
        self.batch = batch
        self.files: list[Path] = []
        self._published = published

    def finish(self, count: int) -> None:
        self._published(self.files)
        super().finish(count)


class Stages:
    """Performs operations of type `stage`.

    Args:
        store: the store's directory.
        advance: is called after something was done outside a peer's turn.
        fatal: is called when the epoch has to end before anything more is stored.
        commit_bytes_max: the size of the largest commit; None if there is no limit.
    """

    def __init__(
        self,
        broker: Broker,
        nodes: Nodes,
        bulk: BulkProcess,
        store: Path,
        advance: Callable[[], None],
        names: Names,
        fatal: Callable[[StoreError], None],
        commit_bytes_max: int | None = None,
    ) -> None:
        self._commit_bytes_max = commit_bytes_max
        self._fatal = fatal
        self._broker = broker
        self._nodes = nodes
        self._bulk = bulk
        self._store = store
        self._advance = advance
        self._names = names
        self._under_way: set[asyncio.Task[None]] = set()
        self._by_name: dict[str, Callable[[dict[str, Any]], Any]] = {
            "ticket": self._ticket,
            "discard": self._discard,
            "published": self._is_published,
            "forget": self._forget,
            "query": self._query,
        }

    def perform(
        self,
        operation: str,
        arguments: dict[str, Any],
        rights: Rights | None = None,
        realm: str = "",
        holdings: Holdings | None = None,
    ) -> Any:
        """See `Operations.perform`; a transactional id is its user's, and others' of the same name are others."""
        if operation in _OWN and isinstance(given := arguments.get("name"), str):
            self._check_name(str(given), realm)
        if realm and operation in _OWN and isinstance(arguments.get("name"), str):
            arguments = arguments | {"name": realm + str(arguments["name"])}
        if operation == "publish":
            return self._publish(arguments, rights, holdings)
        perform = self._by_name.get(operation)
        if perform is None:
            raise Rejection(f"operation is {operation!r}; of stages there are publish, {', '.join(self._by_name)}.")
        return perform(arguments)

    def _check_name(self, given: str, realm: str) -> None:
        """See that a sink that is not known yet may have that name."""
        is_known = self._broker.producers.is_known
        prefixes = (SINK_PREFIX, ONCE_PREFIX)
        self._names.check(given, "a sink", lambda: any(is_known(prefix + realm + given) for prefix in prefixes))

    def _ticket(self, arguments: dict[str, Any]) -> Any:
        name, batch, stage = text(arguments, "name"), number(arguments, "batch", 0), text(arguments, "stage")
        self._path(name, batch, stage)
        return self._bulk.answer(name, self._bulk.stage_ticket(name, batch, stage, self._bulk.holder_in(arguments)))

    def _publish(self, arguments: dict[str, Any], rights: Rights | None, holdings: Holdings | None) -> Any:
        """Publish the stages of a batch, once: the answer says how many messages became visible by it."""
        name, batch = self._batch(arguments)
        stages = _names(arguments)
        pending = Publishing(name, batch, self._published)
        verified = not flag(arguments, "unverified")
        identity = BatchIdentity(stages=_digest_of_names(stages), verified=verified)
        producer = (ONCE_PREFIX if flag(arguments, "once") else SINK_PREFIX) + name
        self._begin(self._read_and_publish(pending, producer, stages, identity, rights, holdings))
        return pending

    def _batch(self, arguments: dict[str, Any]) -> tuple[str, int]:
        """Whose batch is meant, and which."""
        name, batch = text(arguments, "name"), number(arguments, "batch", 0)
        self._path(name, batch, "")
        return name, batch

    def _path(self, name: str, batch: int, stage: str) -> Path:
        try:
            return path_of(self._store, name, batch, stage)
        except ValueError as error:
            raise Rejection(f"The request cannot be met: {error}.") from None

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _is_published(self, arguments: dict[str, Any]) -> Any:
        """Whether a batch was published here: its destination may have moved to another group since."""
        name, batch = self._batch(arguments)
        return {"name": name, "published": self._broker.staged_batches.is_published(SINK_PREFIX + name, batch + 1)}

    def _forget(self, arguments: dict[str, Any]) -> Any:
        """Forget a sink: which of its batches are published."""
        name = text(arguments, "name")
        self._broker.staged_batches.forget_sink(SINK_PREFIX + name)
        return {"name": name}

    def _query(self, arguments: dict[str, Any]) -> Any:
        """The sinks that are remembered, each with its last batch and how many rows that had."""
        offset, count = number(arguments, "offset", 0), number(arguments, "count", _PAGE_ROWS_MAX)
        count = min(count, _PAGE_ROWS_MAX)
        sinks = self._broker.staged_batches.sinks(offset, count + 1)
        rows = [
            {
                "name": sink.name.removeprefix(SINK_PREFIX),
                "last_batch": sink.last_number - 1,
                "rows": sink.batches[-1].count if sink.batches else None,
            }
            for sink in sinks[:count]
        ]
        return {"results": rows, "more": len(sinks) > count}

    async def _read_and_publish(
        self,
        pending: Publishing,
        name: str,
        stages: list[str],
        identity: BatchIdentity,
        rights: Rights | None,
        holdings: Holdings | None,
    ) -> None:
        number = pending.batch + 1
        try:
            records = await self._read(pending, stages)
            identity = _identified(identity, len(stages), records)
            # Destinations are not looked up, nor made, for a batch that is published.
            published = self._broker.staged_batches.is_published(name, number)
            runs, messages = ([], []) if published else self._staged(records, rights, holdings)
            self._refuse_more_than_a_commit(runs, messages)
            self._broker.staged_batches.publish(name, number, runs, messages, pending, identity)
        except BatchBrokenOffError as error:
            # An answer would be a lie, and the next commit would make what is there of it durable.
            self._fatal(error)
            return
        except (StoreError, Refused, Refusal, Rejection) as error:
            self._fail(pending, name, number, identity, error)
        except Exception as error:
            log.exception("! a batch of %.100r was not published", name)
            self._fail(pending, name, number, identity, error)
        self._advance()

    def _refuse_more_than_a_commit(self, runs: list[StagedRun], messages: list[StagedMessage]) -> None:
        """A batch is published in one commit, in which others have their part, too."""
        if self._commit_bytes_max is None:
            return
        bytes_max = max(self._commit_bytes_max - limits.BATCH_BYTES_MAX, 0)
        staged_bytes = sum(len(block) for run in runs for block in run.blocks) + sum(len(m.body) for m in messages)
        if staged_bytes > bytes_max:
            told, most = sizes_apart(staged_bytes, bytes_max)
            raise Rejection(
                f"The batch has {told}; brokers with a replicated log publish {most} at once: write less in a batch "
                "(a stream: maxBytesPerTrigger or maxFilesPerTrigger of what it reads)."
            )

    async def _read(self, pending: Publishing, stages: list[str]) -> list[Record]:
        """Read the staged records; several threads read, each some of the stages.

        What is staged after the answer is another attempt's, also if it is for the same batch: it is to stay. So the
        files that go with the batch are looked for now.
        """
        loop = asyncio.get_running_loop()
        part = -(-len(stages) // _READERS) or 1
        parts = [stages[begin : begin + part] for begin in range(0, len(stages), part)] or [[]]

        def read(some: list[str]) -> list[Record]:
            if some is parts[0]:
                pending.files = stages_through(self._store, pending.transactional_id, pending.batch)
            paths = [(stage, self._path(pending.transactional_id, pending.batch, stage)) for stage in some]
            return [record for stage, path in paths for record in checked(stage, read_stage(path))]

        found = await asyncio.gather(*[loop.run_in_executor(None, read, some) for some in parts])
        return [record for records in found for record in records]

    def _fail(self, pending: Publishing, name: str, number: int, identity: BatchIdentity, error: Exception) -> None:
        """Answer why a batch was not published; if it was asked for twice at once, it was."""
        try:
            if self._broker.staged_batches.is_published(name, number):
                # Its files are written over already.
                self._broker.staged_batches.publish(name, number, [], [], pending, identity)
                return
        except (Refusal, StoreError) as second:
            error = second
        # Of a stage that cannot be read the store names the file alone; what is unforeseen may name anything.
        told = isinstance(error, (StoreError, Refused, Refusal, Rejection))
        pending.failed(str(error) if told else "The broker could not do that; its log says why.")

    def _staged(
        self, records: list[Record], rights: Rights | None, holdings: Holdings | None
    ) -> tuple[list[StagedRun], list[StagedMessage]]:
        runs: list[StagedRun] = []
        messages: list[StagedMessage] = []
        for record in records:
            if isinstance(record, BlockRun):
                said, blocks = record
                queue = self._nodes.find(said.destination, ["queue"], rights, SEND, holdings)
                if not isinstance(queue, Queue):
                    raise Rejection(f"{said.destination!r} is no queue.")
                runs.append(StagedRun(queue, said.priority, said.count, said.size, blocks, said.grouped))
            elif isinstance(record, MessageRecord):
                messages.append(self._message(record, rights, holdings))
        return runs, messages

    def _message(self, record: MessageRecord, rights: Rights | None, holdings: Holdings | None) -> StagedMessage:
        capabilities = ["topic" if record.topic else "queue"]
        node = self._nodes.find(record.destination, capabilities, rights, SEND, holdings)
        traits = Traits(record.priority, record.expires_us, record.deliver_us, record.group, False, record.duplicate_id)
        return StagedMessage(node, record.body, record.message_id, traits)

    def _published(self, files: list[Path]) -> None:
        """The batch is durable: what was staged for it, and for those before it, is needed no more."""
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, remove_stages, self._store, files)

    def _discard(self, arguments: dict[str, Any]) -> Any:
        """Give stages up; those of a batch that was published are gone already."""
        name, batch = self._batch(arguments)
        pending = Pending(name, "discarded")
        self._begin(self._discard_and_answer(pending, name, batch, _names(arguments)))
        return pending

    async def _discard_and_answer(self, pending: Pending, name: str, batch: int, stages: list[str]) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, discard_stages, self._store, name, batch, stages)
            pending.done({"name": name, "batch": batch})
        except (OSError, ValueError) as error:
            log.error("! stages of %s cannot be given up: %s", quoted(name), sentence(error))
            pending.failed("The stages cannot be given up; the broker's log says why.")
        self._advance()


def _names(arguments: dict[str, Any]) -> list[str]:
    names = arguments.get("stages", [])
    if isinstance(names, str):
        names = [name for name in names.split(",") if name]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Rejection("stages is a list of names.")
    return [str(name) for name in names]


def _digest_of_names(stages: list[str]) -> bytes:
    return hashlib.sha256(",".join(sorted(stages)).encode(errors="replace")).digest()[:8]


def _identified(identity: BatchIdentity, stages: int, records: list[Record]) -> BatchIdentity:
    """With the digest of its rows, if all of its stages say theirs: those of former versions do not."""
    said = [record for record in records if isinstance(record, DigestRecord)]
    digest = digest_of(said) if len(said) == stages else b""
    return msgspec.structs.replace(identity, count=sum(record.count for record in said), digest=digest)
