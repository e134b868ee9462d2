"""Pipelines like Spark's drivers: they assign ranges, read them again, and publish each batch once."""

from __future__ import annotations

from typing import Any

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import Properties, ValueBody, encode_message
from legato.bulk.stage_files import BlockRun, MessageRecord, Record, RunRecord
from legato.client.steps import Steps
from legato.core.address_prefixes import ASSIGNMENT_PREFIX
from legato.store.block_writer import new_blocks
from simulator.administering import OK, Administering
from simulator.clients import sleep

ROWS_MAX = 5
"""Of a batch."""
SLEEPS_S = 2.5
"""Long enough for a broker to forget what is past its time."""


class Pipelining(Administering):
    """Drives a source or a sink; and all that an `Administering` application does."""

    # -- a source ------------------------------------------------------------------------------------------------

    def drain_by_ranges(self) -> Steps[None]:
        """Have what waits in a queue assigned, read it by ranges, acknowledge these."""
        yield from self._begin_asking()
        queue = self.random.choice(self.run.plan.queues).name
        opened = yield from self._open(queue)
        if opened is None:
            return
        name, fence, read = opened["name"], opened["fence"], opened["acknowledged"]
        while not self.run.ending:
            answer = yield from self._ask(
                "assign", type="assignment", name=name, fence=fence, limit=self.random.randint(1, 6)
            )
            if answer is not None and answer[0] != OK:
                # Another driver has it, or the queue selects.
                return
            if answer is None or answer[1]["last"] <= read:
                yield from sleep(0.1)
                continue
            through = self.random.randint(read + 1, answer[1]["last"])
            self.history.was_read(name, fence, self.run.read_range(name, read, through), read, through)
            if self.random.random() < 0.2:
                continue  # the driver plans the same range again
            answer = yield from self._ask("acknowledge", type="assignment", name=name, fence=fence, through=through)
            if answer is not None and answer[0] != OK:
                return
            if answer is not None:
                self.history.was_done_with(name, through)
            # With or without an answer: Spark wrote the batch down as done before it says so, and reads on behind it.
            read = through
            if self.random.random() < 0.1:
                return

    def _open(self, queue: str) -> Steps[dict[str, Any] | None]:
        latest = self.random.random() < 0.7
        answer = yield from self._ask("open", type="assignment", subscription="spark", address=queue, latest=latest)
        return answer[1] if answer is not None and answer[0] == OK else None

    def put_right(self) -> Steps[None]:
        """What administrators and pipelines left behind is ended, so that queues can be drained."""
        assignments = [name for name in self.history.names.values() if name.startswith(ASSIGNMENT_PREFIX)]
        if self.history.ever_paused or assignments:
            yield from self._begin_asking()
        for name in sorted(self.history.ever_paused):
            yield from self._resume(name)
        for name in assignments:
            yield from self.release_ranges(name)

    def release_ranges(self, name: str) -> Steps[None]:
        """What a pipeline did not acknowledge goes back to its queue: all of it, in the end."""
        while True:
            answer = yield from self._ask("release", type="assignment", name=name)
            if answer is not None:
                self._expect(answer[0] in (OK, 404), f"an assignment cannot be released: {answer}")
                return

    # -- a sink --------------------------------------------------------------------------------------------------

    def publish_batches(self) -> Steps[None]:
        """Publish batches; repeat one whose answer was lost, or one of long ago, as a driver that is started anew."""
        yield from self._begin_asking()
        sink = f"sink-{self.connection._transport.process}"  # type: ignore[attr-defined]
        published, batches = self.run.published, self.run.batches.setdefault(sink, [])
        leaps = self.history.counts["clocks leapt"]
        while not self.run.ending:
            number = published[sink]
            slept = leaps != self.history.counts["clocks leapt"]
            if slept:
                # The driver did not write down its last batch, and is started after a weekend.
                leaps = self.history.counts["clocks leapt"]
                yield from sleep(SLEEPS_S)
            if number and (slept or self.random.random() < 0.2):
                number -= 1
            elif number == len(batches):
                batches.append(self._batch(sink, number))
            answer = yield from self._ask("publish", type="stage", name=sink, batch=number, stages=f"{sink}/{number}")
            if answer is not None and answer[0] == OK:
                self.history.batch_was_published(batches[number][0])
                published[sink] = max(published[sink], number + 1)
            yield from sleep(self.random.random() * 0.3)

    def _batch(self, sink: str, number: int) -> tuple[list[str], list[Record]]:
        """Rows for queues as blocks, for the topic one by one; under which bodies they go."""
        ids: list[str] = []
        records: list[Record] = []
        rows: dict[str, list[bytes]] = {}
        for _ in range(self.random.randint(0, ROWS_MAX)):
            mark = f"<{self.run.next_number()}>"
            ids.append(mark)
            body = encode_message(
                header=Header(durable=True), properties=Properties(), application_properties={}, body=ValueBody(mark)
            )
            name = self.random.choice(self.run.plan.queues).name
            if self.random.random() < 0.2:
                records.append(MessageRecord(name, False, 4, 0, 0, b"", "", f"{sink}-{mark}", body))
            else:
                rows.setdefault(name, []).append(body)
        for name, bodies in rows.items():
            blocks = [value for _, value, _ in new_blocks(dict(enumerate(bodies)), [*range(len(bodies))], 1, {})]
            said = RunRecord(name, 4, len(bodies), sum(map(len, bodies)), False, [*map(len, blocks)])
            records.append(BlockRun(said, blocks))
        self.history.counts["batches"] += 1
        self.history.note("batch:", sink, number, ids)
        return ids, records
