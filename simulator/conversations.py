"""Applications with short-lived nodes: temporary queues, unnamed subscriptions, browsers."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from legato.client.links.session_state import AcknowledgeMode
from legato.client.messages.destinations import Destination
from legato.client.steps import Steps
from legato.errors import JMSError, TransactionRolledBackError
from simulator.applications import Application
from simulator.clients import Session, sleep
from simulator.plan import CROWD, TOPIC


class Conversation(Application):
    """Asks and answers, subscribes for a while, browses; and all that an `Application` does."""

    def ask(self) -> Steps[None]:
        """Send requests, and wait for each reply in a temporary queue of one's own."""
        session = self.connection.create_session()
        mailbox = yield from session._factory.create_temporary_queue()
        replies = yield from session._factory.create_consumer(mailbox)
        destination = self._somewhere(session)
        producer = yield from session._factory.create_producer(destination)
        sender = self._sender()
        while not self.run.ending:
            request, options = self._new_message(destination, sender)
            request.reply_to = mailbox
            try:
                yield from producer._send(request, **options)
            except JMSError as error:
                self._completed(request, error)
            else:
                self.history.was_confirmed(request)
                reply = yield from self._take(replies, self.random.random())
                if reply is not None:
                    self._presented(session, mailbox.name, reply)
            if self.random.random() < 0.05:
                break
        yield from session._close()

    def answer(self) -> Steps[None]:
        """Receive requests, and reply to those that want it, in the transaction that received them or outside."""
        transacted = self.random.random() < 0.4
        session = self.connection.create_session(transacted=transacted)
        name, consumer = yield from self._consumer(session)
        producer = yield from session._factory.create_producer(None)
        while not self.run.ending:
            try:
                request = yield from self._take(consumer, 0.2)
            except TransactionRolledBackError:
                continue
            if request is None:
                continue
            number = self._presented(session, name, request)
            replies: list[Any] = []
            if request.reply_to is not None:
                yield from self._reply(session, producer, request.reply_to, replies)
            if transacted:
                yield from self._commit(session, replies, [(name, number)])
        yield from session._close()

    def _reply(self, session: Session, producer: Any, to: Destination, replies: list[Any]) -> Steps[None]:
        reply, _ = self._new_message(to, self._sender())
        try:
            yield from producer._send(reply, destination=to)
        except JMSError:
            # Who asked is gone, and its queue with it.
            self.history.counts["replies to nobody"] += 1
        else:
            replies.append(reply)
            if not session.transacted:
                self.history.was_confirmed(reply)

    def subscribe_for_now(self) -> Steps[None]:
        """Receive from the topic as long as one listens, alone."""
        session = self.connection.create_session()
        consumer = yield from session._factory.create_consumer(session._messages.create_topic(TOPIC))
        prefix = f"volatile://{quote(self.container, safe='')}//"
        while not self.run.ending:
            message = yield from self._take(consumer, 0.2)
            if message is not None:
                self._presented(session, self.history.volatile(prefix, message), message)
            if self.random.random() < 0.02:
                return
        yield from session._close()

    def join_the_crowd(self) -> Steps[None]:
        """Receive from the topic as long as one listens, with others."""
        session = self.connection.create_session(acknowledge_mode=AcknowledgeMode.DUPS_OK)
        consumer = yield from session._factory.create_shared_consumer(session._messages.create_topic(TOPIC), "crowd")
        while not self.run.ending:
            message = yield from self._take(consumer, 0.2)
            if message is not None:
                self._presented(session, CROWD, message)
            if self.random.random() < 0.02:
                yield from consumer._close()
                consumer = yield from session._factory.create_shared_consumer(
                    session._messages.create_topic(TOPIC), "crowd"
                )
        yield from session._close()

    def browse(self) -> Steps[None]:
        """Look at queues; what is seen there is there or was, once."""
        session = self.connection.create_session()
        while not self.run.ending:
            name = self.random.choice(self.run.plan.queues).name
            browser = session._factory.create_browser(session._messages.create_queue(name))
            seen: list[Any] = []
            try:
                end = yield from browser._look()
                while (message := (yield from browser._next(end))) is not None:
                    seen.append(message)
            except JMSError:
                self.history.counts["looks cut off"] += 1
            self.history.was_browsed(name, seen)
            browser._close()
            yield from sleep(self.random.random())
        yield from session._close()
