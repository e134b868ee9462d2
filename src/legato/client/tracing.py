"""OpenTelemetry in the client: spans of sends, receipts, listeners and commits, and their context in messages.

from legato.client import tracing

tracing.instrument()

It is off until `instrument()` is called, and costs nothing then: the client's methods are not touched before.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from legato.client.calls.consumer_steps import ConsumerSteps, MessageListener
from legato.client.calls.dispatcher import Dispatching
from legato.client.calls.producer_steps import ProducerSteps
from legato.client.calls.session_transactions import SessionTransactions
from legato.client.messages.destinations import Destination
from legato.client.messages.message import Message
from legato.client.messages.properties import Properties
from legato.client.messages.sendable import Sendable, message_of
from legato.client.producer import MessageProducer
from legato.client.steps import Steps
from legato.errors import MessageFormatError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider

SYSTEM = "legato"
_FIELDS = ("traceparent", "tracestate", "baggage")

_lock = threading.Lock()
_before: list[tuple[type, str, Any]] = []
"""The methods as they were before they were instrumented."""
_tracer: Tracer | None = None


def instrument(tracer_provider: TracerProvider | None = None) -> None:
    """Have all connections of this process make spans; called again it changes the provider.

    A send is `send <destination>` (PRODUCER), with the context of the span in the message's properties (`traceparent`,
    `tracestate`, as W3C names them). A message that is received has a span `receive <destination>` (CLIENT), linked to
    that of its send. The call of a listener is `process <destination>` (CONSUMER), a child of that of the send;
    `processing()` makes such a span for code that calls `receive()`. `commit` and `rollback` are CLIENT spans.

    Args:
        tracer_provider: the global one by default.

    Raises:
        ImportError: OpenTelemetry is not installed: `pip install 'legato[tracing]'`.
    """
    global _tracer
    try:
        from opentelemetry import trace
    except ModuleNotFoundError as error:
        raise ImportError("This needs the package opentelemetry-api: pip install 'legato[tracing]'.") from error
    with _lock:
        _tracer = trace.get_tracer("legato.client", tracer_provider=tracer_provider)
        if _before:
            return
        for kind, name, make in (
            (MessageProducer, "send", _traced_send),
            (ProducerSteps, "_send", _traced_send_steps),
            (ConsumerSteps, "_take", _traced_take),
            (Dispatching, "_call", _traced_call),
            (SessionTransactions, "commit", _traced_end("commit")),
            (SessionTransactions, "rollback", _traced_end("rollback")),
        ):
            method = getattr(kind, name)
            _before.append((kind, name, method))
            setattr(kind, name, make(method))


def uninstrument() -> None:
    """Make no spans any more."""
    with _lock:
        while _before:
            kind, name, method = _before.pop()
            setattr(kind, name, method)


@contextmanager
def processing(message: Message) -> Iterator[Span]:
    """The span of work on a received message, the child of that of its send; it is the current one meanwhile.

    Raises:
        ImportError: OpenTelemetry is not installed.
    """
    from opentelemetry.trace import SpanKind

    tracer = _tracer
    if tracer is None:
        from opentelemetry import trace

        tracer = trace.get_tracer("legato.client")
    attributes = _attributes(message, message.destination, "process", "process")
    with tracer.start_as_current_span(
        f"process {attributes['messaging.destination.name']}",
        context=_context_of(message),
        kind=SpanKind.CONSUMER,
        attributes=attributes,
    ) as span:
        yield span


# -- contexts in messages -------------------------------------------------------------------------------------


def _inject(message: Message, span: Span) -> None:
    """Put the context of its send into a message; one that was received, and is sent on, gets a new one."""
    from opentelemetry import propagate, trace

    carrier: dict[str, str] = {}
    propagate.inject(carrier, context=trace.set_span_in_context(span))
    properties = message.properties
    values = {name: value for name, value in properties._values.items() if name not in _FIELDS}
    for name, value in carrier.items():
        if name.isidentifier():
            values[name] = value
    message._properties = Properties(values, read_only=properties._read_only)


def _context_of(message: Message) -> Context:
    from opentelemetry import propagate

    try:
        properties = message.properties._values
    except MessageFormatError:  # for the application to find out
        properties = {}
    return propagate.extract({name: value for name, value in properties.items() if isinstance(value, str)})


def _attributes(message: Message, destination: Destination | None, name: str, kind: str) -> dict[str, Any]:
    values: dict[str, Any] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": "" if destination is None else destination.name,
    }
    if destination is not None and destination.kind >= 2:
        values["messaging.destination.temporary"] = True
    with suppress(MessageFormatError):
        if kind != "send":
            values["messaging.message.id"] = message.message_id or ""
            values["legato.delivery_count"] = message.delivery_count
        if isinstance(message.correlation_id, str):
            values["messaging.message.conversation_id"] = message.correlation_id
    return values


# -- the methods ----------------------------------------------------------------------------------------------


class _Sending:
    """The span of one send."""

    def __init__(self, message: Message, destination: Destination | None, transacted: bool) -> None:
        from opentelemetry.trace import SpanKind

        assert _tracer is not None
        attributes = _attributes(message, destination, "send", "send")
        if transacted:
            attributes["legato.transacted"] = True
        name = f"send {attributes['messaging.destination.name']}".rstrip()
        self._message = message
        self._span = _tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=attributes)
        _inject(message, self._span)

    def end(self, error: BaseException | None = None) -> None:
        """It is stored, or handed over, or failed."""
        if self._message.message_id:
            self._span.set_attribute("messaging.message.id", self._message.message_id)
        _end(self._span, error)


def _end(span: Span, error: BaseException | None) -> None:
    from opentelemetry.trace import Status, StatusCode

    if error is not None:
        span.set_attribute("error.type", type(error).__qualname__)
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
    span.end()


def _traced_send(send: Any) -> Any:
    def traced(self: MessageProducer, message: Sendable, **options: Any) -> None:
        sent = message_of(message)
        destination = options.get("destination") or self.destination
        sending = _Sending(sent, destination, self._transactions.current is not None)
        try:
            send(self, sent, **options)
        except BaseException as error:
            sending.end(error)
            raise
        sending.end()

    return _named(traced, send)


def _traced_send_steps(send: Any) -> Any:
    def traced(self: ProducerSteps, message: Sendable, **options: Any) -> Steps[None]:
        sent = message_of(message)
        destination = options.get("destination") or self.destination
        sending = _Sending(sent, destination, self._transactions.current is not None)
        try:
            yield from send(self, sent, **options)
        except BaseException as error:
            sending.end(error)
            raise
        sending.end()

    return _named(traced, send)


def _traced_take(take: Any) -> Any:
    def traced(self: ConsumerSteps) -> Message | None:
        from opentelemetry import trace

        began_ns = time.time_ns()
        # Here it is the call's, and of a call that is interrupted in these lines it is taken back.
        message: Message | None = take(self)
        if message is not None and _tracer is not None:
            attributes = _attributes(message, self.destination, "receive", "receive")
            sent = trace.get_current_span(_context_of(message)).get_span_context()
            _tracer.start_span(
                f"receive {self.destination.name}",
                kind=trace.SpanKind.CLIENT,
                attributes=attributes,
                links=[trace.Link(sent)] if sent.is_valid else None,
                start_time=began_ns,
            ).end()
        return message

    return _named(traced, take)


def _traced_call(call: Any) -> Any:
    def traced(
        self: Dispatching, consumer: ConsumerSteps, listener: MessageListener, delivery: Any, message: Message
    ) -> Steps[None]:
        from opentelemetry import context, trace
        from opentelemetry.trace import SpanKind

        assert _tracer is not None
        attributes = _attributes(message, consumer.destination, "process", "process")
        span = _tracer.start_span(
            f"process {consumer.destination.name}",
            context=_context_of(message),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
        )
        self.raised = None
        token = context.attach(trace.set_span_in_context(span, _context_of(message)))
        try:
            yield from call(self, consumer, listener, delivery, message)
        finally:
            context.detach(token)
            _end(span, self.raised)

    return _named(traced, call)


def _traced_end(name: str) -> Any:
    def make(end: Any) -> Any:
        def traced(self: SessionTransactions) -> Steps[None]:
            from opentelemetry.trace import SpanKind

            assert _tracer is not None
            attributes: dict[str, Any] = {
                "messaging.system": SYSTEM,
                "messaging.operation.name": name,
                "messaging.operation.type": "settle",
            }
            if self.current is not None:
                attributes["messaging.batch.message_count"] = len(self.current.sends)
            span = _tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes)
            try:
                yield from end(self)
            except BaseException as error:
                _end(span, error)
                raise
            _end(span, None)

        return _named(traced, end)

    return make


def _named(traced: Any, original: Any) -> Any:
    """With the name, documentation and signature of the original."""
    return functools.wraps(original)(traced)
