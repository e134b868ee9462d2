"""Dead letters among groups: whose queue they are of."""

from itertools import permutations

import pytest

from legato.groups.dead_letters import origin_of

PATTERNS = ("DLQ.{address}", "DLQ.orders.{address}", "DLQ.all", "{address}.dead")


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("orders.new", "orders.new"),
        ("DLQ.payments", "payments"),
        ("MUTED.DLQ.payments", "payments"),
        ("DLQ.orders.new", "new"),
        ("payments.dead", "payments"),
        ("DLQ.all", None),
    ],
)
def test_whose_they_are_does_not_hang_on_the_order_of_the_settings(address: str, origin: str | None) -> None:
    """Brokers have them in a set: each answered by its own hashes of texts, and by others after a restart."""
    assert {origin_of(address, patterns) for patterns in permutations(PATTERNS)} == {origin}
