"""When the service has stored what was gathered: at once, unless nobody waits for it."""

import asyncio
from collections.abc import Callable

from legato import limits
from legato.amqp.engine.events import Disposition
from legato.amqp.engine.outcomes import ACCEPTED
from legato.core.consumers import Consumer
from legato.core.message import Message
from legato.server.connections.client_connection import Peer
from legato.server.process.service import Service
from tests.support.stopwatch import Watch
from tests.unit.server.test_service_time import receiving, serving


class Serving:
    """A service, a peer with one message in hand, and nothing that is not durable."""

    def __init__(self) -> None:
        self.service: Service = serving(Watch())
        self.peer: Peer
        self.peer, queue = receiving(self.service)
        self.consumer: Consumer = next(iter(queue.consumers))
        self.kernel = self.service.broker.kernel

    async def idle(self) -> None:
        """Wait until nothing is left to be stored."""
        idle = self.service._commits.idle
        idle.clear()
        self.service.advance()
        await idle.wait()

    async def begin(self) -> Message:
        """Publish; returns the message as it is given to the consumer."""
        broker = self.service.broker
        broker.receivers.flow(self.consumer, 10, False, 0)
        broker.publisher.publish(self.consumer.queue, b"1", "", None)
        await self.idle()
        return self.consumer.unsettled[1]

    def acknowledge(self, message: Message) -> None:
        """The peer settles it as accepted, and asks for no answer."""
        link = self.consumer.port.link
        self.service.handle(self.peer, [Disposition(link, message, ACCEPTED, True, message.handle)])

    @property
    def waits(self) -> bool:
        """Whether something was gathered, and the writer has nothing."""
        return bool(self.kernel.gathering) and self.kernel.in_flight is None


def tell(story: Callable[[Serving, Message], object]) -> None:
    """Run a story that begins with a message in a consumer's hands."""

    async def whole() -> None:
        s = Serving()
        told = story(s, await s.begin())
        if asyncio.iscoroutine(told):
            await told
        s.service.abort()

    asyncio.run(whole())


def test_an_acknowledgement_that_nobody_waits_for_is_stored_with_the_next_message() -> None:
    async def story(s: Serving, message: Message) -> None:
        s.acknowledge(message)
        assert s.waits
        s.service.broker.publisher.publish(s.consumer.queue, b"2", "", None)
        s.service.advance()
        in_flight = s.kernel.in_flight
        assert in_flight is not None
        assert {type(fact).__name__ for fact in in_flight.facts} >= {"MessageConsumed", "MessageStored"}
        await s.idle()

    tell(story)


def test_it_is_stored_by_itself_if_nothing_else_comes() -> None:
    async def story(s: Serving, message: Message) -> None:
        s.acknowledge(message)
        assert s.waits
        idle = s.service._commits.idle
        idle.clear()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await idle.wait()
        # Not at once; how long it took beyond that is the machine's.
        assert loop.time() - began_s >= limits.UNAWAITED_WAIT_S / 2
        assert s.consumer.queue.depth == 0
        assert not s.service.broker.kernel.archive.messages(s.consumer.queue.id, 0, 10, 1000)

    tell(story)


def test_it_is_stored_at_once_when_somebody_waits_for_all_that_came_before() -> None:
    """As the answer to a detach or a close does (decision 0016)."""

    async def story(s: Serving, message: Message) -> None:
        s.acknowledge(message)
        assert s.waits
        told: list[bool] = []
        s.service.when_durable(s.peer, lambda: told.append(s.service.broker.idle))
        s.service.advance()
        assert s.kernel.in_flight is not None
        await s.idle()
        assert told == [True]

    tell(story)


def test_an_answer_that_cannot_be_given_costs_its_peer_its_connection_and_nobody_else_an_answer() -> None:
    """Who waited for the same commit was never told."""

    async def story(s: Serving, message: Message) -> None:
        s.acknowledge(message)
        told: list[str] = []
        other = Peer(s.service)

        def fail() -> None:
            raise OverflowError("int too big to convert")

        s.service.when_durable(s.peer, fail)
        s.service.when_durable(other, lambda: told.append("other"))
        await s.idle()
        assert told == ["other"]
        assert s.service.internal_errors == 1
        assert (s.peer.ended, other.ended) == (True, False)

    tell(story)


def test_it_is_stored_at_once_when_the_service_ends() -> None:
    async def story(s: Serving, message: Message) -> None:
        s.acknowledge(message)
        await s.service.finish("shutdown")
        assert s.service.broker.idle

    tell(story)


def test_nothing_is_stored_after_the_service_was_stopped() -> None:
    async def story(s: Serving, message: Message) -> None:
        s.acknowledge(message)
        s.service.abort()
        await asyncio.sleep(2 * limits.UNAWAITED_WAIT_S)
        assert s.waits

    tell(story)
