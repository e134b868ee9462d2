"""Workers of joins: collect answers, each in one messaging transaction."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from legato.client import Message, MessageConsumer, Session
from legato.errors import JMSError
from legato.flows.model.definitions import Stage
from legato.flows.model.envelope import Envelope, Outgoing, Reach
from legato.flows.model.joins import Join, join_of, too_late, waiting
from legato.flows.model.wire import ANSWERS_SUFFIX, JOIN, Sender, answers_queue_of, envelope_of, joined_queue_of
from legato.flows.stages.batching import message_key
from legato.flows.stages.failure_report import HOPELESS, Failure, log_failure
from legato.flows.stages.session_worker import SessionWorker
from legato.flows.stages.stage_health import StageHealth
from legato.quoting import quoted

if TYPE_CHECKING:
    from legato.flows.stages.running_service import RunningService

logger = logging.getLogger(__name__)

LOOKS = "legato_join_looks"
WAITS_MS = (2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
"""So long, one after the other, an answer waits for a join that somebody else may be working on.

Each look is a transaction, and most are of alarms of joins that are complete: they grow, two minutes in all."""


def joins_of(stage_id: str) -> str:
    """Name of a stage's joins in the introspection."""
    return stage_id + ANSWERS_SUFFIX


class JoinWorker(SessionWorker):
    """Takes the answers for one stage.

    All answers of a join are one message group, so one consumer at a time works on it; the join itself, as it stands,
    is a message, which is taken and replaced in the transaction that takes the answer.
    """

    def __init__(self, flows: RunningService, stage: Stage, health: StageHealth) -> None:
        super().__init__(flows, f"{stage.id} joins")
        self._flows = flows
        self._stage_id = stage_id = stage.id
        self._health = health
        self._queue = answers_queue_of(stage_id, flows.prefix)

    def consumer(self, session: Session) -> MessageConsumer:
        self._apart: list[Outgoing] = []
        self._sender = Sender(session, self._flows.prefix, self._apart)
        return session.create_consumer(self._queue, prefetch=10)

    def wait_s(self) -> float:
        with self._health.lock:
            return self._health.circuit.wait_s(self.name, self._flows.clock.monotonic_ms() / 1e3)

    def take(self, session: Session, consumer: MessageConsumer, message: Message) -> None:
        key, begun_us = message_key(message), self._flows.clock.now_us()
        if (condemned := self._health.condemned(key)) is not None:
            self._bury(session, message, key, condemned)
            return
        try:
            envelope = envelope_of(message)
            self._apart.clear()
            outgoing = self._answered(session, envelope)
            for one in outgoing:
                self._sender.send(one)
            session.commit()
            if self._apart:
                self._flows.answer(self._apart)
        except Exception as error:
            if isinstance(error, JMSError) and not isinstance(error, HOPELESS):
                raise
            self._failed(session, message, key, error)
        else:
            self._health.succeeded([envelope], outgoing, begun_us, self._flows.clock.now_us(), [key])

    def _failed(self, session: Session, message: Message, key: str, error: Exception) -> None:
        """Roll back after a failure; an answer that can never be used becomes a dead letter at its redelivery."""
        failure = Failure.of(error)
        clock = self._flows.clock
        verdict = self._health.failed(
            key, message.delivery_count, failure, clock.now_us(), clock.monotonic_ms() / 1e3, counted=True
        )
        log_failure(self.name, message, failure, verdict, error)
        if verdict.last:
            self._health.condemn(key, failure)
        # It is the transaction's at the broker since `_find` closed its consumer: the rollback counts it.
        session.rollback()

    def _bury(self, session: Session, message: Message, key: str, failure: Failure) -> None:
        # It comes once more than it was tried.
        replies = self._flows.bury(session, message, failure, message.delivery_count - 1)
        session.commit()
        self._flows.answer(replies)
        self._health.pardon(key)
        self._health.buried(key)

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
        looks = int(envelope.properties.get(LOOKS, "0"))
        if looks >= len(WAITS_MS):
            undone = too_late(envelope, self._flows.clock.now_us())
            if envelope.key:
                logger.info(
                    "Flow %s: an answer %r came too late for its join; compensations called: %d.",
                    quoted(envelope.trace_id),
                    envelope.key,
                    len(undone),
                )
            return undone
        again = msgspec.structs.replace(envelope, properties={**envelope.properties, LOOKS: str(looks + 1)})
        return [Outgoing(again, Reach.ANSWERS, delay_ms=WAITS_MS[looks])]
