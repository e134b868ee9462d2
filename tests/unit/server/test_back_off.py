"""Back-off: who is not listened to after failed logins, and for how long."""

from legato.server.identity.back_off import ENTRIES_MAX, BackOff


def failing(times: int, address: str = "192.0.2.1", user: str = "ann") -> BackOff:
    back_off = BackOff(1.0, 3, 60.0)
    for _ in range(times):
        assert back_off.fail(address, user, 0.0) == 1.0
    return back_off


def test_a_user_at_an_address_is_not_listened_to_after_too_many_failures() -> None:
    assert not failing(2).is_blocked("192.0.2.1", "ann", 1.0)
    back_off = failing(3)
    assert back_off.is_blocked("192.0.2.1", "ann", 59.0)
    assert not back_off.is_blocked("192.0.2.1", "ann", 60.0)
    assert not back_off.is_blocked("192.0.2.2", "ann", 1.0)
    assert not back_off.is_blocked("192.0.2.1", "bob", 1.0)


def test_an_address_that_tries_many_users_is_not_listened_to_either() -> None:
    back_off = BackOff(1.0, 3, 60.0)
    for number in range(30):
        back_off.fail("192.0.2.1", f"user{number}", 0.0)
    assert back_off.is_blocked("192.0.2.1", "another", 1.0)
    assert not back_off.is_blocked("192.0.2.2", "another", 1.0)


def test_who_logged_in_from_an_address_does_not_suffer_for_others_there() -> None:
    back_off = BackOff(1.0, 3, 60.0)
    back_off.succeed("192.0.2.1", "ann", 0.0)
    for number in range(1000):
        back_off.fail("192.0.2.1", f"user{number}", 1.0)
    assert not back_off.is_blocked("192.0.2.1", "ann", 2.0)
    assert back_off.is_blocked("192.0.2.1", "bob", 2.0)


def test_a_login_that_succeeds_wipes_out_failures() -> None:
    back_off = failing(2)
    back_off.succeed("192.0.2.1", "ann", 1.0)
    back_off.fail("192.0.2.1", "ann", 2.0)
    assert not back_off.is_blocked("192.0.2.1", "ann", 3.0)


def test_addresses_of_one_network_of_ipv6_count_as_one() -> None:
    back_off = failing(3, "2001:db8::1")
    assert back_off.is_blocked("2001:db8::ffff", "ann", 1.0)
    assert not back_off.is_blocked("2001:db8:0:1::1", "ann", 1.0)


def test_what_is_remembered_is_bounded() -> None:
    back_off = BackOff(1.0, 3, 60.0)
    for number in range(ENTRIES_MAX + 100):
        back_off.fail("192.0.2.1", f"user{number}", 0.0)
    assert len(back_off._failures) <= ENTRIES_MAX
    assert back_off.is_blocked("192.0.2.1", "anybody", 1.0)
