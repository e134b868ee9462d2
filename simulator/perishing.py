"""Applications that crash on what they receive, and applications that keep temporary queues."""

from __future__ import annotations

from legato.client.links.session_state import AcknowledgeMode
from legato.client.steps import Steps
from legato.errors import JMSError
from simulator.clients import sleep
from simulator.pipelines import Pipelining

DIES_AFTER_S = 1.0
"""So long an application has a message before it dies of it: what it has is on record by then."""


class PerishedError(Exception):
    """The application's process dies."""


class Perishing(Pipelining):
    """Dies of messages, keeps house; and all that a `Pipelining` application does."""

    def perish(self) -> Steps[None]:
        """Receive in any mode, and die of some messages before they are acknowledged: such a delivery counts."""
        mode = self.random.choice([*AcknowledgeMode, AcknowledgeMode.DUPS_OK, AcknowledgeMode.DUPS_OK])
        session = self.connection.create_session(
            transacted=mode is AcknowledgeMode.SESSION_TRANSACTED, acknowledge_mode=mode
        )
        name, consumer = yield from self._consumer(session)
        while not self.run.ending:
            message = yield from self._take(consumer, 0.2)
            if message is None:
                continue
            number = self._presented(session, name, message)
            if self.random.random() < 0.5:
                losses, since_us = session._channel.interruptions, self.history.now_us()
                yield from sleep(DIES_AFTER_S)
                # Who is preempted may wake too early.
                had_it_us = self.history.now_us() - since_us
                is_known = had_it_us >= DIES_AFTER_S * 1_000_000 and losses == session._channel.interruptions
                # What it had over a link that the broker ended came back before.
                is_known = is_known and consumer._end.error is None
                if is_known and self.history.was_calm(since_us):
                    self.history.surely_presented(name, number)
                raise PerishedError
        if mode is AcknowledgeMode.SESSION_TRANSACTED:
            yield from session._transactions.rollback()
        yield from session._close()

    def keep_house(self) -> Steps[None]:
        """Make temporary queues, use them and delete them."""
        session = self.connection.create_session()
        while not self.run.ending:
            mailbox = yield from session._factory.create_temporary_queue()
            try:
                producer = yield from session._factory.create_producer(mailbox)
                message, _ = self._new_message(mailbox, self._sender())
                yield from producer._send(message)
                self.history.was_confirmed(message)
                yield from producer._close()
            except JMSError:
                # A takeover, after which nobody waited for us.
                self.history.counts["replies to nobody"] += 1
            yield from mailbox._delete()
            self.history.was_deleted(mailbox.name)
            yield from sleep(self.random.random() * 0.3)
        yield from session._close()
