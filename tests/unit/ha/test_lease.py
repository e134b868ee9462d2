"""Whether a primary may believe that it is one."""

from legato.ha.lease import CHECK_MS, Lease, Standing

TERM_MS = 10_000


class Lock:
    """Counts how often it was looked at."""

    def __init__(self) -> None:
        self.ours = True
        self.looks = 0

    def is_ours(self) -> bool:
        self.looks += 1
        return self.ours


def test_the_lock_is_looked_at_now_and_then_however_often_one_asks() -> None:
    lock = Lock()
    lease = Lease(lock.is_ours, None, now_ms=0)
    assert {lease.standing(now) for now in range(0, 3 * CHECK_MS, 10)} == {Standing.GOOD}
    assert lock.looks == 2


def test_a_lock_that_is_anothers_is_found_out_after_any_pause() -> None:
    lock = Lock()
    lease = Lease(lock.is_ours, None, now_ms=0)
    lock.ours = False
    assert lease.standing(CHECK_MS - 1) is Standing.GOOD
    assert lease.standing(3_600_000) is Standing.LOST


def test_who_has_a_reason_to_doubt_looks_at_the_lock_at_once() -> None:
    lock = Lock()
    lease = Lease(lock.is_ours, None, now_ms=0)
    assert lease.standing(1, look=True) is Standing.GOOD
    lock.ours = False
    assert lease.standing(2) is Standing.GOOD
    assert lease.standing(2, look=True) is Standing.LOST


def test_without_self_fencing_a_pause_does_not_matter_if_the_lock_is_ours() -> None:
    assert Lease(Lock().is_ours, None, now_ms=0).standing(3_600_000) is Standing.GOOD


def test_with_self_fencing_the_lease_lapses_after_the_activation_interval() -> None:
    """A primary that renews stays one; one that could not for the whole interval does not."""
    lease = Lease(Lock().is_ours, TERM_MS, now_ms=0)
    assert lease.standing(TERM_MS - 1) is Standing.GOOD
    assert lease.standing(2 * TERM_MS - 2) is Standing.GOOD
    assert lease.standing(3 * TERM_MS) is Standing.LAPSED


def test_a_short_interval_is_renewed_in_time() -> None:
    lease = Lease(Lock().is_ours, 200, now_ms=0)
    assert {lease.standing(now) for now in range(0, 5_000, 100)} == {Standing.GOOD}


def test_a_lease_by_time_is_unsure_when_it_is_over_and_good_when_it_is_renewed() -> None:
    """A replicated primary answers nobody meanwhile, and gives up after the activation interval."""
    lock, left_s = Lock(), 0.5
    lease = Lease(lock.is_ours, TERM_MS, now_ms=0, sure_for_s=lambda: left_s)
    assert (lease.is_sure, lease.standing(CHECK_MS)) == (True, Standing.GOOD)
    left_s = 0.0
    assert (lease.is_sure, lease.standing(2 * CHECK_MS)) == (False, Standing.UNSURE)
    assert lease.standing(2 * CHECK_MS + 1) is Standing.UNSURE
    left_s = 0.1
    assert (lease.is_sure, lease.standing(3 * CHECK_MS)) == (True, Standing.GOOD)
    left_s = -1.0
    assert lease.standing(3 * CHECK_MS + TERM_MS) is Standing.LAPSED
    lock.ours = False
    assert lease.standing(3 * CHECK_MS) is Standing.LOST
