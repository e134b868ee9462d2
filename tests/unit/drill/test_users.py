"""A drill with users: clients and administrators log in, each with a role of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.drill.options import DrillOptions
from legato.drill.target import ADMINISTRATORS, CLIENTS, own
from legato.errors import ConfigError
from legato.server.access.permissions import Level, decide, decide_level
from legato.server.access.roles import read_roles
from legato.server.config.configuration import load
from legato.server.identity.users import Users


def test_clients_and_administrators_have_logins_and_roles_of_their_own(tmp_path: Path) -> None:
    target = own(tmp_path / "out", None, ledger=False, users=True)
    assert target.pair is not None
    clients, administrators = target.url([1, 2]), target.administrators_url([1, 2])
    assert clients.startswith(f"amqp://{CLIENTS}:")
    assert administrators.startswith(f"amqp://{ADMINISTRATORS}:")
    config = load(tmp_path / "out" / "legato.toml", store=tmp_path / "store", environment=target.pair.environment)
    users = Users.load(config)
    assert {user.name for user in users} == {CLIENTS, ADMINISTRATORS}
    permissions = read_roles(config.role)
    assert permissions is not None
    roles = {user: permissions.roles_of(user, (), ()) for user in (CLIENTS, ADMINISTRATORS)}
    assert decide(CLIENTS, roles[CLIENTS], "send", "drill.7.q").allowed
    assert not decide(CLIENTS, roles[CLIENTS], "send", "elsewhere").allowed
    assert not decide_level(CLIENTS, roles[CLIENTS], Level.ADMINISTER).allowed
    assert decide_level(ADMINISTRATORS, roles[ADMINISTRATORS], Level.ADMINISTER).allowed


def test_without_users_nobody_logs_in(tmp_path: Path) -> None:
    target = own(tmp_path / "out", None, ledger=False)
    assert target.url([1]).startswith("amqp://127.0.0.1:1?")
    assert target.url([1]) == target.administrators_url([1])


def test_users_are_for_brokers_that_the_drill_starts() -> None:
    with pytest.raises(ConfigError, match="--users is for brokers that the drill starts"):
        DrillOptions(url="amqp://localhost", users=True)
