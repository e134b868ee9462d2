"""What sinks ask of the management address (type `stage`): to stage rows, to publish a batch, to give stages up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from legato.bulk.stages import (
    MessageRecord,
    Record,
    Run,
    discard_stages,
    path_of,
    read_stage,
    remove_stages,
)
from legato.core.queues import Queue
from legato.core.refusals import Refusal
from legato.core.staging import StagedMessage, StagedRun
from legato.core.traits import Traits
from legato.errors import StoreError
from legato.server.arguments import Pending, Rejection, number, text
from legato.server.refused import Refused

if TYPE_CHECKING:
    from legato.core.broker import Broker
    from legato.server.bulk import BulkProcess
    from legato.server.nodes import Nodes

_PRODUCER = "sink://"


class Publishing(Pending):
    """A batch whose publication is under way; `published` is called when it is durable."""

    def __init__(self, transactional_id: str, batch: int, published: Callable[[str, int], None]) -> None:
        super().__init__(transactional_id, "published")
        self.transactional_id = transactional_id
        self.batch = batch
        self._published = published

    def finish(self, count: int) -> None:
        self._published(self.transactional_id, self.batch)
        super().finish(count)


class Stages:
    """Performs operations of type `stage`.

    Args:
        store: the store's directory.
        advance: is called after something was done outside a peer's turn.
    """

    def __init__(
        self, broker: Broker, nodes: Nodes, bulk: BulkProcess, store: Path, advance: Callable[[], None]
    ) -> None:
        self._broker = broker
        self._nodes = nodes
        self._bulk = bulk
        self._store = store
        self._advance = advance
        self._under_way: set[asyncio.Task[None]] = set()
        self._by_name: dict[str, Callable[[dict[str, Any]], Any]] = {
            "ticket": self._ticket,
            "publish": self._publish,
            "discard": self._discard,
        }

    def perform(self, operation: str, arguments: dict[str, Any]) -> Any:
        """See `Operations.perform`."""
        perform = self._by_name.get(operation)
        if perform is None:
            raise Rejection(f"operation is {operation!r}; of stages there are {', '.join(self._by_name)}.")
        return perform(arguments)

    def _ticket(self, arguments: dict[str, Any]) -> Any:
        name, batch, stage = text(arguments, "name"), number(arguments, "batch", 0), text(arguments, "stage")
        return self._bulk.answer(name, self._bulk.stage_ticket(name, batch, stage))

    def _publish(self, arguments: dict[str, Any]) -> Any:
        """Publish the stages of a batch, once: the answer says how many messages became visible by it."""
        name, batch = text(arguments, "name"), number(arguments, "batch", 0)
        pending = Publishing(name, batch, self._published)
        if self._broker.is_published(_PRODUCER + name, batch + 1):
            self._broker.publish_stage(_PRODUCER + name, batch + 1, [], [], pending)
            return pending
        task = asyncio.get_running_loop().create_task(self._read_and_publish(pending, _names(arguments)))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return pending

    async def _read_and_publish(self, pending: Publishing, stages: list[str]) -> None:
        name, batch = pending.transactional_id, pending.batch
        loop = asyncio.get_running_loop()
        try:
            read = [
                loop.run_in_executor(None, read_stage, path_of(self._store, name, batch, stage)) for stage in stages
            ]
            records = [record for stage in await asyncio.gather(*read) for record in stage]
            runs, messages = self._staged(records)
            self._broker.publish_stage(_PRODUCER + name, batch + 1, runs, messages, pending)
        except (StoreError, Refused, Refusal) as error:
            if self._broker.is_published(_PRODUCER + name, batch + 1):
                # Asked twice at once: it was published, and its files are written over already.
                self._broker.publish_stage(_PRODUCER + name, batch + 1, [], [], pending)
            else:
                pending.failed(str(error))
        self._advance()

    def _staged(self, records: list[Record]) -> tuple[list[StagedRun], list[StagedMessage]]:
        runs: list[StagedRun] = []
        messages: list[StagedMessage] = []
        for record in records:
            if isinstance(record, Run):
                said, blocks = record
                queue = self._nodes.find(said.destination, ["queue"])
                assert isinstance(queue, Queue)
                runs.append(StagedRun(queue, said.priority, said.count, said.size, blocks, said.grouped))
            else:
                messages.append(self._message(record))
        return runs, messages

    def _message(self, record: MessageRecord) -> StagedMessage:
        node = self._nodes.find(record.destination, ["topic" if record.topic else "queue"])
        traits = Traits(record.priority, record.expires_us, record.deliver_us, record.group, False, record.duplicate_id)
        return StagedMessage(node, record.body, record.message_id, traits)

    def _published(self, transactional_id: str, batch: int) -> None:
        """The batch is durable: what was staged for it, and for those before it, is needed no more."""
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, remove_stages, self._store, transactional_id, batch)

    def _discard(self, arguments: dict[str, Any]) -> Any:
        """Give stages up; those of a batch that was published are gone already."""
        name, batch = text(arguments, "name"), number(arguments, "batch", 0)
        discard_stages(self._store, name, batch, _names(arguments))
        return {"name": name, "batch": batch}


def _names(arguments: dict[str, Any]) -> list[str]:
    names = arguments.get("stages", [])
    if isinstance(names, str):
        names = [name for name in names.split(",") if name]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Rejection("stages is a list of names.")
    return names
