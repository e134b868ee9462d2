"""Applications whose messages come many at once and ask for nothing, so that brokers handle them as runs."""

from __future__ import annotations

from legato.client.links.session_state import AcknowledgeMode
from legato.client.messages import TextMessage
from legato.client.steps import Steps
from simulator.actor import color_of
from simulator.clients import sleep
from simulator.perishing import Perishing
from simulator.plan import LINE, TOPIC

POURED = (3, 30)
"""How many messages at once."""
POURED_IN_ALL = 120
"""By one application: runs need many messages, and checks look at each."""


class Pouring(Perishing):
    """Pours into the line or the topic, and sips from the line; and all that a `Perishing` application does."""

    def pour(self) -> Steps[None]:
        """Send many messages that differ in their numbers and colors only, wait for none, and rest."""
        session = self.connection.create_session()
        to_topic = self.run.plan.showers and self.random.random() < 0.7
        destination = session._messages.create_topic(TOPIC) if to_topic else session._messages.create_queue(LINE)
        producer = yield from session._factory.create_producer(destination)
        sender = self._sender()
        left = POURED_IN_ALL
        while not self.run.ending:
            count = min(self.random.randint(*POURED), left)
            left -= count
            for _ in range(count):
                number = self.run.next_number()
                message = TextMessage(f"<{number}>")
                message.properties["sender"] = sender
                if to_topic:
                    message.properties["color"] = color_of(number)
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
        line = session._messages.create_queue(LINE)
        yield from self._receive(session, LINE, lambda: session._factory.create_consumer(line, prefetch=prefetch))
