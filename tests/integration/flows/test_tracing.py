"""What can be seen of flows: steps of one, spans, a running service."""

from __future__ import annotations

import json
import queue
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import trace as opentelemetry
from typer.testing import CliRunner

from legato.cli.main import app
from legato.flows import Context, Flows, Policy
from tests.integration.client.calling import until
from tests.integration.flows.test_service import FEW, WAIT_S
from tests.support.broker import BrokerPair
from tests.support.shop import Order, declare_shop


def traced(pair: BrokerPair, prefix: str, trace_id: str, code: int = 0) -> list[dict[str, Any]]:
    arguments = ["flows", "trace", trace_id, "--prefix", prefix, "--json"]
    result = CliRunner().invoke(app, arguments, env={"LEGATO_URL": pair.url})
    assert result.exit_code == code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_flow_that_ended_is_traced_through_its_stages(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str, tmp_path: Any
) -> None:
    flows = make_flows(database=f"sqlite:///{tmp_path}/shop.db", policy=FEW, trace_retention_s=600, name="web")
    receipts = declare_shop(flows)
    flows.start()
    with flows.initiate("order:17") as initiation:
        initiation.request("Orders.place", Order("tea", 2), reply_to="Orders.done")
    receipts.get(timeout=WAIT_S)
    until(lambda: flows.health["Orders.done"].meter.runs)
    steps = traced(calm_pair, prefix, "order:17")
    assert [(step["sender"], step["call"], step["stage"], step["state"]) for step in steps] == [
        ("web", "request", "Orders.place", "done"),
        ("Orders.place", "request", "Prices.of", "done"),
        ("Prices.of", "reply", "Orders.place.stage1", "done"),
        ("Orders.place.stage1", "reply", "Orders.done", "done"),
    ]
    assert all(step["in_stage_us"] > 0 and step["in_queue_us"] >= 0 for step in steps)
    assert steps[0]["then"] == "request Prices.of"
    shown = CliRunner().invoke(
        app, ["flows", "trace", "order:17", "--prefix", prefix], env={"LEGATO_URL": calm_pair.url, "COLUMNS": "200"}
    )
    assert "Orders.place.stage1" in shown.stdout
    assert traced(calm_pair, prefix, "order:18", code=1) == []


def test_a_flow_that_failed_is_traced_to_its_dead_letter_without_any_records(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str
) -> None:
    flows = make_flows(policy=Policy(concurrency=1, deliveries_max=1))
    endpoint = flows.endpoint("Orders.break")

    @endpoint.stage
    def first(context: Context[None], item: str) -> None:
        context.next(item)

    @endpoint.last_stage
    def second(context: Context[None], item: str) -> str:
        raise ValueError("broken")

    flows.start()
    flows.send("Orders.break", "tea", trace_id="order:19")
    until(lambda: flows.health["Orders.break.stage1"].meter.buried)
    assert [(step["call"], step["stage"], step["state"]) for step in traced(calm_pair, prefix, "order:19")] == [
        ("send", "Orders.break", "passed"),
        ("next", "Orders.break.stage1", "dead letter"),
    ]


class Recording(opentelemetry.Tracer):
    """Notes the spans that are begun, as the API of OpenTelemetry wants it done."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, int, int]] = []

    def start_span(self, name: str, context: Any = None, kind: Any = None, **_: Any) -> Any:  # type: ignore[override]
        parent = opentelemetry.get_current_span(context).get_span_context()
        trace_id = parent.trace_id or 4711
        span_id = 100 + len(self.spans)
        self.spans.append((name, kind.name, span_id, parent.span_id))
        span = opentelemetry.SpanContext(trace_id, span_id, False, opentelemetry.TraceFlags(1))
        return opentelemetry.NonRecordingSpan(span)

    @contextmanager
    def start_as_current_span(  # type: ignore[override]
        self, name: str, context: Any = None, kind: Any = None, **_: Any
    ) -> Iterator[Any]:
        span = self.start_span(name, context, kind)
        with opentelemetry.use_span(span):
            yield span


def test_spans_of_stages_are_children_of_those_of_the_calls(
    make_flows: Callable[..., Flows], monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = Recording()

    class Provider(opentelemetry.TracerProvider):
        def get_tracer(self, *_: Any, **__: Any) -> Any:
            return tracer

    monkeypatch.setattr(opentelemetry, "get_tracer_provider", lambda: Provider())
    flows = make_flows(policy=Policy(concurrency=1))
    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    seen: list[dict[str, str]] = []

    @flows.single("Prices.of")
    def price(context: Context[None], item: str) -> float:
        seen.append(context.envelope.trace_context)
        return 1.0

    @flows.terminator("Orders.done")
    def end(context: Context[None], price: float) -> None:
        context.after_commit(lambda: done.put(context.trace_id))

    flows.start()
    with flows.initiate("order:20") as initiation:
        initiation.request("Prices.of", "tea", reply_to="Orders.done")
    done.get(timeout=WAIT_S)
    (process, _, one, _), (reply, kind, two, of_two), (last, _, _, of_last) = tracer.spans
    assert (process, reply, kind, last) == ("process Prices.of", "reply Orders.done", "PRODUCER", "process Orders.done")
    assert (of_two, of_last) == (one, two)


def test_a_running_service_shows_its_endpoints_as_a_page(make_flows: Callable[..., Flows]) -> None:
    flows = make_flows(policy=FEW, name="web <shop>", version="2")
    receipts = declare_shop(flows)
    server = flows.serve_introspection(0)
    flows.start()
    with flows.initiate("order:21") as initiation:
        initiation.request("Orders.place", Order("tea", 2), reply_to="Orders.done")
    receipts.get(timeout=WAIT_S)
    until(lambda: flows.health["Orders.done"].meter.runs)
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/json") as answer:
        seen = json.load(answer)
    placing, prices, done = seen["endpoints"]
    assert [stage["id"] for stage in placing["stages"]] == ["Orders.place", "Orders.place.stage1"]
    assert (prices["stages"][0]["callers"], prices["stages"][0]["calls"]) == (
        {"Orders.place": 1},
        {"Orders.place.stage1": 1},
    )
    assert (done["kind"], done["stages"][0]["runs"], done["stages"][0]["circuit"]) == ("terminator", 1, "closed")
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/") as answer:
        html = answer.read().decode()
    assert "web &lt;shop&gt; 2" in html
    assert "Orders.place.stage1" in html
    flows.stop()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/")
