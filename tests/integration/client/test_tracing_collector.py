"""Spans of the client in a real collector of OpenTelemetry, over OTLP.

It runs where `pip install rotel opentelemetry-exporter-otlp-proto-http` was done: the lock file has neither.
"""

from __future__ import annotations

import subprocess
import threading
from importlib import import_module, util
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from legato.client import ConnectionFactory, tracing
from legato.testing import broker
from tests.integration.client.calling import until
from tests.support.server import free_port

pytestmark = pytest.mark.slow


def exporter(url: str) -> Any:
    """OpenTelemetry's own exporter."""
    module = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    return import_module(module).OTLPSpanExporter(endpoint=url, timeout=60)


def test_a_collector_gets_the_spans_of_a_message() -> None:
    rotel = util.find_spec("rotel")
    if rotel is None or rotel.origin is None:
        pytest.skip("rotel, a collector, is not installed")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    port = free_port()
    command = [str(Path(rotel.origin).with_name("rotel-agent")), "start", "--exporter", "blackhole"]
    command += ["--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}"]
    command += ["--debug-log", "traces", "--debug-log-verbosity", "detailed"]
    collector = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(collector.stdout or ()), daemon=True)
    reader.start()
    provider = TracerProvider(shutdown_on_exit=False)
    try:
        until(lambda: _answers(port))
        provider.add_span_processor(SimpleSpanProcessor(exporter(f"http://127.0.0.1:{port}/v1/traces")))
        tracing.instrument(provider)
        with broker() as running, ConnectionFactory(running.url).create_context() as context:
            queue = context.create_queue("orders")
            context.create_producer().send(queue, "tea")
            message = context.create_consumer(queue).receive(60)
            assert message
            with tracing.processing(message):
                pass
        names = ("send orders", "receive orders", "process orders")
        until(lambda: all(any(name in line for line in list(lines)) for name in names))
    finally:
        tracing.uninstrument()
        provider.shutdown()
        collector.kill()
        collector.wait()


def _answers(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
