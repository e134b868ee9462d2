"""Who may serve, and how one comes to it."""

import pytest

from legato.ha.roles import TRANSITIONS, Event, Role, may_serve, next_role


def role_after(*events: Event) -> Role:
    role = Role.STARTING
    for event in events:
        role = next_role(role, event)
    return role


def test_a_backup_that_wins_the_lock_activates_before_it_serves() -> None:
    assert role_after(Event.STARTED) is Role.BACKUP
    assert role_after(Event.STARTED, Event.WON) is Role.ACTIVATING
    assert role_after(Event.STARTED, Event.WON, Event.ACTIVATED) is Role.PRIMARY


def test_a_backup_that_lost_the_primary_seeks_until_it_has_the_lock_or_hears_again() -> None:
    """CONTRACT B6."""
    for lost in (Event.SILENT, Event.CUT_OFF):
        assert role_after(Event.STARTED, lost) is Role.SEEKING
        assert role_after(Event.STARTED, Event.HEARD, lost, lost, Event.HEARD) is Role.BACKUP
        assert role_after(Event.STARTED, lost, Event.WON) is Role.ACTIVATING


def test_only_a_primary_serves() -> None:
    assert [role for role in Role if may_serve(role)] == [Role.PRIMARY]


def test_nobody_becomes_primary_but_by_activating() -> None:
    ways = {(role, event) for (role, event), to in TRANSITIONS.items() if to is Role.PRIMARY}
    assert ways == {(Role.ACTIVATING, Event.ACTIVATED)}


def test_a_fenced_broker_becomes_a_backup_or_stops() -> None:
    """CONTRACT B3; CORRECTNESS D8 a24: it does not have to be a new process."""
    next_roles = {to for (role, _), to in TRANSITIONS.items() if role is Role.FENCED}
    assert next_roles == {Role.FENCED, Role.BACKUP, Role.STOPPED}
    assert {to for (role, _), to in TRANSITIONS.items() if role is Role.STOPPED} == {Role.STOPPED}


@pytest.mark.parametrize("role", list(Role))
def test_every_role_can_be_told_to_stop(role: Role) -> None:
    assert next_role(role, Event.STOP) is Role.STOPPED


@pytest.mark.parametrize(
    ("role", "event"),
    [
        (Role.BACKUP, Event.ACTIVATED),
        (Role.STARTING, Event.WON),
        (Role.STOPPED, Event.STARTED),
        (Role.FENCED, Event.WON),
    ],
)
def test_what_cannot_happen_is_refused_in_words(role: Role, event: Event) -> None:
    with pytest.raises(ValueError, match=f"no transition from the role {role} for the event {event}"):
        next_role(role, event)
