"""What a service does that is told nothing."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest

from legato.flows import Context, Flows, Policy, Transaction
from legato.flows.service import STOP_TIMEOUT_S
from legato.flows.stages.session_worker import CHILL_FIRST_S, CHILL_MAX_S


def policy_of(service: Policy, **stage: Any) -> Policy:
    flows = Flows("amqp://nowhere", policy=service)

    @flows.single("Prices.of", **stage)
    def price(context: Context[None], item: str) -> float:
        return 1.0

    return flows.policy_of(flows.registry.stage("Prices.of"))


def test_the_defaults_are_those_of_mats_but_for_the_interactive_pool() -> None:
    """CONTRACT D20, D22."""
    policy = policy_of(Policy())
    assert policy.concurrency == min(10, 2 * (os.cpu_count() or 1))
    assert (policy.interactive_concurrency, policy.deliveries_max, policy.batch_max) == (0, 6, 1)
    assert policy.transaction is Transaction.MESSAGING
    assert (STOP_TIMEOUT_S, CHILL_FIRST_S, CHILL_MAX_S) == (30.0, 0.1, 30.0)


@pytest.mark.parametrize("name", ["circuit_failures", "deliveries_max", "concurrency"])
def test_a_stage_says_more_than_its_service(name: str) -> None:
    service = dataclasses.replace(Policy(), **{name: 7})  # type: ignore[arg-type]
    assert getattr(policy_of(service), name) == 7
    assert getattr(policy_of(service, **{name: 3}), name) == 3
