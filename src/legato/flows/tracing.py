"""OpenTelemetry: context of flows and spans of stages, if the program has configured it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from legato.flows.model.envelope import Envelope, Outgoing

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

SYSTEM = "legato"


def make_tracing(service: str) -> Tracing | None:
    """Maker of spans; None if OpenTelemetry is not installed, or has no provider of tracers."""
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return Tracing(provider.get_tracer("legato.flows"), service)


class Tracing:
    """Spans with the semantic conventions of messaging.

    Args:
        service: who sends what begins a flow.
    """

    def __init__(self, tracer: Tracer, service: str) -> None:
        self._tracer = tracer
        self._service = service

    @contextmanager
    def processing(self, envelope: Envelope, stage_id: str, attempt: int) -> Iterator[None]:
        """The span of a run of a stage, the child of that of the call; it is the current one meanwhile."""
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind

        attributes = _attributes(envelope, stage_id) | {
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "legato.attempt": attempt,
        }
        with self._tracer.start_as_current_span(
            f"process {stage_id}",
            context=propagate.extract(envelope.trace_context),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
        ):
            yield

    def sent(self, outgoing: Outgoing) -> Outgoing:
        """The same call with its own span's context; inside of `processing`."""
        from opentelemetry import propagate, trace
        from opentelemetry.trace import SpanKind

        envelope = outgoing.envelope
        attributes = _attributes(envelope, envelope.to) | {
            "messaging.operation.name": str(envelope.call),
            "messaging.operation.type": "send",
        }
        span = self._tracer.start_span(f"{envelope.call} {envelope.to}", kind=SpanKind.PRODUCER, attributes=attributes)
        with trace.use_span(span, end_on_exit=True):
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
        return msgspec.structs.replace(outgoing, envelope=msgspec.structs.replace(envelope, trace_context=carrier))

    def current(self) -> dict[str, str]:
        """The context of whoever begins a flow."""
        from opentelemetry import propagate

        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return carrier


def _attributes(envelope: Envelope, destination: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": destination,
        "messaging.message.id": envelope.message_id,
        "messaging.message.conversation_id": envelope.flow_id,
        "legato.trace_id": envelope.trace_id,
        "legato.call_number": envelope.number,
    }
