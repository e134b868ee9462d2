"""Applications whose messages come many at once and ask for nothing, so that brokers handle them as runs."""

from __future__ import annotations

from legato.client.links.session_state import AcknowledgeMode
from legato.client.messages import TextMessage
from legato.client.steps import Steps
from simulator.clients import sleep
from simulator.perishing import Perishing
from simulator.plan import LINE

POURED = (3, 30)
"""How many messages at once."""
POURED_IN_ALL = 120
"""By one application: runs need many messages, and checks look at each."""


class Pouring(Perishing):
    """Pours messages into the line and sips from it; and all that a `Perishing` application does."""

    def pour(self) -> Steps[None]:
        """Send many messages that differ in their numbers only, wait for none, and rest."""
        session = self.connection.create_session()
        producer = yield from session._factory.create_producer(session._messages.create_queue(LINE))
        sender = self._sender()
        left = POURED_IN_ALL
        while not self.run.ending:
            count = min(self.random.randint(*POURED), left)
            left -= count
            for _ in range(count):
                message = TextMessage(f"<{self.run.next_number()}>")
                message.properties["sender"] = sender
                yield from producer._send(message, completion_listener=self._completed)
            yield from sleep(self.random.random() * 2)
        yield from self._closed(session._close())

    def sip(self) -> Steps[None]:
        """Receive what was poured, more slowly than it may come."""
        mode = self.random.choice(
            [AcknowledgeMode.AUTO, AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK, AcknowledgeMode.CLIENT]
        )
        session = self.connection.create_session(acknowledge_mode=mode)
        prefetch = self.random.choice([5, 20, 1000])
        consumer = yield from session._factory.create_consumer(session._messages.create_queue(LINE), prefetch=prefetch)
        yield from self._receive(session, LINE, consumer)
