"""Administrators: management operations, and the deletion of subscriptions."""

from __future__ import annotations

import json
from typing import Any

from legato.client.messages import TextMessage
from legato.client.steps import Steps
from legato.errors import IllegalStateError, InvalidDestinationError
from simulator.clients import sleep
from simulator.interrupting import Interrupting
from simulator.plan import TOPIC, VISITS

MANAGEMENT = "$management"
ANSWERED_WITHIN_S = 5.0
OK = 200
SHORTAGE_S = 0.3
"""How long a queue stays paused, about."""


class Administering(Interrupting):
    """Asks the management address; and all that an `Interrupting` application does."""

    _asked = 0

    def _begin_asking(self) -> Steps[None]:
        session = self.connection.create_session()
        address = session._messages.create_queue(MANAGEMENT)
        self._answers = yield from session._factory.create_consumer(address)
        self._requests = yield from session._factory.create_producer(address)

    def _ask(self, operation: str, **arguments: str | int) -> Steps[tuple[int, Any] | None]:
        """What the broker answers, status and result; None if the answer is lost, so that nobody knows."""
        self._asked += 1
        asked = TextMessage()
        asked.correlation_id = f"{self.container}-{self._asked}"
        for key, value in {"operation": operation, **arguments}.items():
            asked.set_property(key, value)
        self.history.note("asks:", self.container, operation, arguments)
        self.history.counts["management requests"] += 1
        yield from self._requests._send(asked)
        while True:
            answer = yield from self._answers._receive(ANSWERED_WITHIN_S)
            if answer is None:
                return None
            if answer.correlation_id == asked.correlation_id:
                status = int(str(answer.properties["statusCode"]))
                self.history.note("answer:", self.container, operation, status, answer.body)
                return status, json.loads(answer.body or "{}")

    # -- administrators ------------------------------------------------------------------------------------------

    def administer(self) -> Steps[None]:
        """Purge, move, pause, send dead letters again, change limits, delete queues."""
        yield from self._begin_asking()
        works = [self._purge, self._move, self._move, self._pause, self._reissue, self._reissue, self._reload]
        if self.run.plan.deletes:
            works += [self._delete] * 3
        while not self.run.ending:
            yield from self.random.choice(works)()
            yield from sleep(self.random.random() * 0.3)
        for name in sorted(self.history.ever_paused):
            yield from self._resume(name)

    def _queue_name(self) -> str:
        return self.random.choice(self.run.plan.queues).name

    def _purge(self) -> Steps[None]:
        name = self._queue_name()
        before = self.history.may_be_purged(name)
        answer = yield from self._ask("purge", type="queue", name=name)
        if answer is not None and answer[0] == OK:
            self.history.was_purged(name, before, answer[1]["purged"])

    def _delete(self) -> Steps[None]:
        """A queue goes, with what is in it; who sends to it or receives from it makes another one."""
        name = self._queue_name()
        before = self.history.will_delete(name)
        answer = yield from self._ask("delete", type="queue", name=name)
        if answer is not None and answer[0] == OK:
            self.history.queue_was_deleted(name, before)

    def _move(self) -> Steps[None]:
        name, to = self._queue_name(), self._queue_name()
        if name != to:
            yield from self._ask("move", type="queue", name=name, to=to, limit=self.random.choice([0, 1, 3]))

    def _reissue(self) -> Steps[None]:
        """Dead letters go back to where they died."""
        queue = self.random.choice(self.run.plan.queues)
        if queue.maximum_deliveries and queue.dead_letters:
            name = queue.dead_letters.format(address=queue.name)
            selector = f"JMS_LEGATO_ORIGINAL_DESTINATION = '{queue.name}'"
            yield from self._ask("move", type="queue", name=name, to=queue.name, limit=2, selector=selector)

    def _pause(self) -> Steps[None]:
        name = self._queue_name()
        self.history.will_pause(name)
        answer = yield from self._ask("pause", type="queue", name=name)
        if answer is not None and answer[0] == OK:
            self.history.was_paused(name)
        yield from sleep(self.random.random() * SHORTAGE_S)
        yield from self._resume(name)

    def _resume(self, name: str) -> Steps[None]:
        self.history.will_resume(name)
        while (answer := (yield from self._ask("resume", type="queue", name=name))) is None:
            pass
        self._expect(answer[0] in (OK, 404), f"a queue cannot be resumed: {answer}")
        self.history.was_resumed(name)

    def _reload(self) -> Steps[None]:
        self.run.change_limits()
        yield from self._ask("reload", type="broker")

    # -- who comes and goes --------------------------------------------------------------------------------------

    def visit(self) -> Steps[None]:
        """Receive from a durable subscription for a while, and end it now and then."""
        session = self.connection.create_session()
        topic = session._messages.create_topic(TOPIC)
        name = VISITS.rpartition("/")[2]
        while not self.run.ending:
            consumer = yield from session._factory.create_shared_durable_consumer(topic, name)
            for _ in range(self.random.randint(0, 6)):
                message = yield from self._take(consumer, 0.2)
                if message is not None:
                    self._presented(session, VISITS, message)
            yield from consumer._close()
            if self.random.random() < 0.5:
                ended = self.history.will_unsubscribe(VISITS)
                try:
                    yield from session._factory.unsubscribe(name)
                except (IllegalStateError, InvalidDestinationError):
                    # Somebody else uses it, or has ended it.
                    continue
                self.history.was_unsubscribed(VISITS, ended)
            yield from sleep(self.random.random() * 0.2)
        yield from session._close()
