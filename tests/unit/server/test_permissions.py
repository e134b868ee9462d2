"""Permissions: which role allows what, and what is said of what none allows."""

from __future__ import annotations

from typing import Any

import pytest

from legato.errors import ConfigError
from legato.server.access.access import Access
from legato.server.access.permissions import DECISIONS_MAX, Denied, Level, Rights, decide
from legato.server.access.roles import check_roles, read_roles
from legato.server.identity.users import Users
from legato.server.identity.users_file import User, UsersFile


def rights(*allow: dict[str, Any], management: str | None = None, user: str = "ann") -> Rights:
    table: dict[str, Any] = {"name": "billing", "members": [user], "allow": list(allow)}
    if management:
        table["management"] = management
    permissions = read_roles([table])
    assert permissions is not None
    return Rights(user, permissions.roles_of(user, (), ()))


@pytest.mark.parametrize(
    ("on", "address", "topic", "allowed"),
    [
        ("orders", "orders", False, True),
        ("orders", "orders", True, True),
        ("orders", "orders.new", False, False),
        ("orders.#", "orders", False, True),
        ("orders.#", "orders.new.eu", False, True),
        ("orders.*", "orders.new.eu", False, False),
        ("#", "anything.at.all", None, True),
        ("topic://orders", "orders", True, True),
        ("topic://orders", "orders", False, False),
        ("topic://orders", "orders", None, False),
        ("queue://orders", "orders", False, True),
        ("queue://orders", "orders", True, False),
        ("temp-queue://#", "temp-queue://1234", False, True),
        ("temp-queue://#", "temp-topic://1234", True, False),
        ("temp-queue://#", "1234", False, False),
        ("#", "temp-queue://1234", None, True),
        ("orders", "Orders", False, False),
        ("DLQ.#", "DLQ.orders", False, True),
    ],
)
def test_a_pattern_is_for_the_addresses_it_matches(on: str, address: str, topic: bool | None, allowed: bool) -> None:
    assert rights({"on": on, "may": ["send"]}).may("send", address, topic) is allowed
    assert not rights({"on": on, "may": ["send"]}).may("receive", address, topic)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(Denied, match=r"'ann', with the roles billing, lacks a permission: receive on 'invoices'"):
        rights({"on": "orders", "may": ["send"]}).demand("receive", "invoices", False)
    with pytest.raises(Denied, match=r"'ann', with the roles billing, .*: management = 'administer'"):
        rights(management="operate").demand_level(Level.ADMINISTER)
    with pytest.raises(Denied, match=r"'bob', with no role, .*: send on 'topic://prices'"):
        Rights("bob", ()).demand("send", "prices", True)
    assert Denied.condition == "amqp:unauthorized-access"


@pytest.mark.parametrize(("level", "reached"), [("view", 1), ("operate", 2), ("administer", 3)])
def test_levels_of_management_include_those_below(level: str, reached: int) -> None:
    assert [rights(management=level).reaches(wanted) for wanted in (Level.VIEW, Level.OPERATE, Level.ADMINISTER)] == [
        number < reached for number in range(3)
    ]


def test_roles_come_from_members_the_users_file_and_tokens() -> None:
    permissions = read_roles(
        [
            {"name": "a", "members": ["ann"], "management": "view"},
            {"name": "b", "members": ["group:sales"], "management": "view"},
            {"name": "c", "members": ["*"], "management": "view"},
            {"name": "d", "management": "view"},
        ]
    )
    assert permissions is not None

    def names(user: str, given: tuple[str, ...] = (), groups: tuple[str, ...] = (), known: bool = True) -> str:
        return "".join(role.name for role in permissions.roles_of(user, given, groups, known=known))

    assert names("ann") == "ac"
    assert names("bob") == "c"
    assert names("bob", ("d",)) == "cd"
    assert names("bob", (), ("sales", "unheard-of")) == "bc"
    assert names("bob", (), ("d",)) == "cd"
    assert names("anonymous", known=False) == ""


def test_nobody_gets_a_role_by_being_called_like_a_group() -> None:
    """Names of users of a file cannot have a colon, those of certificates and tokens may."""
    permissions = read_roles([{"name": "b", "members": ["group:sales"], "management": "view"}])
    assert permissions is not None
    assert permissions.roles_of("group:sales", (), ()) == []


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"members": ["ann"]}, "number 1.*name"),
        ({"name": "x"}, "'x'.*allows nothing"),
        ({"name": "x", "allow": [{"on": "a", "may": ["sned"]}]}, "'x'.*sned"),
        ({"name": "x", "allow": [{"on": "a", "may": []}]}, "'x'.*may"),
        ({"name": "x", "allow": [{"on": "a.b#", "may": ["send"]}]}, "'x'.*'a.b#' is no pattern"),
        ({"name": "x", "allow": [{"on": "", "may": ["send"]}]}, "'x'.*no pattern"),
        ({"name": "x", "allow": [{"on": "http://a", "may": ["send"]}]}, "'x'.*http://"),
        ({"name": "x", "allow": [{"on": "a", "may": ["send"], "not": 1}]}, "'x'.*not"),
        ({"name": "x", "management": "all"}, "'x'.*all"),
        ({"name": "a b", "management": "view"}, "no role"),
        ({"name": "x", "member": ["ann"], "management": "view"}, "'x'.*member"),
    ],
)
def test_a_role_that_cannot_be_used_is_named(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_roles([table])


def test_two_roles_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="number 2 has the name of another one, 'x'"):
        read_roles([{"name": "x", "management": "view"}] * 2)


def test_a_user_with_a_role_that_names_nothing_is_refused() -> None:
    users = Users(UsersFile(b"s" * 32, {"ann": User("ann", ("biling",))}))
    with pytest.raises(ConfigError, match=r"'ann' has the role 'biling'.* there are billing"):
        check_roles(read_roles([{"name": "billing", "management": "view"}]), users)
    assert check_roles(None, users)


def test_decisions_are_remembered_within_bounds() -> None:
    some = rights({"on": "orders.#", "may": ["send"]})
    for number in range(DECISIONS_MAX + 10):
        assert some.may("send", f"orders.{number}", False)
    some.may("send", "orders." + "x" * 100_000, False)
    assert len(some._allowed) <= DECISIONS_MAX
    assert all(len(address) < 1000 for _, address, _ in some._allowed)


def test_rights_are_the_same_object_for_a_user_until_roles_change() -> None:
    users = Users()
    permissions = read_roles([{"name": "x", "members": ["ann"], "management": "view"}])
    access = Access(permissions, users)
    first = access.rights_of("ann")
    assert first is access.rights_of("ann")
    access.replace(permissions, users)
    assert access.rights_of("ann") is not first
    access.replace(None, users)
    assert access.rights_of("ann") is None


def test_a_decision_says_which_role_it_comes_from() -> None:
    some = rights({"on": "orders.#", "may": ["send"]})
    assert decide("ann", some.roles, "send", "orders.new").reason == "the role 'billing' allows send on 'orders.#'"


def test_a_level_that_there_is_not_is_named_with_those_that_there_are() -> None:
    """It was `Invalid enum value 'operat' - at `$.management``."""
    with pytest.raises(ConfigError) as found:
        read_roles([{"name": "operators", "management": "operat"}])
    assert str(found.value) == (
        "the [[role]] 'operators': management: 'operat' is none of view, operate, administer. Did you mean operate?"
    )


def test_a_permission_that_there_is_not_is_named_with_those_that_there_are() -> None:
    """It was `allow[0].may[0]: invalid enum value 'reed'`: what else there is was nowhere."""
    with pytest.raises(ConfigError) as found:
        read_roles([{"name": "a", "allow": [{"on": "#", "may": ["recieve"]}]}])
    assert str(found.value) == (
        "the [[role]] 'a': allow[0].may[0]: 'recieve' is none of send, receive, browse, create, delete, bulk. "
        "Did you mean receive?"
    )
    with pytest.raises(ConfigError, match=r"the \[\[role\]\] 'a': allow\[0\]: object missing required field may\.$"):
        read_roles([{"name": "a", "allow": [{"on": "#"}]}])
