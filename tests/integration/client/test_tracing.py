"""OpenTelemetry in the client, with the real SDK: one trace from who sends to who receives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from legato.client import (
    Connection,
    InvalidDestinationError,
    JMSContext,
    Message,
    MessageConsumer,
    MessageProducer,
    Queue,
    TextMessage,
    aio,
    tracing,
)
from legato.client.calls.dispatcher import Dispatching
from legato.client.calls.session_transactions import SessionTransactions
from legato.testing import BrokerPair
from tests.integration.client.calling import until
from tests.integration.client.helpers import WAIT_S

Connect = Callable[..., Connection]


class Spans:
    """What was exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    @property
    def all(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, begin: str) -> list[Any]:
        return [span for span in self.all if span.name.startswith(begin)]


@pytest.fixture
def in_this_thread(request: pytest.FixtureRequest) -> bool:
    """Whether the client runs in the thread of the test; the asyncio twin has one of its own."""
    return "threads" in request.node.name


@pytest.fixture
def spans() -> Iterator[Spans]:
    spans = Spans()
    tracing.instrument(spans.provider)
    yield spans
    tracing.uninstrument()


def test_a_message_carries_the_context_of_its_send_to_who_receives_it(
    spans: Spans, connect: Connect, queue_name: str, in_this_thread: bool
) -> None:
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    message = TextMessage("tea")
    message.correlation_id = "order-7"
    producer = session.create_producer(queue)
    with spans.tracer.start_as_current_span("request") as request:
        producer.send(message)
    received = session.create_consumer(queue).receive(TextMessage, WAIT_S)
    assert received
    (sent,) = spans.named("send")
    assert (sent.name, sent.kind) == (f"send {queue_name}", SpanKind.PRODUCER)
    if in_this_thread:
        assert sent.parent.span_id == request.get_span_context().span_id
        assert sent.context.trace_id == request.get_span_context().trace_id
    assert sent.attributes == {
        "messaging.system": "legato",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": queue_name,
        "messaging.message.id": message.message_id,
        "messaging.message.conversation_id": "order-7",
    }
    carried = f"00-{sent.context.trace_id:032x}-{sent.context.span_id:016x}-"
    assert str(received.get_string_property("traceparent")).startswith(carried)
    (got,) = spans.named("receive")
    assert (got.name, got.kind) == (f"receive {queue_name}", SpanKind.CLIENT)
    assert [link.context.span_id for link in got.links] == [sent.context.span_id]
    assert got.attributes["messaging.message.id"] == message.message_id
    with tracing.processing(received):
        spans.tracer.start_span("query").end()
    (process,) = spans.named("process")
    (query,) = spans.named("query")
    assert (process.name, process.kind) == (f"process {queue_name}", SpanKind.CONSUMER)
    assert (process.parent.span_id, query.parent.span_id) == (sent.context.span_id, process.context.span_id)


def test_a_listener_runs_in_a_span_of_its_own_which_says_what_it_raised(
    spans: Spans, connect: Connect, queue_name: str, in_this_thread: bool
) -> None:
    connection = connect()
    session, sending = connection.create_session(), connection.create_session()
    current: list[int] = []
    done = threading.Event()

    def listen(message: Message) -> None:
        current.append(trace.get_current_span().get_span_context().span_id)
        if len(current) == 1:
            raise ValueError("broken")
        sending.create_producer(Queue(f"{queue_name}.next")).send({"a": 1})
        done.set()

    session.create_consumer(session.create_queue(queue_name)).message_listener = listen
    connection.create_session().create_producer(Queue(queue_name)).send("tea")
    assert done.wait(WAIT_S)
    until(lambda: len(spans.named("process")) == 2)
    failed, good = spans.named("process")
    first, following = spans.named("send")
    if in_this_thread:
        assert current == [failed.context.span_id, good.context.span_id]
        assert following.parent.span_id == good.context.span_id
    assert failed.parent.span_id == good.parent.span_id == first.context.span_id
    assert (failed.status.status_code, failed.attributes["error.type"]) == (StatusCode.ERROR, "ValueError")
    assert failed.events[0].name == "exception"
    assert (good.status.status_code, good.attributes["legato.delivery_count"]) == (StatusCode.UNSET, 2)
    assert following.name == f"send {queue_name}.next"


def test_commits_and_rollbacks_are_spans_and_sends_in_them_say_so(
    spans: Spans, connect: Connect, queue_name: str
) -> None:
    session = connect().create_session(transacted=True)
    producer = session.create_producer(session.create_queue(queue_name))
    producer.send("1")
    session.rollback()
    producer.send("2")
    producer.send("3")
    session.commit()
    assert [(span.name, (span.attributes or {}).get("messaging.batch.message_count")) for span in spans.all] == [
        (f"send {queue_name}", None),
        ("rollback", 1),
        (f"send {queue_name}", None),
        (f"send {queue_name}", None),
        ("commit", 2),
    ]
    assert all(span.attributes["legato.transacted"] for span in spans.named("send"))
    assert spans.named("commit")[0].kind is SpanKind.CLIENT


def test_a_send_that_fails_says_why(spans: Spans, connect: Connect) -> None:
    producer = connect().create_session().create_producer()
    with pytest.raises(InvalidDestinationError):
        producer.send("tea")
    (failed,) = spans.named("send")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes["error.type"] == "InvalidDestinationError"


def test_a_received_message_that_is_sent_on_gets_the_context_of_its_new_send(
    spans: Spans, connect: Connect, queue_name: str
) -> None:
    session = connect().create_session()
    one, two = session.create_queue(queue_name), session.create_queue(f"{queue_name}.2")
    first = TextMessage("tea")
    first.set_property("customer", "Alice")
    session.create_producer(one).send(first)
    message = session.create_consumer(one).receive(WAIT_S)
    assert message
    session.create_producer(two).send(message)
    last = session.create_consumer(two).receive(WAIT_S)
    assert last
    assert f"{spans.named('send')[1].context.span_id:016x}" in str(last.get_string_property("traceparent"))
    assert last.get_string_property("customer") == "Alice"


def test_the_simplified_api_is_traced_too(spans: Spans, context: Callable[..., JMSContext], queue_name: str) -> None:
    with context() as one:
        queue = one.create_queue(queue_name)
        one.create_producer().send(queue, "tea")
        assert one.create_consumer(queue).receive_body(str, WAIT_S) == "tea"
    assert [span.name for span in spans.all] == [f"send {queue_name}", f"receive {queue_name}"]


def test_asyncio_is_traced_too(spans: Spans, shared_pair: BrokerPair, queue_name: str) -> None:
    async def story() -> None:
        async with aio.ConnectionFactory(shared_pair.url).create_connection() as connection:
            connection.start()
            session = connection.create_session()
            queue = session.create_queue(queue_name)
            producer = await session.create_producer(queue)
            with spans.tracer.start_as_current_span("request"):
                await asyncio.gather(producer.send("tea"))
            heard: asyncio.Future[int] = asyncio.get_running_loop().create_future()

            async def listen(message: Message) -> None:
                await asyncio.sleep(0)
                heard.set_result(trace.get_current_span().get_span_context().span_id)

            consumer = await session.create_consumer(queue)
            consumer.message_listener = listen
            inside = await asyncio.wait_for(heard, WAIT_S)
            assert not trace.get_current_span().get_span_context().is_valid
            await session.close()
            (process,) = spans.named("process")
            (sent,) = spans.named("send")
            (request,) = spans.named("request")
            assert process.context.span_id == inside
            assert (process.parent.span_id, sent.parent.span_id) == (sent.context.span_id, request.context.span_id)
            other = connection.create_session(transacted=True)
            async with other.create_producer(queue) as another:
                await another.send("milk")
                await other.commit()
            assert spans.named("commit")

    asyncio.run(story())


def test_it_costs_nothing_until_it_is_switched_on_and_after_it_is_switched_off() -> None:
    kinds = (MessageProducer, MessageConsumer, aio.MessageProducer, Dispatching, SessionTransactions)
    before = [dict(vars(kind)) for kind in kinds]
    tracing.instrument(TracerProvider(shutdown_on_exit=False))
    tracing.instrument(TracerProvider(shutdown_on_exit=False))
    assert vars(MessageProducer)["send"] is not before[0]["send"]
    tracing.uninstrument()
    tracing.uninstrument()
    assert [dict(vars(kind)) for kind in kinds] == before
