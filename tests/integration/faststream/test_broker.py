"""The FastStream broker with a real broker: bodies, acknowledgement, back-off, topics, requests, its end."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest
from faststream import AckPolicy, FastStream
from faststream.exceptions import AckMessage, IncorrectState, NackMessage, RejectMessage, SetupError
from faststream.security import BaseSecurity, SASLPlaintext
from proton import Message as AmqpMessage
from proton.utils import BlockingConnection

from legato.client import ConnectionFactory, DeliveryMode, Queue, TextMessage
from legato.errors import ConfigError, JMSError, MessageFormatError
from legato.faststream import LegatoBroker, LegatoMessage, LegatoResponse, LegatoRouter
from legato.testing import LocalBroker, broker, broker_pair
from tests.support.monitored import until
from tests.support.server import server

WAIT_S = 60.0


@dataclass
class Order:
    item: str
    qty: int = 1


class Struct(msgspec.Struct):
    item: str
    qty: int = 1


class Model(pydantic.BaseModel):
    item: str
    qty: int = 1


@pytest.fixture(scope="module")
def running() -> Iterator[LocalBroker]:
    with broker() as started:
        yield started


class Heard:
    """What handlers got."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self.add = self._queue.put_nowait

    async def next(self) -> Any:
        async with asyncio.timeout(WAIT_S):
            return await self._queue.get()

    @property
    def empty(self) -> bool:
        return self._queue.empty()


@contextlib.asynccontextmanager
async def started(*brokers: LegatoBroker) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for each in brokers:
            await stack.enter_async_context(each)
            await each.start()
        yield


Story = Callable[[], Awaitable[None]]


def told(story: Story) -> None:
    async def limited() -> None:
        async with asyncio.timeout(3 * WAIT_S):
            await story()

    asyncio.run(limited())


@pytest.mark.parametrize("kind", [Order, Model, dict, Struct], ids=lambda kind: kind.__name__)
def test_bodies_are_what_the_handler_is_annotated_with_and_json_on_the_wire(running: LocalBroker, kind: Any) -> None:
    async def story() -> None:
        serializer: dict[str, Any] = {}
        if kind is Struct:
            from fast_depends.msgspec import MsgSpecSerializer

            serializer = {"serializer": MsgSpecSerializer()}
        service, heard = LegatoBroker(running.url, **serializer), Heard()

        @service.subscriber(f"bodies.{kind.__name__}")
        async def handle(order: kind) -> None:
            heard.add(order)

        async with started(service):
            order = kind(item="tea", qty=2)
            await service.publish(order, f"bodies.{kind.__name__}")
            assert await heard.next() == order
            await service.publish(order, f"wire.{kind.__name__}")

    told(story)
    [message] = running.messages(f"wire.{kind.__name__}")
    assert isinstance(message, TextMessage)
    assert (msgspec.json.decode(message.text or ""), message.content_type) == (
        {"item": "tea", "qty": 2},
        "application/json",
    )


def test_def_handlers_run_and_messages_of_other_clients_arrive(running: LocalBroker) -> None:
    async def story() -> None:
        service, heard = LegatoBroker(running.url), Heard()

        @service.subscriber("plain")
        def handle(body: str, message: LegatoMessage) -> None:
            loop.call_soon_threadsafe(heard.add, (body, message.headers["qty"]))

        loop = asyncio.get_running_loop()
        async with started(service):
            with ConnectionFactory(running.url).create_connection() as connection:
                session = connection.create_session()
                message = TextMessage("one pound of tea")
                message.set_property("qty", 2)
                session.create_producer(Queue("plain")).send(message)
            assert await heard.next() == ("one pound of tea", 2)

    told(story)


def test_headers_keep_their_names_and_values(running: LocalBroker) -> None:
    async def story() -> None:
        service = LegatoBroker(running.url)
        subscriber = service.subscriber("headers")
        headers = {"qty": 2, "x-trace-id": "abc", "nested": {"a": [1]}}
        async with started(service):
            await service.publish(b"\x00\xff", "headers", headers=headers | {"raw": b"tea"}, correlation_id="c1")
            message = await subscriber.get_one(timeout=WAIT_S)
            assert message is not None
            assert message.headers == headers | {"raw": "tea"}
            with pytest.raises(MessageFormatError, match="UTF-8"):
                await service.publish(b"", "headers", headers={"raw": b"\xff"})
            assert (await message.decode(), message.correlation_id) == (b"\x00\xff", "c1")
            await message.ack()
            assert await subscriber.get_one(timeout=0.01) is None

    told(story)
    assert running.waiting("headers") == 0


def test_a_message_is_acknowledged_when_the_handler_returns_and_comes_again_later_when_it_raises(
    running: LocalBroker,
) -> None:
    async def story() -> None:
        service, heard = LegatoBroker(running.url), Heard()

        @service.subscriber("again", retry_delay_s=0.4, retry_multiplier=1.5)
        async def handle(body: str, message: LegatoMessage) -> None:
            heard.add((body, message.delivery_count, asyncio.get_running_loop().time()))
            if body == "bad" and message.delivery_count < 3:
                raise ValueError("not yet")

        async with LegatoBroker(running.url) as sender:
            await sender.publish("bad", "again")
            await sender.publish("good", "again")
        async with started(service):
            came = [await heard.next() for _ in range(4)]
            assert [count for body, count, _ in came if body == "bad"] == [1, 2, 3]
            assert ("good", 1) in [(body, count) for body, count, _ in came[1:3]], "it waits for no pause of another"
            first, second, third = (at for body, _, at in came if body == "bad")
            assert second - first >= 0.3
            assert third - second >= 0.4

    told(story)
    assert running.waiting("again") == 0


@pytest.mark.parametrize("max_workers", [1, 3])
def test_a_group_keeps_its_order_while_one_of_its_messages_waits_for_its_next_attempt(
    running: LocalBroker, max_workers: int
) -> None:
    address = f"groups.{max_workers}"

    async def story() -> None:
        service, heard = LegatoBroker(running.url), Heard()

        @service.subscriber(address, retry_delay_s=0.1, max_workers=max_workers)
        async def handle(number: int, message: LegatoMessage) -> None:
            heard.add((message.headers["JMSXGroupID"], number, message.delivery_count))
            if number == 1 and message.delivery_count == 1:
                raise ValueError("not yet")

        async with LegatoBroker(running.url) as sender:
            for number in range(4):
                for group in ("a", "b"):
                    await sender.publish(number, address, headers={"JMSXGroupID": group})
        async with started(service):
            came = [await heard.next() for _ in range(10)]
        for group in ("a", "b"):
            ordered = [(number, count) for name, number, count in came if name == group]
            assert ordered == [(0, 1), (1, 1), (1, 2), (2, 1), (3, 1)]

    told(story)


def test_a_message_that_always_fails_is_a_dead_letter_with_the_exception(running: LocalBroker) -> None:
    async def story() -> None:
        service, heard = LegatoBroker(running.url), Heard()

        @service.subscriber("always", retry_delay_s=0)
        async def handle(body: str) -> None:
            heard.add(body)
            raise ValueError("no such tea")

        async with started(service):
            await service.publish("bad", "always")
            assert [await heard.next() for _ in range(10)] == ["bad"] * 10

    told(story)
    [letter] = running.dead_letters("always")
    assert "no such tea" in str(letter.properties["JMS_LEGATO_EXCEPTION"])


class Outcome(BaseException):
    """No `Exception`, as pytest's outcomes are none."""


@pytest.mark.parametrize("policy", list(AckPolicy))
@pytest.mark.parametrize("kind", [asyncio.CancelledError, Outcome], ids=lambda kind: kind.__name__)
def test_a_handler_whose_work_is_cancelled_has_failed_and_its_worker_goes_on(
    running: LocalBroker, kind: type[BaseException], policy: AckPolicy
) -> None:
    """A task that a handler awaits, or a scope of anyio, may be cancelled by anybody."""
    address = f"cancelled.{kind.__name__}.{policy.value}"

    async def story() -> None:
        service, heard = LegatoBroker(running.url), Heard()

        @service.subscriber(address, retry_delay_s=0, ack_policy=policy)
        async def handle(body: str, message: LegatoMessage) -> None:
            heard.add((body, message.delivery_count))
            if body == "bad" and message.delivery_count == 1:
                raise kind
            if policy is AckPolicy.MANUAL:
                await message.ack()

        async with started(service):
            await service.publish("bad", address)
            assert await heard.next() == ("bad", 1)
            if policy is AckPolicy.NACK_ON_ERROR:
                assert await heard.next() == ("bad", 2)
            await service.publish("good", address)
            assert await heard.next() == ("good", 1)

    told(story)
    rejected = {AckPolicy.REJECT_ON_ERROR} | ({AckPolicy.ACK} if kind is asyncio.CancelledError else set())
    assert len(running.dead_letters(address)) == (policy in rejected)


def _send_unreadable(running: LocalBroker, address: str) -> None:
    foreign = BlockingConnection(running.url, allowed_mechs="ANONYMOUS")
    sender = foreign.create_sender(address)
    sender.send(AmqpMessage(b"\xff", inferred=True, content_type="text/plain"))
    for headers in ("x", "3"):
        sender.send(AmqpMessage("tea", properties={"faststream_headers": headers}))
    foreign.close()


def test_a_message_that_somebody_asked_for_comes_again_when_he_gives_it_back(running: LocalBroker) -> None:
    async def story() -> None:
        service = LegatoBroker(running.url)
        subscriber = service.subscriber("asked for", retry_delay_s=3600)
        async with started(service):
            for body in ("tea", "coffee"):
                await service.publish(body, "asked for")
            first = await subscriber.get_one(timeout=WAIT_S)
            assert first is not None
            await first.nack(delay_s=0)
            await first.nack()
            came = []
            async with asyncio.timeout(WAIT_S):
                async for message in subscriber:
                    came.append((await message.decode(), message.delivery_count))
                    if message.delivery_count == 1:
                        await message.nack(delay_s=0)
                    else:
                        await message.ack()
                    if ("coffee", 2) in came and ("tea", 2) in came:
                        break
            assert sorted(came) == [("coffee", 1), ("coffee", 2), ("tea", 2)]
            await service.publish("cocoa", "asked for")
            last = await subscriber.get_one(timeout=WAIT_S)
            assert last is not None
            await last.nack()
            assert await subscriber.get_one(timeout=0.05) is None, "it waits for its pause"

    told(story)
    assert [(message.body, message.delivery_count) for message in running.messages("asked for")] == [("cocoa", 2)]


def test_messages_that_somebody_asked_for_may_be_settled_by_other_tasks_while_he_waits_for_more(
    running: LocalBroker,
) -> None:
    """And who waits may give up, which loses no message."""

    async def story() -> None:
        service = LegatoBroker(running.url)
        subscriber = service.subscriber("tasks")
        async with started(service):
            for number in range(6):
                await service.publish(number, "tasks")
            settled: list[int] = []
            tasks = set()

            async def settle(message: LegatoMessage) -> None:
                await asyncio.sleep(0)
                number = int(await message.decode() or 0)
                if number == 5:
                    await message.reject("five")
                else:
                    await message.ack()
                settled.append(number)

            async def take() -> None:
                async for message in subscriber:
                    tasks.add(asyncio.create_task(settle(message)))

            taking = asyncio.create_task(take())
            await asyncio.to_thread(until, lambda: len(settled) == 6)
            for number in range(6, 16):
                taking.cancel()
                await asyncio.wait([taking])
                assert taking.cancelled()
                await service.publish(number, "tasks")
                taking = asyncio.create_task(take())
                await asyncio.sleep(0)
            await asyncio.to_thread(until, lambda: len(settled) == 16)
            assert sorted(settled) == list(range(16))
            taking.cancel()

    told(story)
    assert running.waiting("tasks") == 0
    assert len(running.dead_letters("tasks")) == 1


@pytest.mark.parametrize("how", ["policy", "message", "exception", "exception for another", "with a reason"])
def test_a_rejected_message_is_a_dead_letter_with_what_it_was_rejected_for(running: LocalBroker, how: str) -> None:
    async def story() -> None:
        policy = AckPolicy.REJECT_ON_ERROR if how == "policy" else AckPolicy.NACK_ON_ERROR
        service = LegatoBroker(running.url, ack_policy=policy)

        @service.subscriber(f"rejected {how}")
        async def handle(body: str, message: LegatoMessage) -> None:
            try:
                raise ValueError("no such tea")
            except ValueError as error:
                match how:
                    case "policy":
                        raise
                    case "message":
                        await message.reject()
                    case "exception":
                        raise RejectMessage from None
                    case "exception for another":
                        raise RejectMessage from error
                    case _:
                        await message.reject("nobody drinks it")

        async with started(service):
            await service.publish("tea", f"rejected {how}")
            await asyncio.to_thread(until, lambda: bool(running.dead_letters(f"rejected {how}")))

    told(story)
    [letter] = running.dead_letters(f"rejected {how}")
    reasons = {"exception": "rejected by the handler", "with a reason": "nobody drinks it"}
    assert letter.properties["JMS_LEGATO_EXCEPTION"] == reasons.get(how, "ValueError('no such tea')")


def test_a_message_that_was_given_back_for_an_exception_is_a_dead_letter_with_it(running: LocalBroker) -> None:
    async def story() -> None:
        service = LegatoBroker(running.url)

        @service.subscriber("given back", retry_delay_s=0)
        async def handle(body: str) -> None:
            try:
                raise ValueError("no such tea")
            except ValueError as error:
                raise NackMessage from error

        async with started(service):
            await service.publish("tea", "given back")
            await asyncio.to_thread(until, lambda: bool(running.dead_letters("given back")))

    told(story)
    [letter] = running.dead_letters("given back")
    assert letter.properties["JMS_LEGATO_EXCEPTION"] == "ValueError('no such tea')"


@pytest.mark.parametrize("policy", list(AckPolicy))
def test_a_message_that_cannot_be_read_is_a_dead_letter_whatever_the_policy(
    running: LocalBroker, policy: AckPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it end the worker, which has more of them than messages may wait for their next delivery."""
    monkeypatch.setattr("legato.faststream.subscriber.PAUSES_MAX", 2)
    address = f"unreadable.{policy.value}"

    async def story() -> None:
        service, heard = LegatoBroker(running.url), Heard()

        @service.subscriber(address, retry_delay_s=0, ack_policy=policy)
        async def handle(body: str, message: LegatoMessage) -> None:
            heard.add(body)
            await message.ack()

        _send_unreadable(running, address)
        async with started(service):
            await service.publish("next", address)
            assert await heard.next() == "next"
            await asyncio.to_thread(until, lambda: len(running.dead_letters(address)) == 3)

    told(story)
    assert running.waiting(address) == 0
    assert "codec" in str(running.dead_letters(address)[0].properties["JMS_LEGATO_EXCEPTION"])


def test_what_no_handler_wants_is_a_dead_letter_with_manual_acknowledgement_too(running: LocalBroker) -> None:
    async def story() -> None:
        service = LegatoBroker(running.url)
        subscriber = service.subscriber("unwanted", retry_delay_s=0, ack_policy=AckPolicy.MANUAL)

        @subscriber(filter=lambda message: False)
        async def handle(body: str) -> None:
            raise AssertionError

        async with started(service):
            await service.publish("tea", "unwanted")
            await asyncio.to_thread(until, lambda: bool(running.dead_letters("unwanted")))

    told(story)


def test_a_message_that_cannot_be_read_is_told_to_who_asks_for_one_and_is_a_dead_letter_at_last(
    running: LocalBroker,
) -> None:
    async def story() -> None:
        service = LegatoBroker(running.url)
        subscriber = service.subscriber("asked")
        _send_unreadable(running, "asked")
        async with started(service):
            failures = 0
            while len(running.dead_letters("asked")) < 3:
                try:
                    assert await subscriber.get_one(timeout=0.1) is None
                except (ValueError, TypeError, JMSError):
                    failures += 1
            assert failures == 30

    told(story)


def test_the_handler_or_its_policy_may_say_otherwise(running: LocalBroker) -> None:
    async def story() -> None:
        service, heard = LegatoBroker(running.url), Heard()

        @service.subscriber("says", retry_delay_s=0)
        async def handle(body: str, message: LegatoMessage) -> None:
            heard.add(body)
            if body == "acked":
                raise AckMessage
            if body == "rejected":
                raise RejectMessage
            if body == "nacked" and message.delivery_count == 1:
                raise NackMessage

        @service.subscriber("rejecting", ack_policy=AckPolicy.REJECT_ON_ERROR)
        async def refuse(body: str) -> None:
            heard.add(body)
            raise ValueError("never")

        async with started(service):
            for body, count in (("acked", 1), ("rejected", 1), ("nacked", 2)):
                await service.publish(body, "says")
                assert [await heard.next() for _ in range(count)] == [body] * count
            await service.publish("bad", "rejecting")
            assert await heard.next() == "bad"
        assert heard.empty

    told(story)
    assert [letter.body for letter in running.dead_letters("says")] == ["rejected"]
    assert [letter.body for letter in running.dead_letters("rejecting")] == ["bad"]
    assert (running.waiting("says"), running.waiting("rejecting")) == (0, 0)


def test_a_handler_with_manual_acknowledgement_may_settle_later(running: LocalBroker) -> None:
    async def story() -> None:
        service, heard = LegatoBroker(running.url), Heard()

        @service.subscriber("manual", ack_policy=AckPolicy.MANUAL)
        async def handle(message: LegatoMessage) -> None:
            heard.add(message)

        async with started(service):
            await service.publish("one", "manual")
            await service.publish("two", "manual")
            messages = [await heard.next(), await heard.next()]
            for message in reversed(messages):
                await message.ack()

    told(story)
    assert running.waiting("manual") == 0


def test_the_result_of_a_handler_is_published_once_however_often_it_runs(running: LocalBroker) -> None:
    """Here the second publication fails, and the handler runs again: the first is not stored a second time."""

    async def story() -> None:
        service, heard = LegatoBroker(running.url), Heard()

        class Broken:
            """Fails once."""

            times = 0

        @service.subscriber("twice", retry_delay_s=0)
        @service.publisher("twice.out")
        async def handle(body: str, message: LegatoMessage) -> LegatoResponse:
            heard.add(message.delivery_count)
            return LegatoResponse(body, priority=7)

        publisher = service.publisher("twice.broken")
        original = publisher._publish

        async def failing(cmd: Any, **options: Any) -> None:
            Broken.times += 1
            if Broken.times == 1:
                raise ConnectionError("lost")
            await original(cmd, **options)

        publisher._publish = failing  # type: ignore[method-assign]
        publisher(handle)
        async with started(service):
            await service.publish("tea", "twice")
            assert [await heard.next(), await heard.next()] == [1, 2]

    told(story)
    for queue in ("twice.out", "twice.broken"):
        [message] = running.messages(queue)
        assert (message.body, message.priority) == ("tea", 7)


def test_each_subscription_of_a_topic_publishes_a_result_and_once_however_often_its_handler_runs(
    running: LocalBroker,
) -> None:
    """The copies of a topic's message have one id, and their results go to one address."""

    async def story() -> None:
        heard = Heard()

        def subscribe(service: LegatoBroker, name: str, subscription: str | None) -> None:
            """A handler that publishes its result twice, and the first time cannot publish the second one."""
            failures = iter([ConnectionError("lost")])
            last = service.publisher("results.out")
            original = last._publish

            async def publish(cmd: Any, **options: Any) -> None:
                for failure in failures:
                    raise failure
                await original(cmd, **options)

            last._publish = publish  # type: ignore[method-assign]

            @service.subscriber(topic="results", subscription=subscription, retry_delay_s=0)
            @last
            @service.publisher("results.out")
            async def handle(message: LegatoMessage) -> str:
                heard.add((name, message.delivery_count))
                return name

        services = [LegatoBroker(running.url) for _ in range(2)]
        for number, service in enumerate(services):
            subscribe(service, f"passing {number}", None)
            subscribe(service, f"durable {number}", f"results:{number}")
        async with started(*services):
            await services[0].publish("tea", topic="results")
            assert sorted([await heard.next() for _ in range(8)]) == [(name, n) for name in names for n in (1, 2)]

    names = [f"{kind} {number}" for kind in ("durable", "passing") for number in range(2)]
    told(story)
    assert sorted(str(message.body) for message in running.messages("results.out")) == sorted(2 * names)


def test_a_topics_subscription_lives_on_while_a_failed_message_waits(running: LocalBroker) -> None:
    """One that is not durable: it would lose the failed message, and what is published before the next consumer."""

    async def story() -> None:
        heard = Heard()
        service = LegatoBroker(running.url)

        @service.subscriber(topic="moments", retry_delay_s=0)
        async def handle(message: LegatoMessage) -> None:
            heard.add((message.body, message.delivery_count))
            if message.body == b"first" and message.delivery_count == 1:
                raise ConnectionError("not yet")

        [subscriber] = service.subscribers
        original = subscriber._open  # type: ignore[attr-defined]
        opened: list[Any] = []

        async def open_later(*arguments: Any) -> Any:
            if len(opened) == 1:
                await service.publish(b"second", topic="moments")
            opened.append(await original(*arguments))
            return opened[-1]

        subscriber._open = open_later  # type: ignore[attr-defined]
        async with started(service):
            await service.publish(b"first", topic="moments")
            assert sorted([await heard.next() for _ in range(3)]) == [(b"first", 1), (b"first", 2), (b"second", 1)]

    told(story)


def test_topics_go_to_every_service_and_once_to_those_that_share_a_subscription(running: LocalBroker) -> None:
    async def story() -> None:
        heard, shared = Heard(), Heard()

        def make(number: int) -> LegatoBroker:
            service = LegatoBroker(running.url)

            @service.subscriber(topic="prices", max_workers=2)
            async def everybody(body: str) -> None:
                heard.add((number, body))

            @service.subscriber(topic="prices", subscription="archive", selector="cheap")
            async def archive(body: str) -> None:
                shared.add(body)

            return service

        services = [make(number) for number in range(2)]
        async with started(*services):
            await services[0].publish("tea", topic="prices", headers={"cheap": True})
            assert sorted([await heard.next(), await heard.next()]) == [(0, "tea"), (1, "tea")]
            assert await shared.next() == "tea"
            await services[0].publish("saffron", topic="prices", headers={"cheap": False})
            assert sorted([await heard.next(), await heard.next()]) == [(0, "saffron"), (1, "saffron")]
        async with LegatoBroker(running.url) as sender:
            await sender.publish("while nobody looks", topic="prices", headers={"cheap": True})
        async with started(services[1]):
            assert await shared.next() == "while nobody looks"
        assert shared.empty

    told(story)


def test_a_request_is_answered_by_what_the_handler_returns(running: LocalBroker) -> None:
    async def story() -> None:
        service = LegatoBroker(running.url)

        @service.subscriber("double", max_workers=3)
        async def double(number: int) -> int:
            return 2 * number

        async with started(service):
            replies = await asyncio.gather(*(service.request(number, "double", timeout=WAIT_S) for number in range(9)))
            assert [await reply.decode() for reply in replies] == [0, 2, 4, 6, 8, 10, 12, 14, 16]
            name: Any = uuid.uuid4()
            reply = await service.request(1, "double", correlation_id=name, timeout=WAIT_S)
            assert reply.correlation_id == str(name)
            with pytest.raises(TimeoutError, match=r"No reply from nobody answers came within 0\.05 s"):
                await service.request(1, "nobody answers", timeout=0.05)

    told(story)


def test_requests_with_the_same_correlation_id_have_each_their_own_reply(running: LocalBroker) -> None:
    async def story() -> None:
        service = LegatoBroker(running.url)

        @service.subscriber("outer", max_workers=2)
        async def outer(number: int, message: LegatoMessage) -> int:
            # As programs do that follow a piece of work by its correlation id.
            reply = await service.request(number, "inner", correlation_id=message.correlation_id, timeout=WAIT_S)
            decoded: Any = await reply.decode()
            return int(decoded) + 1

        @service.subscriber("inner", max_workers=2)
        async def inner(number: int) -> int:
            return 10 * number

        async with started(service):
            requests = (service.request(n, "outer", correlation_id="work", timeout=WAIT_S) for n in (1, 2))
            assert [await reply.decode() for reply in await asyncio.gather(*requests)] == [11, 21]

    told(story)


def test_who_waits_for_a_reply_when_the_broker_stops_is_told(running: LocalBroker) -> None:
    async def story() -> None:
        service = LegatoBroker(running.url)
        async with started(service):
            waits = asyncio.create_task(service.request(1, "unanswered", timeout=None))
            while running.waiting("unanswered") == 0:  # noqa: ASYNC110 - it is the broker that has it
                await asyncio.sleep(0.01)
        with pytest.raises(IncorrectState, match="no reply comes"):
            await asyncio.wait_for(waits, WAIT_S)

    told(story)


def test_the_time_of_a_first_request_counts_without_a_broker_too(tmp_path: Path) -> None:
    async def story() -> None:
        with broker(tmp_path / "store") as only:
            service = LegatoBroker(only.url, options={"close_timeout_s": 0.0})
            await service.start()
        with pytest.raises(TimeoutError, match="No reply from nowhere came"):
            await asyncio.wait_for(service.request(1, "nowhere", timeout=0.1), WAIT_S)
        await service.stop()

    told(story)


def test_a_handler_may_publish_with_the_headers_that_it_had(running: LocalBroker) -> None:
    """Those of a message with a duplicate id, such as the result of another handler: nothing is dropped."""

    async def story() -> None:
        service, heard = LegatoBroker(running.url), Heard()

        @service.subscriber("forward.first")
        @service.publisher("forward.second")
        async def first(body: str) -> LegatoResponse:
            return LegatoResponse(body, headers={"trace": "abc", "JMSXGroupID": "group 1"})

        @service.subscriber("forward.second")
        async def second(body: str, message: LegatoMessage) -> None:
            for number in range(3):
                await service.publish(f"{body} {number}", "forward.third", headers=message.headers)

        @service.subscriber("forward.third")
        async def third(body: str, message: LegatoMessage) -> None:
            heard.add((body, message.headers))

        async with started(service):
            await service.publish("tea", "forward.first")
            headers = {"trace": "abc", "JMSXGroupID": "group 1"}
            assert [await heard.next() for _ in range(3)] == [(f"tea {number}", headers) for number in range(3)]

    told(story)


@pytest.mark.parametrize("by", ["broker", "publisher"])
def test_a_request_that_nobody_took_in_time_may_expire(by: str) -> None:
    with broker() as timed:

        async def story() -> None:
            service, heard = LegatoBroker(timed.url), Heard()
            publisher = service.publisher("expiring", priority=7)
            async with service:
                asking = (
                    service.request(1, "expiring", priority=7, time_to_live_s=60, timeout=1.0)
                    if by == "broker"
                    else publisher.request(1, time_to_live_s=60, timeout=1.0)
                )
                with pytest.raises(TimeoutError):
                    await asking
                [request] = timed.messages("expiring")
                assert (request.body, request.priority) == ("1", 7)
                timed.advance(61)
                await publisher.publish(2, persistent=False, priority=3)

            @service.subscriber("expiring")
            async def handle(number: int, message: LegatoMessage) -> None:
                heard.add((number, message.raw_message.message.delivery_mode, message.raw_message.message.priority))

            async with started(service):
                assert await heard.next() == (2, DeliveryMode.NON_PERSISTENT, 3)

        told(story)


@pytest.mark.parametrize("topic", [False, True], ids=["queue", "topic"])
def test_a_request_whose_asker_has_ended_is_handled_once(running: LocalBroker, topic: bool) -> None:
    """Its reply can go nowhere; the work is done nevertheless."""
    address = f"asker.{topic}"

    async def story() -> None:
        service, heard, asked, gone = LegatoBroker(running.url), Heard(), asyncio.Event(), asyncio.Event()

        @service.subscriber(address, retry_delay_s=0)
        async def answer(number: int, message: LegatoMessage) -> int:
            heard.add((number, message.delivery_count))
            asked.set()
            await gone.wait()
            return number

        async with started(service):
            with ConnectionFactory(running.url).create_connection() as asker:
                session = asker.create_session()
                request = TextMessage("1")
                request.reply_to = session.create_temporary_topic() if topic else session.create_temporary_queue()
                session.create_producer(Queue(address)).send(request)
                async with asyncio.timeout(WAIT_S):
                    await asked.wait()
            gone.set()
            await service.publish(2, address)
            assert [await heard.next(), await heard.next()] == [(1, 1), (2, 1)]

    told(story)
    assert (running.waiting(address), running.dead_letters(address)) == (0, [])


def test_a_reply_to_a_queue_that_must_not_be_is_a_failure(tmp_path: Path) -> None:
    """Unlike one to a program that has ended: somebody has to mend the configuration, or the request."""

    async def story(url: str) -> None:
        service = LegatoBroker(url)

        @service.subscriber("known", retry_delay_s=0, ack_policy=AckPolicy.REJECT_ON_ERROR)
        async def answer(number: int) -> int:
            return number

        async with started(service):
            await service.publish(1, "known", reply_to="unknown")
            await asyncio.to_thread(until, lambda: bool(strict.dead_letters("known")))

    with broker(addresses=[{"match": "unknown", "auto_create": False}]) as strict:
        told(lambda: story(strict.url))
        [letter] = strict.dead_letters("known")
        assert "unknown" in str(letter.properties["JMS_LEGATO_EXCEPTION"])


def test_several_messages_are_handled_at_once_and_no_more(running: LocalBroker) -> None:
    async def story() -> None:
        service, heard, gate = LegatoBroker(running.url), Heard(), asyncio.Event()

        @service.subscriber("wide", max_workers=3)
        async def handle(number: int) -> None:
            heard.add(number)
            await gate.wait()

        async with started(service):
            await asyncio.gather(*(service.publish(number, "wide") for number in range(5)))
            first = [await heard.next() for _ in range(3)]
            await asyncio.sleep(0.05)
            assert heard.empty
            gate.set()
            assert sorted([*first, await heard.next(), await heard.next()]) == [0, 1, 2, 3, 4]

    told(story)


def test_a_service_that_stops_finishes_what_it_has_and_leaves_the_rest(running: LocalBroker) -> None:
    async def story() -> None:
        service, heard, done = LegatoBroker(running.url), Heard(), []

        subscriber = service.subscriber("stopping")

        @subscriber
        async def handle(number: int) -> None:
            heard.add(number)
            while subscriber.running:  # noqa: ASYNC110 - until the service stops
                await asyncio.sleep(0.01)
            done.append(number)

        async with started(service):
            for number in range(3):
                await service.publish(number, "stopping")
            assert await heard.next() == 0
        assert done == [0]

    told(story)
    assert [message.body for message in running.messages("stopping")] == ["1", "2"]
    assert [message.delivery_count for message in running.messages("stopping")] == [1, 1]


def test_what_a_stopped_subscriber_did_not_do_goes_to_others_while_the_broker_goes_on(running: LocalBroker) -> None:
    async def story() -> None:
        service, other = LegatoBroker(running.url, graceful_timeout=0.1), LegatoBroker(running.url)
        subscriber, heard = service.subscriber("stopped alone"), Heard()

        @subscriber
        async def handle(number: int) -> None:
            heard.add(number)
            await asyncio.Event().wait()

        asked = other.subscriber("stopped alone")
        async with started(service, other):
            await service.publish(1, "stopped alone")
            await heard.next()
            await subscriber.stop()
            message = await asked.get_one(timeout=WAIT_S)
            assert message is not None
            await message.ack()

    told(story)


def test_a_handler_may_stop_its_own_subscriber_and_its_message_is_done(running: LocalBroker) -> None:
    async def story() -> None:
        # A handler that waits for itself would wait as long as this.
        service = LegatoBroker(running.url, graceful_timeout=100 * WAIT_S)
        subscriber, heard = service.subscriber("stops itself"), Heard()

        @subscriber
        async def handle(number: int) -> None:
            await subscriber.stop()
            heard.add(number)

        async with started(service):
            await service.publish(1, "stops itself")
            assert await heard.next() == 1
            await asyncio.to_thread(until, lambda: running.waiting("stops itself") == 0)

    told(story)


@pytest.mark.parametrize("raises", ["before the stop", "during the stop"])
def test_a_message_in_its_pause_comes_at_once_when_the_service_stops(running: LocalBroker, raises: str) -> None:
    name = f"pausing {raises}"

    async def story() -> None:
        service, heard, gate = LegatoBroker(running.url, graceful_timeout=WAIT_S), Heard(), asyncio.Event()

        @service.subscriber(name, retry_delay_s=3600)
        async def handle(number: int) -> None:
            heard.add(number)
            if raises == "during the stop":
                await gate.wait()
            raise ValueError(number)

        async with started(service):
            await service.publish(1, name)
            await heard.next()
            asyncio.get_running_loop().call_later(0.1, gate.set)
        assert running.waiting(name) == 1

    told(story)


def test_a_service_may_be_stopped_while_it_starts_without_a_broker(tmp_path: Path) -> None:
    """FastStream's application does so when it is told to end before it runs."""

    async def story() -> None:
        service = LegatoBroker(f"amqp://127.0.0.1:{alone.port}?close_timeout_s=0.1")

        @service.subscriber("starting")
        async def handle(number: int) -> None:
            """Never called."""

        connection = await service.connect()
        alone.kill()
        while connection.host is not None:  # noqa: ASYNC110 - a thread of the client makes it so
            await asyncio.sleep(0.01)
        starting = asyncio.create_task(service.start())
        await asyncio.sleep(0.05)
        assert not starting.done()
        await service.stop()
        await starting

    with server(tmp_path / "store") as alone:
        told(story)


def test_routers_have_prefixes_and_services_a_life(running: LocalBroker) -> None:
    async def story() -> None:
        heard = Heard()
        router = LegatoRouter(prefix="shop.")

        @router.subscriber("orders")
        @router.publisher(topic="billed")
        async def bill(item: str) -> str:
            return f"{item} billed"

        service = LegatoBroker(running.url, routers=[router])

        @service.subscriber(topic="shop.billed")
        async def billed(text: str) -> None:
            heard.add(text)
            app.exit()

        app = FastStream(service)

        @app.after_startup
        async def order() -> None:
            assert await service.ping(WAIT_S)
            await service.publish("tea", "shop.orders")

        await app.run()
        assert await heard.next() == "tea billed"
        assert not await service.ping()

    told(story)


def test_messages_survive_a_failover_in_the_middle_of_handlers(tmp_path: Any) -> None:
    async def story(pair: Any) -> None:
        service, heard, gate = LegatoBroker(pair.url), Heard(), asyncio.Event()

        @service.subscriber("held", max_workers=2)
        @service.publisher("held.out")
        async def handle(number: int, message: LegatoMessage) -> int:
            heard.add((number, message.delivery_count))
            await gate.wait()
            return number

        async with started(service):
            for number in range(4):
                await service.publish(number, "held")
            held = [await heard.next() for _ in range(2)]
            await asyncio.to_thread(pair.fail_over)
            gate.set()
            rest = [await heard.next() for _ in range(2)]
            assert sorted([*held, *rest]) == [(0, 1), (1, 1), (2, 1), (3, 1)]
            out = service.subscriber("held.out", persistent=False)
            await out.start()
            results = [await out.get_one(timeout=WAIT_S) for _ in range(4)]
            assert sorted([int(str(await each.decode())) for each in results if each is not None]) == [0, 1, 2, 3]
            assert await out.get_one(timeout=0.05) is None

    with broker_pair(tmp_path) as pair:
        asyncio.run(story(pair))


def test_mistakes_are_told_where_they_are_made() -> None:
    service = LegatoBroker("amqp://one:1")
    with pytest.raises(SetupError, match="a queue or a topic"):
        service.subscriber()
    with pytest.raises(SetupError, match="only topics have subscriptions"):
        service.subscriber("orders", subscription="archive")
    with pytest.raises(SetupError, match="not to both"):
        service.publisher("orders", topic="prices")
    with pytest.raises(ConfigError, match="prefetsh"):
        LegatoBroker("amqp://one", options={"prefetsh": 1})  # type: ignore[arg-type]
    secured = LegatoBroker("amqp://one", security=SASLPlaintext("ann", "secret", use_ssl=True))
    assert secured.specification.url == ["amqps://one"]
    with pytest.raises(ConfigError, match="tls_ca_file"):
        LegatoBroker("amqp://one", security=BaseSecurity(ssl_context=ssl.create_default_context()))
    assert LegatoBroker("amqp://ann:secret@one,two").specification.url == ["amqp://one,two"]
