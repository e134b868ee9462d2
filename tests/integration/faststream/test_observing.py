"""Metrics and traces of a FastStream service, as FastStream's other brokers have them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from prometheus_client import CollectorRegistry

from legato.faststream import LegatoBroker, LegatoMessage, TestLegatoBroker
from legato.faststream.opentelemetry import LegatoTelemetryMiddleware
from legato.faststream.prometheus import LegatoPrometheusMiddleware
from legato.testing import broker

WAIT_S = 60.0


def shop(url: str, middleware: Any) -> tuple[LegatoBroker, asyncio.Event]:
    service, done = LegatoBroker(url, middlewares=(middleware,)), asyncio.Event()

    @service.subscriber("watched.orders", retry_delay_s=0)
    @service.publisher(topic="watched.bills")
    async def bill(order: str, message: LegatoMessage) -> str:
        if message.delivery_count == 1:
            raise ValueError("not yet")
        return order

    @service.subscriber(topic="watched.bills")
    async def file(order: str) -> None: ...

    @service.subscriber("watched.end")
    async def end(body: str) -> None:
        done.set()

    return service, done


async def ran(service: LegatoBroker, done: asyncio.Event, finished: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S), service:
        await service.start()
        await service.publish("tea", "watched.orders")
        while not finished():  # noqa: ASYNC110 - what is asked is no event
            await asyncio.sleep(0.01)
        await service.publish("end", "watched.end")
        await done.wait()


def run(story: Callable[[str], Awaitable[None]]) -> None:
    with broker() as running:
        asyncio.run(story(running.url))  # type: ignore[arg-type]


def test_prometheus_counts_what_handlers_get_and_what_is_published() -> None:
    registry = CollectorRegistry()

    def count(name: str, **labels: str) -> float:
        return (
            registry.get_sample_value(
                f"faststream_{name}_total", {"app_name": "faststream", "broker": "legato", **labels}
            )
            or 0
        )

    async def story(url: str) -> None:
        service, done = shop(url, LegatoPrometheusMiddleware(registry=registry))
        await ran(service, done, lambda: count("received_messages", handler="topic://watched.bills") == 1)

    run(story)
    assert count("received_messages", handler="watched.orders") == 2
    assert count("received_processed_messages", handler="watched.orders", status="error") == 1
    exceptions = {"handler": "watched.orders", "exception_type": "ValueError"}
    assert count("received_processed_messages_exceptions", **exceptions) == 1
    assert count("published_messages", destination="topic://watched.bills", status="success") == 1


@pytest.mark.parametrize("memory", [False, True], ids=["broker", "memory"])
def test_a_trace_goes_from_a_publication_through_a_handler_to_the_next(memory: bool) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    middleware = LegatoTelemetryMiddleware(tracer_provider=provider)

    def named(name: str) -> list[Any]:
        return [span for span in exporter.get_finished_spans() if span.name == name]

    async def story(url: str) -> None:
        service, done = shop(url, middleware)
        if not memory:
            await ran(service, done, lambda: bool(named("topic://watched.bills process")))
            return
        async with TestLegatoBroker(service) as tested:
            with pytest.raises(ValueError, match="not yet"):
                await tested.publish("tea", "watched.orders")
            await tested.publish("tea", topic="watched.bills")

    run(story)
    [first, *others] = named("watched.orders process")
    assert first.events[0].name == "exception"
    assert (first.kind, first.attributes["messaging.system"]) == (SpanKind.CONSUMER, "legato")
    assert first.attributes["messaging.message.id"]
    if not memory:
        traces = {span.context.trace_id for span in (first, *others, *named("topic://watched.bills process"))}
        assert len(traces) == 1
        assert named("watched.orders publish")[0].context.trace_id in traces
