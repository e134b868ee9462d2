"""A consumer that says something of single messages of a run is given no more runs."""

from __future__ import annotations

import asyncio
from array import array

import pytest

from legato.amqp.engine.events import AcceptedRun, Disposition, Event
from legato.amqp.engine.outcomes import ACCEPTED, RECEIVED, RELEASED, Outcome, Transactional
from legato.core.message import MessageRun
from tests.support.stopwatch import Watch
from tests.unit.server.test_service_time import receiving, serving

TEA = b"\x00\x53\x75\xa0\x03tea"


def given_after(outcome: Outcome | None) -> list[int]:
    """How many messages each thing has that the consumer is given after it has said something of a run of eight.

    Args:
        outcome: what it said of the first; None if it accepted all at once.
    """

    async def story() -> list[int]:
        clock = Watch()
        service = serving(clock)
        peer, queue = receiving(service)
        (consumer,) = queue.consumers
        link = consumer.port.link

        def publish_eight() -> list[object]:
            ends = array("I", range(len(TEA), 9 * len(TEA), len(TEA)))
            service.broker.publisher.publish_run(queue, TEA * 8, ends, b"abcdefgh", None)
            service.advance()
            return list(consumer.held.values())

        service.broker.receivers.flow(consumer, 100, False, clock.now_us())
        stored = service._commits.idle
        stored.clear()
        publish_eight()
        await stored.wait()
        (run,) = consumer.held.values()
        assert isinstance(run, MessageRun)
        said: Event = (
            AcceptedRun(link, run, 0, 8, True, 1) if outcome is None else Disposition(link, (run, 0), outcome, False, 1)
        )
        service.handle(peer, [said])
        if consumer.held:
            for message in list(consumer.unsettled.values()):
                service.broker.settlement.acknowledge(consumer, message, confirm=False)
        stored.clear()
        publish_eight()
        await stored.wait()
        counts = [entry.count if isinstance(entry, MessageRun) else 1 for entry in consumer.held.values()]
        service.abort()
        return counts

    return asyncio.run(story())


@pytest.mark.parametrize("outcome", [RECEIVED, Transactional(b"txn", ACCEPTED)], ids=["presented", "in a transaction"])
def test_who_says_it_of_one_after_the_other_is_given_single_messages(outcome: Outcome) -> None:
    assert given_after(outcome)[-8:] == [1] * 8


@pytest.mark.parametrize("outcome", [None, RELEASED], ids=["all accepted", "one given back"])
def test_who_does_not_is_given_runs(outcome: Outcome | None) -> None:
    assert given_after(outcome)[-1] == 8
