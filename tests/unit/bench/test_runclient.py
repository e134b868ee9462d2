"""What the run client checks of the numbers that it receives."""

import pytest
from bench import runclient
from bench.rawclient import message_parts
from bench.runclient import Numbers
from cproton_ffi import ffi

BEFORE, AFTER = message_parts(256)


def take(numbers: Numbers, *came: int) -> None:
    """Have a run of these messages come."""
    bodies = [b"%b%012d%b" % (BEFORE, number, AFTER) for number in came]
    end = 0
    for place, body in enumerate(bodies):
        ffi.memmove(runclient._bytes + end, body, len(body))
        end += len(body)
        runclient._ends[place] = end
    numbers.take(len(came))


def test_each_number_once_in_any_order_is_complete() -> None:
    numbers = Numbers(5, len(AFTER))
    take(numbers, 4, 0)
    assert numbers.missing == 3
    take(numbers, 2, 1, 3)
    assert numbers.missing == 0


@pytest.mark.parametrize("second", [(1,), (2, 1), (3, 3)])
def test_a_message_that_comes_twice_is_noticed(second: tuple[int, ...]) -> None:
    numbers = Numbers(5, len(AFTER))
    take(numbers, 1)
    with pytest.raises(RuntimeError, match="came twice"):
        take(numbers, *second)


def test_a_message_that_nobody_sent_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="nobody sent"):
        take(Numbers(5, len(AFTER)), 5)
