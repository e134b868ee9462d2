"""A broker that looks whether its heap agrees with its store says so to who can stop it."""

from legato.clock import Clock
from legato.errors import StoreError
from legato.server.storage.invariant_check import PERIOD_MS, InvariantCheck
from tests.support.scenario import Scenario


class ManualClock(Clock):
    """Time as a test says it."""

    def __init__(self) -> None:
        self.ms = PERIOD_MS

    def now_us(self) -> int:
        return self.ms * 1000

    def monotonic_ms(self) -> int:
        return self.ms


def test_one_queue_after_the_other_is_looked_at_one_a_period() -> None:
    s, clock, found = Scenario(), ManualClock(), list[StoreError]()
    for name in ("first", "second", "third"):
        s.publish(name, b"1")
    check = InvariantCheck(s.broker, s.store, clock, found.append)
    s.broker.directory.queues["second"].bytes += 1
    check.look()
    check.look()
    assert found == []
    clock.ms += PERIOD_MS
    check.look()
    assert "second: bytes are counted alike (2, in the store 1)" in str(found[0])
    clock.ms += PERIOD_MS
    check.look()
    assert len(found) == 1, "the third queue is as it must be"


def test_what_is_no_queues_is_looked_at_after_the_last_queue() -> None:
    s, clock, found = Scenario(), ManualClock(), list[StoreError]()
    s.publish("q", b"1")
    check = InvariantCheck(s.broker, s.store, clock, found.append)
    check.look()
    s.broker.transactions.committing.add(b"x")
    clock.ms += PERIOD_MS
    check.look()
    assert "no transaction is being committed" in str(found[0])
