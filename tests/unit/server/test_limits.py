"""What peers may take: bounds, rates and accounts."""

from __future__ import annotations

import pytest

from legato.server.config.bounds import (
    Bounds,
    GeneralUserBounds,
    OriginBounds,
    SomeUserBounds,
    TotalBounds,
    UserBounds,
)
from legato.server.config.configuration import LimitsSection
from legato.server.limits.accounts import ACCOUNTS_MAX, Accounts, Holdings, LimitExceeded
from legato.server.limits.token_bucket import TokenBucket


class Watch:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


def accounts(section: LimitsSection, watch: Watch | None = None) -> tuple[Accounts, list[str]]:
    """Accounts, and the lines that they have told the log."""
    told: list[str] = []
    return Accounts(section, watch or Watch(), told.append), told


def opened(all_accounts: Accounts, user: str = "", address: str = "192.0.2.1") -> Holdings:
    holdings = all_accounts.arrive(address)
    holdings.begin(user, ())
    return holdings


def test_a_bucket_lets_a_burst_pass_and_then_no_more_than_its_rate() -> None:
    bucket = TokenBucket(2.0)
    assert bucket.take(20, 10, 0.0) == 0.0
    assert bucket.take(30, 10, 0.0) == 3.0
    assert bucket.take(0, 10, 2.0) == 1.0
    assert bucket.take(0, 10, 3.0) == 0.0
    assert [bucket.try_take(10, 3.0), bucket.try_take(10, 3.1), bucket.try_take(10, 3.1)] == [False, True, False]
    assert not bucket.is_full(10, 4.0)
    assert bucket.is_full(10, 6.0)


def test_a_bucket_gives_nothing_for_a_clock_that_goes_back() -> None:
    bucket = TokenBucket(1.0)
    bucket.take(10, 10, 5.0)
    assert not bucket.try_take(10, 4.0)


def test_a_users_own_bounds_go_before_those_of_its_roles_and_these_before_the_general_ones() -> None:
    users = {"ann": SomeUserBounds(links=3)}
    roles = {
        "few": SomeUserBounds(links=5, sessions=5),
        "many": SomeUserBounds(links=9),
        "all": SomeUserBounds(sessions=0),
    }
    bounds = UserBounds(Bounds(links=7, sessions=7, connections=7), users, roles)
    assert bounds.of("bob", ()) == Bounds(links=7, sessions=7, connections=7)
    assert bounds.of("ann", ("many",)).links == 3
    assert bounds.of("bob", ("few", "many")).links == 9
    assert bounds.of("bob", ("few", "all")).sessions == 0
    assert bounds.of("bob", ("few", "all")).connections == 7


def test_all_defaults_are_finite_and_an_address_has_less_than_all() -> None:
    total, origin, user = TotalBounds(), OriginBounds(), GeneralUserBounds()
    for field in total.__struct_fields__:
        assert 0 < getattr(origin, field) < getattr(total, field)
    assert all(getattr(user, field) > 0 for field in user.__struct_fields__ if not field.endswith("timeout_s"))


def test_connections_are_counted_for_their_user_their_address_and_in_all() -> None:
    section = LimitsSection(
        total=TotalBounds(connections=5), origin=OriginBounds(connections=3), user=GeneralUserBounds(connections=2)
    )
    everybody, _ = accounts(section)
    first = opened(everybody, "ann")
    opened(everybody, "ann", "192.0.2.2")
    with pytest.raises(LimitExceeded, match=r"The user 'ann' may have 2 connections \(limits.user.connections\)"):
        opened(everybody, "ann", "192.0.2.3")
    opened(everybody, "bob")
    opened(everybody)
    with pytest.raises(
        LimitExceeded, match=r"The address 192.0.2.1 may have 3 connections \(limits.origin.connections\)"
    ):
        opened(everybody)
    opened(everybody, "", "192.0.2.8")
    with pytest.raises(LimitExceeded, match=r"The broker may have 5 connections \(limits.total"):
        opened(everybody, "", "192.0.2.9")
    first.end()
    first.end()
    opened(everybody, "ann", "192.0.2.9")
    assert everybody.refusals == 3


def test_a_network_of_ipv6_is_one_address() -> None:
    everybody, _ = accounts(LimitsSection(origin=OriginBounds(half_open=1)))
    everybody.arrive("2001:db8:1:1::1")
    with pytest.raises(LimitExceeded, match="half-open"):
        everybody.arrive("2001:db8:1:1:ffff::2")
    everybody.arrive("2001:db8:1:2::1")


def test_half_open_connections_are_counted_until_they_have_opened_or_gone() -> None:
    everybody, _ = accounts(LimitsSection(total=TotalBounds(half_open=1)))
    for _ in range(3):
        opened(everybody)
        everybody.arrive("192.0.2.1").end()
    everybody.arrive("192.0.2.1")
    with pytest.raises(LimitExceeded):
        everybody.arrive("192.0.2.2")


def test_links_sessions_and_bytes_go_with_their_connection() -> None:
    section = LimitsSection(
        user=GeneralUserBounds(links=2, sessions=1, held_bytes=100),
    )
    everybody, _ = accounts(section)
    one, other = opened(everybody, "ann"), opened(everybody, "ann")
    one.count_links(2)
    one.begin_session("s")
    one.hold(90)
    with pytest.raises(LimitExceeded, match="2 links"):
        other.demand_link()
    with pytest.raises(LimitExceeded, match="1 sessions"):
        other.begin_session("t")
    with pytest.raises(LimitExceeded, match=r"100 bytes in unfinished messages.*\(limits.user.held_bytes\)"):
        other.hold(20)
    other.hold(5)
    other.end_session("t")
    one.end()
    other.demand_link()
    other.begin_session("t")
    other.hold(100)


def test_creations_are_bounded_by_the_minute_and_a_new_connection_does_not_help() -> None:
    watch = Watch()
    everybody, _ = accounts(LimitsSection(origin=OriginBounds(creations_per_minute=3)), watch)
    for _ in range(3):
        holdings = opened(everybody)
        holdings.create()
        holdings.end()
    with pytest.raises(LimitExceeded, match="may create 3 queues, topics and subscriptions a minute"):
        opened(everybody).create()
    watch.s += 20
    opened(everybody).create()


def test_who_sends_more_than_it_may_waits_and_nobody_else() -> None:
    everybody, _ = accounts(LimitsSection(user=GeneralUserBounds(messages_per_s=10)))
    ann, bob = opened(everybody, "ann"), opened(everybody, "bob")
    assert ann.spend(10) == 0
    assert ann.spend(20) == 2.0
    assert bob.spend(10) == 0


def test_the_log_is_told_of_a_limit_once_a_minute() -> None:
    watch = Watch()
    everybody, told = accounts(LimitsSection(origin=OriginBounds(half_open=1)), watch)
    everybody.arrive("192.0.2.1")
    for _ in range(100):
        with pytest.raises(LimitExceeded):
            everybody.arrive("192.0.2.1")
    assert told == ["The address 192.0.2.1 may have 1 half-open connections (limits.origin.half_open)."]
    watch.s += 61
    with pytest.raises(LimitExceeded):
        everybody.arrive("192.0.2.1")
    assert len(told) == 2


def test_accounts_that_nobody_uses_are_forgotten() -> None:
    everybody, _ = accounts(LimitsSection())
    kept = opened(everybody, "ann")
    kept.count_links(1)
    for number in range(ACCOUNTS_MAX * 2):
        opened(everybody, f"user {number}").end()
    assert len(everybody._users) <= ACCOUNTS_MAX
    assert everybody.of_user("ann", ()).links == 1


def test_bounds_may_change_while_connections_are_there() -> None:
    everybody, _ = accounts(LimitsSection())
    holdings = opened(everybody)
    holdings.count_links(5)
    everybody.replace(LimitsSection(origin=OriginBounds(links=5)))
    with pytest.raises(LimitExceeded):
        holdings.demand_link()
    everybody.replace(LimitsSection(origin=OriginBounds(links=0)))
    holdings.demand_link()


def test_holdings_without_accounts_are_not_bounded() -> None:
    holdings = Holdings()
    holdings.demand_link()
    holdings.create()
    holdings.hold(1 << 40)
    assert holdings.spend(1 << 30) == 0
