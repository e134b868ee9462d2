"""What `legato status --store` shows while a switchover goes on."""

import pytest

from legato.cli.rendering import broker_lines, group_lines, member_line
from legato.cli.status import HANDING_OVER, PRIMARY, show_one_primary
from legato.ha.roles import Role


@pytest.mark.parametrize(("answered", "recorded"), [(4, 5), (5, 4)])
def test_a_broker_that_answers_and_one_that_is_recorded_are_not_both_the_primary(answered: int, recorded: int) -> None:
    """USERS S1: asked before the switchover, read after it; or the other way round."""
    members = [{"role": "primary", "epoch": recorded}, {"role": "backup", "epoch": 3}]
    answer = {"role": "primary", "epoch": answered, "members": members}
    show_one_primary(answer)
    assert {each["epoch"]: each["role"] for each in (answer, *members)} == {
        5: "primary",
        4: "handing over",
        3: "backup",
    }


def test_the_roles_are_spelled_as_brokers_spell_them() -> None:
    assert (PRIMARY, HANDING_OVER) == (Role.PRIMARY, Role.HANDING_OVER)


def test_a_backup_that_was_the_primary_once_does_not_look_as_if_it_were_behind() -> None:
    member = {"role": "primary", "pid": 1, "listen": "localhost:5672", "epoch": 2, "since_us": 0}
    assert member_line(member) == "primary: process 1 at localhost:5672, epoch 2, since 1970-01-01 00:00:00 UTC"
    member["role"] = "backup"
    assert member_line(member) == "backup: process 1 at localhost:5672, since 1970-01-01 00:00:00 UTC"


@pytest.mark.parametrize(
    ("connections", "said"),
    [
        (1, "No client is connected but this command."),
        (3, "3 clients are connected, this command and backups included."),
    ],
)
def test_who_asks_is_not_told_to_be_a_client_of_others(connections: int, said: str) -> None:
    answer = {
        "container_id": "legato@one",
        "role": "primary",
        "listen": "localhost:5672",
        "epoch": 1,
        "connections": connections,
        "store_used_bytes": 0,
        "store_capacity_bytes": 1 << 30,
        "free_disk_bytes": 1 << 30,
    }
    assert broker_lines(answer)[1].startswith(said)


def test_of_a_subscription_the_topic_is_named_which_is_what_a_map_pins() -> None:
    group = {"name": "rest", "revision": 2, "groups": 2, "stranded": {"subscription://me/news": "orders"}}
    queues = [{"name": "subscription://me/news", "address": "prices"}]
    assert group_lines(group, queues)[1] == (
        "Messages wait in subscription://me/news, which is the group orders's by the map: pin prices here until it is "
        "empty."
    )


def test_it_is_said_that_not_all_queues_were_looked_at() -> None:
    """A status shows a thousand; of the others nothing was said."""
    group = {"name": "rest", "revision": 2, "groups": 2, "stranded": {}, "all_looked_at": False, "trouble": ""}
    assert "it was not looked at" in group_lines(group)[1]
    assert len(group_lines(group | {"all_looked_at": True})) == 1


def test_why_the_map_of_the_log_is_not_gone_by_is_told() -> None:
    group = {"name": "rest", "revision": 2, "groups": 2, "stranded": {}, "trouble": "It has no such group. Stop."}
    assert group_lines(group)[1] == "The map of groups in the log: It has no such group. Stop."
