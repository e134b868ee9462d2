"""Threads that bring the answers of a join together, each answer in one messaging transaction."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from legato.client import Message, MessageConsumer, Session
from legato.errors import MessageFormatError
from legato.flows.envelope import Envelope, Outgoing, Reach
from legato.flows.failures import Failure
from legato.flows.joins import Join, join_of, waiting
from legato.flows.looping import SessionLoop
from legato.flows.wire import JOIN, Sender, answers_queue_of, envelope_of, joined_queue_of

if TYPE_CHECKING:
    from legato.flows.service import Flows

logger = logging.getLogger(__name__)

WAITS = "legato_join_waits"
WAITS_MAX = 60
WAIT_MS = 2_000
"""So often, and so long each time, an answer waits for a join that somebody else may be working on."""


class JoinWorker(SessionLoop):
    """Takes the answers for one stage.

    All answers of a join are one message group, so one consumer at a time works on it; the join itself, as it stands,
    is a message, which is taken and replaced in the transaction that takes the answer.
    """

    def __init__(self, flows: Flows, stage_id: str) -> None:
        super().__init__(flows, f"{stage_id} joins")
        self._flows = flows
        self._stage_id = stage_id
        self._queue = answers_queue_of(stage_id, flows.prefix)

    def consumer(self, session: Session) -> MessageConsumer:
        self._sender = Sender(session, self._flows.prefix)
        return session.create_consumer(self._queue, prefetch=10)

    def take(self, session: Session, consumer: MessageConsumer, message: Message) -> None:
        try:
            envelope = envelope_of(message)
        except MessageFormatError as error:
            self._flows.bury(session, message, Failure.of(error))
        else:
            for outgoing in self._answered(session, envelope):
                self._sender.send(outgoing)
        session.commit()

    def _answered(self, session: Session, envelope: Envelope) -> list[Outgoing]:
        join = self._find(session, envelope.join)
        if join is None:
            return self._later(envelope)
        join = join.with_answer(envelope) if envelope.key else join.timed_out()
        return join.outcome(self._flows.clock.now_us()) if join.complete else [waiting(join)]

    def _find(self, session: Session, join_id: str) -> Join | None:
        queue = joined_queue_of(self._stage_id, self._flows.prefix)
        with session.create_consumer(queue, f"{JOIN} = '{join_id}'", prefetch=0) as finder:
            message = finder.receive_no_wait()
        return None if message is None else join_of(envelope_of(message))

    def _later(self, envelope: Envelope) -> list[Outgoing]:
        """The join is complete, or a transaction that will be rolled back still has it: look again before saying so."""
        waits = int(envelope.properties.get(WAITS, "0")) + 1
        if waits > WAITS_MAX:
            logger.info("Flow %s: an answer %r came too late for its join.", envelope.trace_id, envelope.key)
            return []
        again = msgspec.structs.replace(envelope, properties={**envelope.properties, WAITS: str(waits)})
        return [Outgoing(again, Reach.ANSWERS, delay_ms=WAIT_MS)]
