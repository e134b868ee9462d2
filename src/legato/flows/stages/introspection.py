"""Introspection of a running service: its endpoints as a page and as JSON."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from legato.flows.model.circuit import State
from legato.flows.model.levels import Transaction
from legato.flows.stages.introspection_page import page
from legato.flows.stages.join_worker import joins_of
from legato.small_http import SmallHandler, SmallServer

if TYPE_CHECKING:
    from legato.flows.stages.running_service import RunningService

REFRESH_S = 5
FAILING_SHOWN = 10
"""Messages of a stage that fail and are shown, the latest first."""
HOST_DEFAULT = "127.0.0.1"


def snapshot(flows: RunningService) -> dict[str, Any]:
    """The service's endpoints and what their stages have counted in this process, as JSON has it."""
    now_us = flows.clock.now_us()
    return {
        "service": flows.whereabouts.service,
        "host": flows.whereabouts.host,
        "versions": flows.whereabouts.versions,
        "now_us": now_us,
        "endpoints": [
            {
                "id": endpoint.id,
                "kind": "subscription terminator" if endpoint.topic else "terminator" if endpoint.terminator else "",
                "stages": [told for stage in endpoint.stages for told in _stages(flows, stage.id, now_us)],
            }
            for endpoint in flows.registry.endpoints.values()
        ],
    }


def _stages(flows: RunningService, stage_id: str, now_us: int) -> list[dict[str, Any]]:
    """A stage, and what brings together the answers that it gets."""
    stage = flows.registry.stage(stage_id)
    policy = flows.policy_of(stage)
    told = [
        {
            "id": stage_id,
            "function": stage.function.__qualname__,
            "transaction": str(policy.transaction),
            "concurrency": policy.concurrency,
            "runs": 0,
            **_counted(flows, stage_id, now_us),
        }
    ]
    joins = joins_of(stage_id)
    if joins in flows.health:
        told.append(
            {
                "id": joins,
                "function": "joins",
                "transaction": str(Transaction.MESSAGING),
                "concurrency": 1,
                **_counted(flows, joins, now_us),
            }
        )
    return told


def _counted(flows: RunningService, name: str, now_us: int) -> dict[str, Any]:
    """Counters of the workers of that name; empty if the service was not started."""
    health = flows.health.get(name)
    if health is None:
        return {}
    now_s = flows.clock.monotonic_ms() / 1e3
    with health.lock:
        meter, circuit = health.meter, health.circuit
        next_try_s = 0.0 if circuit.state is State.CLOSED else max(circuit.until_s - now_s, 0.0)
        return {
            "runs": meter.runs,
            "failures": meter.failures,
            "buried": meter.buried,
            "per_s": meter.per_s(now_us),
            "in_queue_s": meter.in_queue_s,
            "in_stage_s": meter.in_stage_s,
            "in_stage_max_s": meter.in_stage_max_s,
            "callers": dict(meter.callers),
            "calls": dict(meter.calls),
            "last_run_us": meter.last_run_us,
            "last_failure_us": meter.last_failure_us,
            "last_failure": meter.last_failure,
            "circuit": str(circuit.state),
            "circuit_opened": circuit.opened,
            "next_try_s": next_try_s,
            "failing": [
                {
                    "message_id": message,
                    "attempt": failing.attempt,
                    "failure": failing.text,
                    "gives_up_s": health.gives_up_s(failing, now_s),
                }
                for message, failing in health.attempts.latest(FAILING_SHOWN)
            ],
        }


class IntrospectionServer:
    """Serves the page at `/` and the JSON at `/json`, from a thread of its own.

    Args:
        look: makes a snapshot.
        port: 0 for any that is free.
        host: whose address to listen at; the page asks nobody who he is.

    Raises:
        OSError: the port is not free.
    """

    def __init__(self, look: Callable[[], dict[str, Any]], port: int, host: str = HOST_DEFAULT) -> None:
        class Handler(SmallHandler):
            def answer(self, path: str, query: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
                if path == "/":
                    found = page(look(), refresh_s=REFRESH_S).encode()
                    return HTTPStatus.OK, "text/html; charset=utf-8", found
                if path == "/json":
                    return HTTPStatus.OK, "application/json; charset=utf-8", json.dumps(look()).encode()
                return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"There are / and /json.\n"

        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = SmallServer(family, (host, port), Handler, host)
        self.port: int = self._server.server_address[1]
        """Where it listens."""
        self._thread = threading.Thread(target=self._server.serve_forever, name="introspection", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Serve no more; may be called again."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
