"""Flows that are begun in turn at services whose addresses are of different groups."""

import pytest

from legato.errors import FlowBackendError
from legato.flows import Flows
from tests.integration.groups.conftest import Connect, Groups
from tests.integration.groups.test_links import taken


def begin_both(flows: Flows, *services: str) -> None:
    with flows.initiate("both") as initiation:
        for service in services:
            initiation.send(service, 4)


def test_flows_begin_at_services_of_one_group_and_of_another_in_turn(calm_groups: Groups, connect: Connect) -> None:
    """Each change was refused: the session was that of the group before."""
    names = [f"Service{number}.run" for number in range(100)]
    here, there = (
        next(name for name in names if calm_groups.group_of(f"flows.{name}") == group) for group in ("orders", "rest")
    )
    flows = Flows(calm_groups.url("orders"))
    try:
        for number in range(3):
            for service in (here, there):
                flows.send(service, number, trace_id=f"{number}")
        # What one transaction would have to send to both is refused as ever, and nothing of it is sent.
        with pytest.raises(FlowBackendError, match="or pin both addresses to one group"):
            begin_both(flows, here, there)
    finally:
        flows.stop(timeout_s=5)
    connection = connect(calm_groups.url("orders"))
    for service in (here, there):
        assert len(taken(connection, f"flows.{service}")) == 3
