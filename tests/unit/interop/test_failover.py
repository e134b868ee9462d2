"""What Java saw across failovers is judged by what a durable queue promises."""

from __future__ import annotations

from interop.outcomes import FAILED
from interop.run_failover import KILLS, Seen


def broken(*lines: str) -> set[str]:
    seen = Seen()
    for line in lines:
        seen.take(line)
    return {each.test.partition(".")[2] for each in seen.outcomes(2) if each.outcome == FAILED}


def test_each_once_in_order_is_what_is_promised() -> None:
    assert broken("sent 0", "received 0 1", "sent 1", "received 1 1") == set()


def test_a_repetition_that_says_so_is_allowed() -> None:
    assert broken("sent 0", "received 0 1", "received 0 2", "sent 1", "received 1 1") == set()


def test_a_send_under_way_at_a_kill_may_be_repeated_as_if_for_the_first_time() -> None:
    assert broken("sent 0", *["received 0 1"] * (1 + KILLS), "sent 1", "received 1 1") == set()
    repeated = broken("sent 0", *["received 0 1"] * (2 + KILLS), "sent 1", "received 1 1")
    assert repeated == {"what-comes-again-says-so"}


def test_losses_are_told_apart() -> None:
    assert broken("sent 0", "received 0 1", "sent 1") == {"every-message-comes"}
    assert broken("sent 0", "received 0 1", "received 1 1") == {"every-send-returns"}


def test_order_is_that_of_first_deliveries() -> None:
    assert broken("sent 0", "sent 1", "received 1 1", "received 0 1") == {"messages-come-in-order"}


def test_a_transfer_happens_once() -> None:
    seen = Seen()
    for line in ("received 0 1", "received 2 1", "received 2 1"):
        seen.take(line)
    reasons = {each.test.partition(".")[2]: each.reason for each in seen.transferred(3)}
    assert reasons == {"no-transfer-is-lost": "lost: [1]", "no-transfer-happens-twice": "twice: [2]"}
