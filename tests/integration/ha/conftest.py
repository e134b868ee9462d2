"""What tests of primary and backup share."""

import time
from collections.abc import Callable

import pytest

from legato.ha.members import list_members
from legato.ha.roles import Role
from tests.support.replicated import group, servers
from tests.support.server import Server

__all__ = ["group", "servers", "wait_for_role"]

WAIT_S = 60.0

WaitForRole = Callable[[Server, Role], None]


@pytest.fixture
def wait_for_role() -> WaitForRole:
    """Waits until a server says of itself, among the members of its store, that it has a role."""

    def wait(server: Server, role: Role) -> None:
        deadline = time.monotonic() + WAIT_S
        while role not in {member.role for member in list_members(server.store) if member.pid == server.pid}:
            assert time.monotonic() < deadline, f"it is not {role}; its log:\n{server.log.read_text()}"
            time.sleep(0.01)

    return wait
